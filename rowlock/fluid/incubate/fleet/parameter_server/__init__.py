"""``fluid.incubate.fleet.parameter_server``: workers that train, servers that keep parameters."""

from .....names import listing, missing
from . import distribute_transpiler, pslib

__all__ = ["distribute_transpiler", "pslib"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
