"""``fluid.layers.distributions``."""

from ...graph.layers.distributions import Categorical, MultivariateNormalDiag, Normal, Uniform
from ...names import listing, missing

__all__ = [
    "Categorical",
    "MultivariateNormalDiag",
    "Normal",
    "Uniform",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
