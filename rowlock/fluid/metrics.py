"""``fluid.metrics``: metrics that the driver accumulates over batches."""

from ..executor.metrics.metrics import (
    Accuracy,
    Auc,
    ChunkEvaluator,
    CompositeMetric,
    EditDistance,
    MetricBase,
    Precision,
    Recall,
)
from ..names import listing, missing

__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "EditDistance",
    "MetricBase",
    "Precision",
    "Recall",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
