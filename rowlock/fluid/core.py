"""``fluid.core``: the errors and type numbers that programs name."""

from ..executor.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, gpu_count
from ..executor.scope import Scope
from ..executor.tensor import LoDTensor
from ..graph.program_graph import ProgramGraph as Graph
from ..strategies.errors import EnforceNotMet, EOFException
from ..strategies.types import VarType


class VarDesc:
    """Home of :class:`VarType`, as in Paddle."""

    VarType = VarType


def is_compiled_with_cuda() -> bool:
    """Return whether there is a GPU, here or in the cluster."""
    return gpu_count() > 0


def get_cuda_device_count() -> int:
    """Return how many GPUs there are, here or in the cluster."""
    return gpu_count()


__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "Graph",
    "LoDTensor",
    "Scope",
    "VarDesc",
    "VarType",
    "get_cuda_device_count",
    "is_compiled_with_cuda",
]
