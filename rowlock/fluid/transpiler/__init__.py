"""``fluid.transpiler``."""

from ...graph.transpiler.config import DistributeTranspilerConfig as DistributeTranspilerConfig
from ...graph.transpiler.dispatch import HashName as HashName
from ...graph.transpiler.dispatch import PSDispatcher as PSDispatcher
from ...graph.transpiler.dispatch import RoundRobin as RoundRobin
from ...graph.transpiler.distribute import DistributeTranspiler as DistributeTranspiler
from ...graph.transpiler.memory_optimize import memory_optimize as memory_optimize
from ...graph.transpiler.memory_optimize import release_memory as release_memory
from ...names import publish_imports
from . import details as details
from . import distribute_transpiler as distribute_transpiler
from . import geo_sgd_transpiler as geo_sgd_transpiler
from . import ps_dispatcher as ps_dispatcher

publish_imports(__name__, details, distribute_transpiler, geo_sgd_transpiler, ps_dispatcher)
