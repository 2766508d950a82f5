"""``fluid.average``."""

from ..executor.metrics.metrics import WeightedAverage as WeightedAverage
from ..names import publish_imports

publish_imports(__name__)
