"""``fluid.optimizer``."""

from ..graph.training.optimizer.averages import (
    ExponentialMovingAverage as ExponentialMovingAverage,
)
from ..graph.training.optimizer.averages import ModelAverage as ModelAverage
from ..graph.training.optimizer.by_norm import *
from ..graph.training.optimizer.dgc import *
from ..graph.training.optimizer.methods import *
from ..graph.training.optimizer.wrappers import GradientMergeOptimizer as GradientMergeOptimizer
from ..graph.training.optimizer.wrappers import LookaheadOptimizer as LookaheadOptimizer
from ..graph.training.optimizer.wrappers import RecomputeOptimizer as RecomputeOptimizer
from ..names import publish_imports

publish_imports(__name__)
