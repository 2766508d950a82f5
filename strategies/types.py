"""Data types that cross every room: Paddle's ``VarType`` numbers, and their NumPy dtypes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np

from .errors import InvalidValue


class VarType(IntEnum):
    """Paddle's numbering of variable kinds and element types (``framework.proto``)."""

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21
    BF16 = 22
    # The types below are read and written in programs; no value here has them.
    COMPLEX64 = 23
    COMPLEX128 = 24
    STRING = 25
    STRINGS = 26
    VOCAB = 27
    FEED_LIST = 28
    PSTRING = 29
    SPARSE_COO = 30
    SPARSE_CSR = 31
    FP8_E4M3FN = 32
    FP8_E5M2 = 33
    UINT16 = 36
    UINT32 = 37
    UINT64 = 38

    def __str__(self) -> str:
        """Return what Paddle prints: "paddle.float32", or of what is no element type "VarType.RAW"."""
        exact = _NUMPY.get(self)
        return f"VarType.{self.name}" if exact is None else f"paddle.{exact.name}"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


BFLOAT16: np.dtype = np.dtype(ml_dtypes.bfloat16)  # NumPy has none of its own; its kind is "V"

_NUMPY: dict[VarType, np.dtype] = {
    VarType.BOOL: np.dtype(np.bool_),
    VarType.INT16: np.dtype(np.int16),
    VarType.INT32: np.dtype(np.int32),
    VarType.INT64: np.dtype(np.int64),
    VarType.FP16: np.dtype(np.float16),
    VarType.FP32: np.dtype(np.float32),
    VarType.FP64: np.dtype(np.float64),
    VarType.UINT8: np.dtype(np.uint8),
    VarType.INT8: np.dtype(np.int8),
    VarType.BF16: BFLOAT16,
}
LOW_DTYPES = frozenset((np.dtype(np.float16), BFLOAT16))
_FROM_NUMPY = {dtype: var_type for var_type, dtype in _NUMPY.items()}

LOW = (VarType.FP16, VarType.BF16)  # computed in float32 and rounded once
FLOATS = (*LOW, VarType.FP32, VarType.FP64)
INTEGERS = (VarType.UINT8, VarType.INT8, VarType.INT16, VarType.INT32, VarType.INT64)


def to_var_type(dtype: Any) -> VarType:
    """Return the ``VarType`` for a NumPy dtype, its name, or a ``VarType``.

    Raises:
        InvalidValue: ``dtype`` names no element type that a tensor can have.
    """
    if isinstance(dtype, np.dtype) and dtype in _FROM_NUMPY:
        return _FROM_NUMPY[dtype]
    if isinstance(dtype, VarType):
        return dtype
    try:
        if type(dtype) is int:
            return VarType(dtype)
        return _FROM_NUMPY[np.dtype("None" if dtype is None else dtype)]  # to NumPy None is float64
    except (KeyError, TypeError, ValueError):
        names = ", ".join(sorted(str(d) for d in _FROM_NUMPY))
        raise InvalidValue(
            f"{dtype!r} is not an element type of a tensor. Use one of: {names}."
        ) from None


def to_numpy(dtype: VarType | int) -> np.dtype:
    """Return the NumPy dtype of an element type.

    Raises:
        InvalidValue: ``dtype`` is a kind of variable (``LOD_TENSOR``), not an element type.
    """
    exact = _NUMPY.get(dtype)  # type: ignore[arg-type]  # equal to its number
    if exact is not None:
        return exact
    try:
        return _NUMPY[VarType(dtype)]
    except (KeyError, ValueError):
        raise InvalidValue(f"{dtype!r} is not an element type of a tensor.") from None


ELEMENT_TYPES = frozenset(_FROM_NUMPY)  # the NumPy dtypes that elements of a tensor can have


def whole(number: float, dtype: np.dtype) -> int:
    """Return a number as an element of an integer type: cut at the point, then to its bits, as C does it."""
    least = int(np.iinfo(dtype).min)
    return (int(number) - least) % (1 << 8 * dtype.itemsize) + least


def is_float(dtype: np.dtype) -> bool:
    """Tell whether elements are floats, bfloat16 included."""
    return dtype.kind == "f" or dtype == BFLOAT16


def is_low(dtype: np.dtype) -> bool:
    """Tell whether elements are float16 or bfloat16."""
    return dtype in LOW_DTYPES
