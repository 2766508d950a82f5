"""``fluid.layers.metric_op``: metrics that ops compute."""

from ...graph.layers.loss import accuracy as accuracy
from ...graph.layers.metric import auc as auc
from ...names import publish_imports

publish_imports(__name__)
