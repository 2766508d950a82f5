"""``fluid.contrib.layers``."""

from ...graph.layers.binary import fused_elemwise_activation
from ...names import listing, missing

__all__ = ["fused_elemwise_activation"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
