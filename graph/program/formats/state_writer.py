"""Arrays by name as a pickle (``.pdparams``, ``.pdopt``).

Protocol 2 is written byte by byte as Paddle 1.8.5 does; 3 and 4 have raw bytes.

Python's pickler would name NumPy 2's modules, which the NumPy of Paddle 1.8.5 does not have, and hold all
of it in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from ....strategies.errors import InvalidValue
from ....strategies.types import BFLOAT16
from .tensors import as_bytes

_BATCH = 1000  # entries of a dict that one instruction stores
_CHUNK = 1 << 20
_LONGEST = (1 << 32) - 1  # bytes of one string before protocol 4


def write_state(file: BinaryIO, arrays: Mapping[str, np.ndarray], protocol: int = 2) -> None:
    """Write arrays by name as one pickle.

    Raises:
        InvalidValue: ``protocol`` is not 2, 3 or 4, or an array is too large for it.
    """
    if protocol not in (2, 3, 4):
        raise InvalidValue(f"protocol must be 2, 3 or 4, got {protocol!r}.")
    _Writer(file, protocol).write(arrays)


class _Writer:
    """Emits the instructions; refers to objects that were emitted before by their numbers."""

    def __init__(self, file: BinaryIO, protocol: int) -> None:
        self._file = file
        self._protocol = protocol
        self._numbers: dict[object, int] = {}
        self._count = 0

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the whole pickle."""
        self._emit(b"\x80" + bytes((self._protocol,)) + b"}")
        self._remember()
        items = list(arrays.items())
        for begin in range(0, len(items), _BATCH):
            batch = items[begin : begin + _BATCH]
            self._emit(b"(" if len(batch) > 1 else b"")
            for name, array in batch:
                self._text(name)
                self._array(array)
            self._emit(b"u" if len(batch) > 1 else b"s")
        self._emit(b".")

    def _emit(self, data: bytes) -> None:
        self._file.write(data)

    def _remember(self, key: object = None) -> None:
        """Number the object on top of the stack; ``key`` identifies it later."""
        if key is not None:
            self._numbers[key] = self._count
        number, self._count = self._count, self._count + 1
        self._emit(b"q" + bytes((number,)) if number < 256 else b"r" + struct.pack("<I", number))

    def _again(self, key: object) -> bool:
        """Refer to the object of a key if it was emitted before; return False if it was not."""
        number = self._numbers.get(key)
        if number is None:
            return False
        self._emit(b"h" + bytes((number,)) if number < 256 else b"j" + struct.pack("<I", number))
        return True

    def _global(self, name: str) -> None:
        if not self._again(("global", name)):
            self._emit(b"c" + name.replace(" ", "\n").encode() + b"\n")
            self._remember(("global", name))

    def _shared(self, text: str) -> None:
        """Emit a string that Python keeps once."""
        if not self._again(("text", text)):
            self._text(text, ("text", text))

    def _text(self, text: str, key: object = None) -> None:
        if len(text) == 1 and text < "\x80":  # Python keeps these once, too
            key = ("text", text)
            if self._again(key):
                return
        data = text.encode("utf-8", "surrogatepass")
        self._emit(b"X" + struct.pack("<I", len(data)) + data)
        self._remember(key)

    def _integer(self, value: int) -> None:
        if 0 <= value < 256:
            self._emit(b"K" + bytes((value,)))
        elif 0 <= value < 65536:
            self._emit(b"M" + struct.pack("<H", value))
        elif -(1 << 31) <= value < 1 << 31:
            self._emit(b"J" + struct.pack("<i", value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self._emit(b"\x8a" + bytes((len(data),)) + data)

    def _array(self, array: np.ndarray) -> None:
        array = array.view(np.uint16) if array.dtype == BFLOAT16 else array
        array = np.ascontiguousarray(array).reshape(array.shape)
        self._global("numpy.core.multiarray _reconstruct")
        self._global("numpy ndarray")
        self._emit(b"K\x00\x85")
        self._remember()
        if not self._again("b"):
            self._bytes(np.frombuffer(b"b", np.uint8), "b")
        self._emit(b"\x87")
        self._remember()
        self._emit(b"R")
        self._remember()
        self._emit(b"(K\x01")
        self._shape(array.shape)
        self._dtype(array.dtype)
        self._emit(b"\x89")
        self._bytes(array.reshape(-1).view(np.uint8))
        self._emit(b"t")
        self._remember()
        self._emit(b"b")

    def _shape(self, shape: tuple[int, ...]) -> None:
        if not shape:
            return self._emit(b")")
        self._emit(b"(" if len(shape) > 3 else b"")
        for dim in shape:
            self._integer(dim)
        self._emit({1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(shape), b"t"))
        return self._remember()

    def _dtype(self, dtype: np.dtype) -> None:
        code = dtype.newbyteorder("<").str
        if self._again(("dtype", code)):
            return
        self._global("numpy dtype")
        self._text(code[1:])
        self._emit(b"\x89\x88\x87")
        self._remember()
        self._emit(b"R")
        self._remember(("dtype", code))
        self._emit(b"(K\x03")
        self._shared(code[0])
        self._emit(b"NNN" + 2 * (b"J" + struct.pack("<i", -1)) + b"K\x00t")
        self._remember()
        self._emit(b"b")

    def _bytes(self, data: np.ndarray, key: object = None) -> None:
        """Emit bytes: protocol 2 has none, and spells them as text whose characters are decoded."""
        if self._protocol > 2:
            long = data.size > _LONGEST
            self._check(data.size, _LONGEST if self._protocol == 3 else 1 << 62)
            self._emit(
                b"\x8e" + struct.pack("<Q", data.size)
                if long
                else b"B" + struct.pack("<I", data.size)
            )
            if data.size:
                self._file.write(as_bytes(data))
            return self._remember(key)
        if not data.size:
            self._global("__builtin__ bytes")
            self._emit(b")R")
            return self._remember(key)
        self._global("_codecs encode")
        self._characters(data)
        self._shared("latin1")
        self._emit(b"\x86")
        self._remember()
        self._emit(b"R")
        return self._remember(key)

    def _characters(self, data: np.ndarray) -> None:
        size = data.size + int(np.count_nonzero(data > 127))
        self._check(size, _LONGEST)
        if data.size == 1:
            return self._shared(chr(data[0]))
        self._emit(b"X" + struct.pack("<I", size))
        for begin in range(0, data.size, _CHUNK):
            part = data[begin : begin + _CHUNK].tobytes()
            self._emit(part.decode("latin1").encode())
        return self._remember()

    def _check(self, size: int, longest: int) -> None:
        if size > longest:
            raise InvalidValue(
                f"an array takes {size:,} bytes, more than protocol {self._protocol} has for one: save with "
                f"protocol=4, or with save_persistables."
            )
