"""``fluid.core``: errors, type numbers, and predictors, as programs name them."""

from typing import Any

from ..executor.device.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, gpu_count
from ..executor.device.tensor import LoDTensor, Tensor
from ..executor.feed.scope import Scope
from ..executor.inference.config import AnalysisConfig
from ..executor.inference.predictor import PaddlePredictor, create_paddle_predictor
from ..executor.inference.tensors import (
    PaddleBuf,
    PaddleDType,
    PaddleTensor,
    ZeroCopyTensor,
    paddle_dtype_size,
    paddle_tensor_to_bytes,
)
from ..graph.program import role
from ..graph.program.formats.inference import stamp_versions
from ..graph.program.program import Program
from ..graph.program.program_graph import ProgramGraph as Graph
from ..names import publish_listed
from ..strategies.errors import EnforceNotMet, EOFException
from ..strategies.flags import FLAGS, flag_value
from ..strategies.types import VarType


class VarDesc:
    """Home of :class:`VarType`, as in Paddle."""

    VarType = VarType


class op_proto_and_checker_maker:
    """Names of the attributes that every op has, and the roles of ops."""

    OpRole = role.OpRole

    @staticmethod
    def kOpRoleAttrName() -> str:
        """Return the name of the attribute that holds an op's role."""
        return role.ROLE

    @staticmethod
    def kOpRoleVarAttrName() -> str:
        """Return the name of the attribute that holds a parameter and its gradient, by turns."""
        return role.ROLE_VAR

    @staticmethod
    def kOpNameScopeAttrName() -> str:
        """Return the name of the attribute that holds an op's name scope."""
        return role.NAMESCOPE

    @staticmethod
    def kOpCreationCallstackAttrName() -> str:
        """Return the name of the attribute that holds the lines that built an op."""
        return role.CALLSTACK

    @staticmethod
    def kOpDeviceAttrName() -> str:
        """Return the name of the attribute that holds the device that an op is to run on."""
        return role.DEVICE


class _Globals:
    """The global flags, read by name."""

    def __getitem__(self, name: str) -> Any:
        return flag_value(name)

    def __contains__(self, name: str) -> bool:
        return name in FLAGS

    def keys(self) -> list[str]:
        """Return the names of all flags."""
        return list(FLAGS)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a flag's value, or ``default`` if there is no such flag."""
        return flag_value(name) if name in FLAGS else default

    def is_public(self, name: str) -> bool:
        """Tell whether programs may set a flag: all may be set."""
        return name in FLAGS


def save_op_compatible_info(desc: Program) -> bool:
    """Write into ``program.desc`` what a saved model says of the Paddle that can run it, and return True.

    ``save_inference_model`` does it by itself.
    """
    stamp_versions(desc)
    return True


AnalysisPredictor = PaddlePredictor
_globals = _Globals()


def globals() -> _Globals:
    """Return the global flags."""
    return _globals


def is_compiled_with_cuda() -> bool:
    """Return whether there is a GPU, here or in the cluster."""
    return gpu_count() > 0


def get_cuda_device_count() -> int:
    """Return how many GPUs there are, here or in the cluster."""
    return gpu_count()


__all__ = [
    "AnalysisConfig",
    "AnalysisPredictor",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "Graph",
    "LoDTensor",
    "PaddleBuf",
    "PaddleDType",
    "PaddlePredictor",
    "PaddleTensor",
    "Scope",
    "Tensor",
    "VarDesc",
    "VarType",
    "ZeroCopyTensor",
    "create_paddle_predictor",
    "get_cuda_device_count",
    "globals",
    "is_compiled_with_cuda",
    "op_proto_and_checker_maker",
    "paddle_dtype_size",
    "paddle_tensor_to_bytes",
    "save_op_compatible_info",
]

publish_listed(__name__)
