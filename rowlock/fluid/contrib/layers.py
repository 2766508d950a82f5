"""``fluid.contrib.layers``."""

from ...graph.layers.binary import fused_elemwise_activation
from ...graph.layers.draws import shuffle_batch
from ...graph.layers.moves import partial_concat, partial_sum
from ...names import listing, missing

__all__ = ["fused_elemwise_activation", "partial_concat", "partial_sum", "shuffle_batch"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
