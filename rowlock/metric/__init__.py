"""``paddle.metric``: measures over batches."""

from ..executor.metrics.step_metrics import Accuracy, Auc, Metric, Precision, Recall
from ..graph.layers.loss import accuracy as _accuracy
from ..graph.program.variable import Variable
from ..names import publish_listed


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return the share of samples whose label is among the ``k`` best scored: shape [1]."""
    return _accuracy(input, label, k, correct, total)


__all__ = ["Accuracy", "Auc", "Metric", "Precision", "Recall", "accuracy"]

publish_listed(__name__)
