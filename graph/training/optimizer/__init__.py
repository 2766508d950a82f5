"""Optimizers: append the backward pass, clipping, weight decay and one update op per parameter.

Around them: averages of parameters (``averages.py``), and optimizers that wrap another (``wrappers.py``), some
of which let updates count in some steps only (``choice.py``).
"""

from . import by_norm, dgc, methods
from .averages import ExponentialMovingAverage, ModelAverage
from .by_norm import *  # noqa: F403 - each module has its list
from .decoupled import extend_with_decoupled_weight_decay as extend_with_decoupled_weight_decay
from .dgc import *  # noqa: F403
from .methods import *  # noqa: F403
from .wrappers import GradientMergeOptimizer, LookaheadOptimizer, RecomputeOptimizer
from .wrappers import LookAhead as LookAhead

__all__ = [
    *methods.__all__,
    *by_norm.__all__,
    *dgc.__all__,
    "ExponentialMovingAverage",
    "GradientMergeOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "RecomputeOptimizer",
]
