"""``paddle.regularizer``: weight decay."""

from .graph.layers.regularizer import L1Decay, L2Decay
from .names import listing, missing

__all__ = ["L1Decay", "L2Decay"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
