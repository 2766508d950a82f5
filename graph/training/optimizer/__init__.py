"""Optimizers: append the backward pass, clipping, weight decay and one update op per parameter.

Around them: averages of parameters (``averages.py``), and optimizers that wrap another (``wrappers.py``), some
of which let updates count in some steps only (``choice.py``).
"""

from . import methods
from .averages import ExponentialMovingAverage, ModelAverage
from .decoupled import extend_with_decoupled_weight_decay as extend_with_decoupled_weight_decay
from .methods import *  # noqa: F403 - the list is kept there
from .wrappers import (
    GradientMergeOptimizer,
    LookaheadOptimizer,
    RecomputeOptimizer,
)
from .wrappers import (
    LookAhead as LookAhead,
)

__all__ = [
    *methods.__all__,
    "ExponentialMovingAverage",
    "GradientMergeOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "RecomputeOptimizer",
]
