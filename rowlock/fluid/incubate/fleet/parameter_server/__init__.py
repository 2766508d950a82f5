"""``fluid.incubate.fleet.parameter_server``: workers that train, servers that keep parameters."""

from .....names import publish_imports
from . import distribute_transpiler as distribute_transpiler
from . import pslib as pslib

publish_imports(__name__, distribute_transpiler, pslib)
