"""What goes into a predictor, and what comes out."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import BFLOAT16
from ..device.tensor import Tensor


class PaddleDType(enum.IntEnum):
    """Types of elements, by the numbers of Paddle's inference library."""

    __str__ = enum.Enum.__str__

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2
    UINT8 = 3
    INT8 = 4
    FLOAT16 = 5
    BOOL = 6
    FLOAT64 = 7
    BFLOAT16 = 8


_DTYPES = {
    member: BFLOAT16 if member.name == "BFLOAT16" else np.dtype(member.name.lower())
    for member in PaddleDType
}
_MEMBERS = {dtype: member for member, dtype in _DTYPES.items()}


def paddle_dtype_size(dtype: PaddleDType) -> int:
    """Return how many bytes an element has."""
    return _DTYPES[dtype].itemsize


def _array_of(data: Any, owner: str) -> np.ndarray:
    array = np.ascontiguousarray(data)
    if array.dtype not in _MEMBERS:
        raise InvalidType(f"{owner} holds numbers, got elements of {array.dtype}.")
    return array


class PaddleBuf:
    """Bytes: those of an array or of a list of numbers (float32), or as many zeros as an int says."""

    def __init__(self, data: Any = 0) -> None:
        self._bytes = np.zeros(0, np.uint8)
        self.reset(np.zeros(data, np.uint8) if isinstance(data, int) else data)

    def reset(self, data: Any) -> None:
        """Take the bytes of an array, or of a list as float32."""
        array = data if isinstance(data, np.ndarray) else np.asarray(data, np.float32)
        self._bytes = _array_of(array, "PaddleBuf").reshape(-1).view(np.uint8)

    def resize(self, size: int) -> None:
        """Be ``size`` zeros from now on."""
        self._bytes = np.zeros(size, np.uint8)

    def empty(self) -> bool:
        """Tell whether there are no bytes."""
        return not self._bytes.size

    def length(self) -> int:
        """Return the number of bytes."""
        return self._bytes.size

    def view(self, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the bytes as elements, which are not copied.

        Raises:
            InvalidValue: the bytes are no whole number of elements.
        """
        if self._bytes.size % dtype.itemsize:
            raise InvalidValue(
                f"PaddleBuf: {self._bytes.size} bytes are no whole number of {dtype}."
            )
        return self._bytes.view(dtype)

    def float_data(self) -> list[float]:
        """Return the bytes as numbers of float32."""
        return self.view(np.dtype(np.float32)).tolist()

    def int64_data(self) -> list[int]:
        """Return the bytes as numbers of int64."""
        return self.view(np.dtype(np.int64)).tolist()

    def int32_data(self) -> list[int]:
        """Return the bytes as numbers of int32."""
        return self.view(np.dtype(np.int32)).tolist()

    def tolist(self, dtype: str) -> list[Any]:
        """Return the bytes as numbers of a dtype, such as ``"float32"``."""
        return self.view(np.dtype(dtype)).tolist()


class PaddleTensor:
    """An array under a name, maybe rows of sequences, for ``PaddlePredictor.run``.

    Args:
        data: an array, or a list of numbers.
        name: the variable that it is fed to, if the config takes tensors by name.
        lod: offsets of sequences, per level.
        copy: False shares the memory of a contiguous array.
    """

    def __init__(
        self, data: Any = None, name: str = "", lod: Sequence[Sequence[int]] = (), copy: bool = True
    ) -> None:
        array = _array_of(np.zeros(0, np.float32) if data is None else data, "PaddleTensor")
        self.name = name
        self.shape = [] if data is None else list(array.shape)
        self.lod = [list(level) for level in lod]
        self.dtype = _MEMBERS[array.dtype]
        self.data = PaddleBuf(array.copy() if copy else array)

    def __repr__(self) -> str:
        return f"<PaddleTensor {self.name!r}: {self.dtype.name.lower()}{self.shape}>"

    def as_ndarray(self) -> np.ndarray:
        """Return the array, whose memory is the tensor's.

        Raises:
            InvalidValue: ``data`` has another number of elements than ``shape``.
        """
        elements = self.data.view(_DTYPES[self.dtype])
        if elements.size != np.prod(self.shape, dtype=int):
            raise InvalidValue(
                f"PaddleTensor {self.name!r}: {elements.size} elements do not have the shape {self.shape}."
            )
        return elements.reshape(self.shape)


def paddle_tensor_to_bytes(tensor: PaddleTensor) -> bytes:
    """Return the bytes of a tensor's elements."""
    return tensor.as_ndarray().tobytes()


class ZeroCopyTensor:
    """A variable that a predictor feeds or fetches."""

    def __init__(self, name: str) -> None:
        self._tensor = Tensor(name)

    def __repr__(self) -> str:
        shape = self.shape() if self._tensor.initialized else "no value yet"
        return f"<ZeroCopyTensor {self.name()!r}: {shape}>"

    def name(self) -> str:
        """Return the variable's name."""
        return self._tensor.name

    def value(self) -> Tensor:
        """Return the tensor that is fed, or was fetched."""
        return self._tensor

    def copy_from_cpu(self, data: Any) -> None:
        """Write a value; its sequences are those of ``set_lod`` after that."""
        self._tensor.set_lod([])
        self._tensor.set(data)

    def copy_to_cpu(self) -> np.ndarray:
        """Return a copy of the value.

        Raises:
            NotInitialized: the predictor was not run yet.
        """
        return self._tensor.memory().copy()

    def reshape(self, shape: Sequence[int]) -> None:
        """Give the value another shape: zeros of float32 if it has another number of elements, or none yet."""
        shape = tuple(shape)
        old = self._tensor.memory() if self._tensor.initialized else np.zeros(0, np.float32)
        same = old.size == np.prod(shape, dtype=int)
        self._tensor.set_lod([])
        self._tensor.set(old.reshape(shape) if same else np.zeros(shape, old.dtype))

    def shape(self) -> list[int]:
        """Return the shape of the value."""
        return self._tensor.shape()

    def type(self) -> PaddleDType:
        """Return the type of the elements."""
        return _MEMBERS[self._tensor.memory().dtype]

    def lod(self) -> list[list[int]]:
        """Return the offsets of sequences, per level."""
        return self._tensor.lod()

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Say where sequences begin and end, after the value was written."""
        self._tensor.set_lod(lod)
