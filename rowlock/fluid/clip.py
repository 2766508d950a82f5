"""``fluid.clip``."""

from ..graph.training.clip import (
    BaseErrorClipAttr,
    ErrorClipByValue,
    GradientClipBase,
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
    append_gradient_clip_ops,
    error_clip_callback,
    set_gradient_clip,
)
from ..names import listing, missing

ClipByGlobalNorm = GradientClipByGlobalNorm
ClipByNorm = GradientClipByNorm
ClipByValue = GradientClipByValue

__all__ = [
    "BaseErrorClipAttr",
    "ClipByGlobalNorm",
    "ClipByNorm",
    "ClipByValue",
    "ErrorClipByValue",
    "GradientClipBase",
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
    "append_gradient_clip_ops",
    "error_clip_callback",
    "set_gradient_clip",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
