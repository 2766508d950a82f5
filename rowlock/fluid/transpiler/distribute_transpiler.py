"""``fluid.transpiler.distribute_transpiler``."""

from ...graph.transpiler.config import DistributeTranspilerConfig as DistributeTranspilerConfig
from ...graph.transpiler.distribute import DistributeTranspiler as DistributeTranspiler
from ...graph.transpiler.slices import VarBlock as VarBlock
from ...graph.transpiler.slices import slice_variable as slice_variable
from ...graph.transpiler.topology import DistributedMode as DistributedMode
from ...names import publish_imports

publish_imports(__name__)
