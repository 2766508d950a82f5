"""``fluid.incubate``."""

from ...names import listing, missing
from . import data_generator

__all__ = ["data_generator"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
