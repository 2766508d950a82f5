"""``fluid.metrics``: metrics that the driver accumulates over batches."""

from ..executor.metrics.detection_map import DetectionMAP as DetectionMAP
from ..executor.metrics.metrics import Accuracy as Accuracy
from ..executor.metrics.metrics import Auc as Auc
from ..executor.metrics.metrics import ChunkEvaluator as ChunkEvaluator
from ..executor.metrics.metrics import CompositeMetric as CompositeMetric
from ..executor.metrics.metrics import EditDistance as EditDistance
from ..executor.metrics.metrics import MetricBase as MetricBase
from ..executor.metrics.metrics import Precision as Precision
from ..executor.metrics.metrics import Recall as Recall
from ..names import publish_imports

publish_imports(__name__)
