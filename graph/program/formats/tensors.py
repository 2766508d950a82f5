"""Values as Paddle's tensor streams: one tensor a file, or many behind each other without an index.

A stream is: version (u32, 0), LoD levels (u64 count; each a u64 size in bytes and u64 offsets), version
(u32, 0), size of a TensorDesc message (i32), the message, and the elements by rows. Little endian, without
padding.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ....strategies.errors import DamagedFile, InvalidValue
from ....strategies.types import to_numpy, to_var_type
from .messages import HEAD, TENSORS, damaged, decode, encode

LoD = tuple[tuple[int, ...], ...]
_LEVELS = 8  # more are damage
_RANK = 32  # more dimensions have no NumPy array
_DESCRIPTION = 16 + 11 * _RANK  # bytes of a TensorDesc of that rank


class Entry(NamedTuple):
    """One tensor of a file: the offset of its elements, and their shape and type."""

    shape: tuple[int, ...]
    dtype: np.dtype
    lod: LoD
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return _product(self.shape) * self.dtype.itemsize


def write_tensor(file: BinaryIO, array: np.ndarray, lod: Sequence[Sequence[int]] = ()) -> None:
    """Write one tensor at the end of a file.

    Raises:
        InvalidValue: Paddle has no such element type.
    """
    description = encode(
        "TensorDesc", {"data_type": int(to_var_type(array.dtype)), "dims": list(array.shape)}
    )
    head = [struct.pack("<IQ", 0, len(lod))]
    for level in lod:
        head.append(struct.pack(f"<Q{len(level)}Q", 8 * len(level), *level))
    head += (struct.pack("<Ii", 0, len(description)), description)
    file.write(b"".join(head))
    if array.size:
        file.write(as_bytes(np.ascontiguousarray(array)))


def as_bytes(array: np.ndarray) -> memoryview:
    """Return the memory of a contiguous array as bytes, without a copy."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


class TensorFile:
    """Reads the tensors of a file: first where all of them lie, then the elements of each.

    Sizes are compared with the file before memory is taken for them. ``label`` names the file in errors.
    """

    def __init__(self, file: BinaryIO, label: str) -> None:
        self._file = file
        self._label = label
        self._size = file.seek(0, 2)
        self._at = file.seek(0)
        self._names: Sequence[str] = ()
        self._number = 0  # of the tensor that is read

    def scan(self, names: Sequence[str]) -> list[Entry]:
        """Return where the tensors lie, which are those of variables in this order.

        Raises:
            DamagedFile: the file ends before the last of them, goes on behind it, or holds no tensors.
        """
        self._names, count, entries = names, len(names), []
        for self._number, name in enumerate(names):
            if self._at == self._size:
                raise DamagedFile(
                    f"{self._label} ends at byte {self._at} after {self._number} of {count} tensors, before "
                    f"{name!r}: it was saved from another program, or is cut off."
                )
            entries.append(self._entry())
        if self._at != self._size:
            raise DamagedFile(
                f"{self._label} goes on at byte {self._at} of {self._size}, behind the last of {count} "
                f"tensors: it was saved from a program with other variables."
            )
        return entries

    def read(self, entry: Entry, array: np.ndarray) -> None:
        """Read a tensor's elements into an array that fits (C order)."""
        if array.size == 0:
            return
        self._file.seek(entry.offset)
        rest = as_bytes(array)
        while rest:
            count = self._file.readinto(rest)  # type: ignore[attr-defined]  # of every binary file
            if not count:
                self._fail("it ends while it is read", entry.offset)
            rest = rest[count:]

    def _entry(self) -> Entry:
        self._expect_version("LoD tensor")
        lod = self._levels()
        self._expect_version("tensor")
        at = self._at
        (size,) = self._numbers("<i")
        if not 0 <= size <= _DESCRIPTION:
            self._fail(f"a tensor's description has {size} bytes", at)
        at = self._at
        message = decode("TensorDesc", self._take(size), f"{self._label}, from byte {at} on,")
        shape = tuple(message.get("dims", ()))
        if len(shape) > _RANK or any(dim < 0 for dim in shape):
            self._fail(f"a tensor has the shape {list(shape[:8])}", at)
        try:
            dtype = to_numpy(message["data_type"])
        except (KeyError, InvalidValue):
            self._fail(f"element type {message.get('data_type')} is none of a tensor", at)
        # Paddle 2.x has tensors without dimensions
        entry = Entry(shape or (1,), dtype, lod, self._at)
        if entry.nbytes > self._size - self._at:
            self._fail(
                f"a tensor {list(shape)} of {dtype} has {entry.nbytes:,} bytes, "
                f"{self._size - self._at:,} are left"
            )
        self._check_levels(entry, at)
        self._at = self._file.seek(self._at + entry.nbytes)
        return entry

    def _expect_version(self, of: str) -> None:
        at = self._at
        (version,) = self._numbers("<I")
        if version != 0:
            self._fail(f"version {version} of a {of}: there is only 0", at)

    def _levels(self) -> LoD:
        at = self._at
        (count,) = self._numbers("<Q")
        if count > _LEVELS:
            self._fail(f"a tensor has {count} LoD levels", at)
        levels = []
        for _ in range(count):
            at = self._at
            (size,) = self._numbers("<Q")
            if size % 8 or size < 16 or size > self._size - self._at:
                self._fail(f"a LoD level has {size} bytes", at)
            level = np.frombuffer(self._take(size), "<u8")
            if level[0] != 0 or np.any(level[1:] < level[:-1]):
                self._fail("the offsets of a LoD level do not rise from 0", at)
            levels.append(tuple(level.tolist()))
        return tuple(levels)

    def _check_levels(self, entry: Entry, at: int) -> None:
        below = entry.shape[0] if entry.shape else 1
        for level in reversed(entry.lod):
            if level[-1] != below:
                self._fail(f"a LoD level ends at {level[-1]}, there are {below} below it", at)
            below = len(level) - 1

    def _numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, size: int) -> bytes:
        if size > self._size - self._at:
            self._fail(f"{size} bytes are missing at its end")
        data = self._file.read(size)
        self._at += size
        return data

    def _fail(self, problem: str, at: int | None = None) -> None:
        which = (
            f"in tensor {self._number + 1} of {len(self._names)} ({self._names[self._number]!r}), "
        )
        self._file.seek(0)
        head = self._file.read(HEAD)
        raise damaged(self._label, self._at if at is None else at, which + problem, TENSORS, head)


def _product(shape: Sequence[int]) -> int:
    size = 1
    for dim in shape:
        size *= dim
    return size
