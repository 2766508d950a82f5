"""``fluid.backward``."""

from ..graph.training.backward import append_backward, gradients
from ..names import listing, missing

__all__ = ["append_backward", "gradients"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
