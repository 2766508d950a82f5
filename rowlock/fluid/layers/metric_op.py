"""``fluid.layers.metric_op``: metrics that ops compute."""

from ...graph.layers.loss import accuracy
from ...graph.layers.metric import auc
from ...names import listing, missing

__all__ = [
    "accuracy",
    "auc",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
