"""Settings of ``paddle`` for a whole process: the default element type, the device, the seed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from ..executor.cuda import cudnn
from ..executor.device.place import (
    CPUPlace,
    CUDAPlace,
    cuda_places,
    default_place,
    set_default_place,
)
from ..graph.program.program import Program
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidType, InvalidValue, require_type
from ..strategies.types import FLOATS, INTEGERS, VarType, to_numpy, to_var_type

_default_dtype = "float32"


def set_default_dtype(d: Any) -> None:
    """Set the element type of tensors that are created without one.

    Raises:
        InvalidType: it is no float type.
    """
    global _default_dtype
    try:
        kind = to_var_type(d)
    except InvalidValue:
        kind = None
    if kind not in FLOATS:
        raise InvalidType(
            f"set_default_dtype takes float16, bfloat16, float32 or float64, got {d!r}."
        )
    _default_dtype = to_numpy(kind).name


def get_default_dtype() -> str:
    """Return the name of the element type of tensors that are created without one."""
    return _default_dtype


def dtype_or_default(dtype: Any) -> Any:
    """Return ``dtype``, or the default where it is None."""
    return _default_dtype if dtype is None else dtype


class finfo:
    """The limits of an element type of floats: ``paddle.finfo("float16").min``.

    ``eps`` is the step from 1 to the next number, ``resolution`` the least decimal step that is held, and
    ``tiny``, or ``smallest_normal``, the least number with all its bits.

    Raises:
        InvalidValue: ``dtype`` holds no floats.
    """

    def __init__(self, dtype: Any) -> None:
        element_type = _element_type("finfo", dtype, FLOATS, "floats")
        limits: Any = ml_dtypes.finfo(element_type)  # type: ignore[no-untyped-call]
        self.dtype, self.bits = element_type.name, limits.bits
        self.min, self.max, self.eps = float(limits.min), float(limits.max), float(limits.eps)
        self.tiny = self.smallest_normal = float(limits.tiny)
        self.resolution = 10.0**-limits.precision


class iinfo:
    """The limits of an element type of integers: ``paddle.iinfo("int32").max``.

    Raises:
        InvalidValue: ``dtype`` holds no integers.
    """

    def __init__(self, dtype: Any) -> None:
        element_type = _element_type("iinfo", dtype, INTEGERS, "integers")
        limits = np.iinfo(element_type)
        self.dtype, self.bits = element_type.name, limits.bits
        self.min, self.max = int(limits.min), int(limits.max)


def _element_type(function: str, dtype: Any, kinds: Collection[VarType], text: str) -> np.dtype:
    kind = to_var_type(dtype)
    if kind not in kinds:
        raise InvalidValue(
            f"{function}: dtype must hold {text}, such as {to_numpy(min(kinds)).name!r}, got {dtype!r}."
        )
    return to_numpy(kind)


def get_cudnn_version() -> int | None:
    """Return cuDNN's version as its header has it (90100 is 9.1.0, 8907 is 8.9.7); None where it is not."""
    text = cudnn.version().partition(" ")[0]
    if not text:
        return None
    major, minor, patch = (int(part) for part in text.split(".")[:3])
    return major * (10000 if major >= 9 else 1000) + minor * 100 + patch


def set_device(device: str) -> CPUPlace | CUDAPlace:
    """Set the place of executors that are created without one: ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.

    Raises:
        InvalidType: ``device`` is no string.
        InvalidValue: it names no device, or a GPU that is not there.
    """
    require_type(device, str, "set_device takes a str such as 'cpu' or 'gpu:0'")
    kind, _, number = device.lower().partition(":")
    if kind not in ("cpu", "gpu") or (number and (kind == "cpu" or not number.isdigit())):
        raise InvalidValue(f"set_device: {device!r} is no device; use 'cpu', 'gpu' or 'gpu:0'.")
    place = CPUPlace() if kind == "cpu" else cuda_places([int(number or 0)])[0]
    set_default_place(place)
    return place


def get_device() -> str:
    """Return the device of executors that are created without a place, such as ``"cpu"`` or ``"gpu:0"``."""
    place = default_place()
    return f"gpu:{place.device_id}" if isinstance(place, CUDAPlace) else "cpu"


def seed(seed: int) -> None:
    """Seed the default programs and all that are created from now on.

    Raises:
        InvalidType: ``seed`` is no int.
    """
    Program.global_seed(seed)


def is_tensor(x: Any) -> bool:
    """Tell whether ``x`` is a Variable."""
    return isinstance(x, Variable)


def is_compiled_with_xpu() -> bool:
    """Return False: there is no code for Kunlun chips."""
    return False


@contextmanager
def no_grad() -> Iterator[None]:
    """Let no gradient flow through ops built inside (also as a decorator)."""
    from ..graph.program.program import default_main_program

    block = default_main_program().current_block()
    count = len(block.ops)
    yield
    for op in block.ops[count:]:
        for name in op.output_arg_names:
            block.var_recursive(name).stop_gradient = True


publish_definitions(__name__, withhold=(dtype_or_default, get_cudnn_version, is_compiled_with_xpu))
