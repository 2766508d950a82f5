"""``fluid.layers.metric_op``: metrics that ops compute."""

from ...graph.layers.loss import (
    accuracy,
)
from ...names import listing, missing

__all__ = [
    "accuracy",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
