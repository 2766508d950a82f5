"""Optimizers: append the backward pass, clipping, weight decay and one update op per parameter."""

from . import by_norm, dgc, methods
from .by_norm import *  # noqa: F403 - each module has its list
from .dgc import *  # noqa: F403
from .methods import *  # noqa: F403

__all__ = sorted([*methods.__all__, *by_norm.__all__, *dgc.__all__])
