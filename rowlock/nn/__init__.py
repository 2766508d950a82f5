"""``paddle.nn``: gradient clips, initializers, and functions of tensors."""

from ..graph.training.clip import GradientClipByGlobalNorm as ClipGradByGlobalNorm
from ..graph.training.clip import GradientClipByNorm as ClipGradByNorm
from ..graph.training.clip import GradientClipByValue as ClipGradByValue
from ..names import listing, missing
from . import functional, initializer

__all__ = [
    "ClipGradByGlobalNorm",
    "ClipGradByNorm",
    "ClipGradByValue",
    "functional",
    "initializer",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
