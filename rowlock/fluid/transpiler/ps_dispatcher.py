"""``fluid.transpiler.ps_dispatcher``: which server has which variable."""

from ...graph.transpiler.dispatch import HashName, PSDispatcher, RoundRobin
from ...names import listing, missing

__all__ = ["HashName", "PSDispatcher", "RoundRobin"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
