"""Optimizers: append the backward pass, clipping, weight decay and one update op per parameter."""

from .methods import *  # noqa: F403 - the list is kept there
from .methods import __all__ as __all__
