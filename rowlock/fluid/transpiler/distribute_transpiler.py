"""``fluid.transpiler.distribute_transpiler``."""

from ...graph.transpiler.config import DistributeTranspilerConfig
from ...graph.transpiler.distribute import DistributeTranspiler
from ...graph.transpiler.slices import VarBlock, slice_variable
from ...graph.transpiler.topology import DistributedMode
from ...names import listing, missing

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "DistributedMode",
    "VarBlock",
    "slice_variable",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
