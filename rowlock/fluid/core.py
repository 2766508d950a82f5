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
from ..strategies.errors import EnforceNotMet, EOFException, InvalidType
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


class Place:
    """Any place, as told by :meth:`set_place`."""

    def __init__(self) -> None:
        self._place: Any = None

    def set_place(self, place: Any) -> None:
        """Say which place it is.

        Raises:
            InvalidType: another value than a place.
        """
        if not isinstance(place, (CPUPlace, CUDAPlace, CUDAPinnedPlace)):
            raise InvalidType(f"set_place takes a place such as CPUPlace(), got {place!r}.")
        self._place = place

    def is_cpu_place(self) -> bool:
        """Tell whether it is a CPU."""
        return isinstance(self._place, CPUPlace)

    def is_gpu_place(self) -> bool:
        """Tell whether it is a GPU."""
        return isinstance(self._place, CUDAPlace)

    def is_cuda_pinned_place(self) -> bool:
        """Tell whether it is page-locked memory."""
        return isinstance(self._place, CUDAPinnedPlace)

    def gpu_device_id(self) -> int:
        """Return the number of the GPU.

        Raises:
            InvalidType: it is no GPU.
        """
        if not isinstance(self._place, CUDAPlace):
            raise InvalidType(f"gpu_device_id: {self._place!r} is no GPU.")
        return self._place.device_id


class LoDTensorArray(list[LoDTensor]):
    """Tensors one behind the other, as a list."""

    def append(self, tensor: LoDTensor) -> None:
        """Add a tensor.

        Raises:
            InvalidType: another value than a tensor.
        """
        if not isinstance(tensor, LoDTensor):
            raise InvalidType(
                f"LoDTensorArray.append takes a LoDTensor, got {type(tensor).__name__}."
            )
        super().append(tensor)


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


def is_compiled_with_dist() -> bool:
    """Return True: parameter servers and several hosts are there."""
    return True


def is_compiled_with_brpc() -> bool:
    """Return False: servers and trainers have a protocol of their own."""
    return False


def is_compiled_with_mkldnn() -> bool:
    """Return whether oneDNN is there."""
    from ..executor.kernels.capabilities import installed

    return "onednn" in installed()


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
    "LoDTensorArray",
    "PaddleBuf",
    "PaddleDType",
    "PaddlePredictor",
    "PaddleTensor",
    "Place",
    "Scope",
    "Tensor",
    "VarDesc",
    "VarType",
    "ZeroCopyTensor",
    "create_paddle_predictor",
    "get_cuda_device_count",
    "globals",
    "is_compiled_with_brpc",
    "is_compiled_with_cuda",
    "is_compiled_with_dist",
    "is_compiled_with_mkldnn",
    "op_proto_and_checker_maker",
    "paddle_dtype_size",
    "paddle_tensor_to_bytes",
    "save_op_compatible_info",
]

publish_listed(__name__)
