"""``fluid.evaluator``."""

from ..executor.metrics.evaluators import ChunkEvaluator, EditDistance
from ..names import listing, missing

__all__ = ["ChunkEvaluator", "EditDistance"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
