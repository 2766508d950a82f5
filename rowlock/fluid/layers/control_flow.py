"""``fluid.layers.control_flow``: comparisons and counters."""

from ...graph.layers.binary import (
    equal,
    greater_equal,
    greater_than,
    less_equal,
    less_than,
    not_equal,
)
from ...graph.layers.matrices import is_empty
from ...graph.layers.shape import increment
from ...names import listing, missing

__all__ = [
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "is_empty",
    "less_equal",
    "less_than",
    "not_equal",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
