"""``fluid.regularizer``."""

from ..graph.layers.regularizer import L1Decay, L1DecayRegularizer, L2Decay, L2DecayRegularizer
from ..names import listing, missing

__all__ = ["L1Decay", "L1DecayRegularizer", "L2Decay", "L2DecayRegularizer"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
