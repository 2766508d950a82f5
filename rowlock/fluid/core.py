"""``fluid.core``: the errors and type numbers that programs name."""

from ..executor.place import CPUPlace, CUDAPlace
from ..executor.scope import Scope
from ..executor.tensor import LoDTensor
from ..graph.program_graph import ProgramGraph as Graph
from ..strategies.errors import EnforceNotMet, EOFException
from ..strategies.types import VarType


class VarDesc:
    """Home of :class:`VarType`, as in Paddle."""

    VarType = VarType


def is_compiled_with_cuda() -> bool:
    """Return whether GPU places can be used."""
    return False


__all__ = [
    "CPUPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "Graph",
    "LoDTensor",
    "Scope",
    "VarDesc",
    "VarType",
    "is_compiled_with_cuda",
]
