"""``fluid.evaluator``."""

from ..executor.metrics.detection_map import DetectionMAP as DetectionMAP
from ..executor.metrics.evaluators import ChunkEvaluator as ChunkEvaluator
from ..executor.metrics.evaluators import EditDistance as EditDistance
from ..names import publish_imports

publish_imports(__name__)
