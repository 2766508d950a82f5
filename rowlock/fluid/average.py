"""``fluid.average``."""

from ..executor.metrics.metrics import WeightedAverage
from ..names import listing, missing

__all__ = ["WeightedAverage"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
