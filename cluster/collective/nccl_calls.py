"""Calls that put NCCL's work on streams: from arrays and names of ops to addresses, counts and numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...executor.cuda.runtime import Fork, Runtime
from ...strategies.errors import CollectiveError
from .combine import check_op
from .communicators import CommunicatorSet, NcclCommunicators

_OPS = {"sum": "SUM", "mean": "AVG", "product": "PROD", "min": "MIN", "max": "MAX"}
_KINDS = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)


class NcclCalls:
    """Each method returns a call for the rings' streams. ``broken()``: nobody will use what is put there."""

    def __init__(
        self, rings: NcclCommunicators, runtime: Runtime, rank: int, broken: Callable[[], Any]
    ) -> None:
        self._rings, self._runtime, self._rank, self._broken = rings, runtime, rank, broken
        self._nccl = runtime.nccl
        self._address = runtime.address

    def _fork(self, ring: int, inner: int, work: Callable[[CommunicatorSet], None]) -> Fork:
        key = self._rings.key(ring, inner)

        def step() -> None:
            path = self._rings.paths[key]
            if self._broken():
                return
            try:
                work(path)
            except Exception as error:
                if not self._broken():  # meanwhile
                    raise CollectiveError(f"rank {self._rank}: NCCL refused: {error}") from error

        return self._runtime.fork(self._rings.stream(ring), step)

    def all_reduce(self, array: Any, op: str, ring: int, inner: int) -> Fork:
        """Combine an array over the ranks."""
        row, kind, how = _row(array), self._type(array), self._op(op, array)

        def all_reduce(path: CommunicatorSet) -> None:
            address, stream = self._address(row), path.stream.ptr
            if path.across is None:
                path.world.allReduce(address, address, row.size, kind, how, stream)
            else:
                path.in_three_steps(address, row.size, row.itemsize, (kind, how, stream))

        return self._fork(ring, inner, all_reduce)

    def reduce_parts(
        self, array: Any, ends: Sequence[int], roots: Sequence[int], op: str, ring: int
    ) -> Fork:
        """Combine each part of an array into its root's."""
        row, kind, how = _row(array), self._type(array), self._op(op, array)
        parts = joined_parts(ends, roots)

        def reduce_parts(path: CommunicatorSet) -> None:
            begin = self._address(row)
            with self._together():
                for first, end, root in parts:
                    at = begin + first * row.itemsize
                    into = at if root == self._rank else 0
                    path.world.reduce(at, into, end - first, kind, how, root, path.stream.ptr)

        return self._fork(ring, 0, reduce_parts)

    def broadcast_parts(
        self, array: Any, ends: Sequence[int], roots: Sequence[int], ring: int
    ) -> Fork:
        """Copy each part of an array from its root's."""
        row, kind, each = _bytes(array), self._nccl.NCCL_UINT8, array.itemsize
        parts = joined_parts(ends, roots)

        def broadcast_parts(path: CommunicatorSet) -> None:
            begin = self._address(row)
            with self._together():
                for first, end, root in parts:
                    at, count = begin + first * each, (end - first) * each
                    path.world.broadcast(at, at, count, kind, root, path.stream.ptr)

        return self._fork(ring, 0, broadcast_parts)

    def all_gather(self, array: Any, into: Any) -> Fork:
        """Put everybody's bytes side by side."""
        row, kind = _bytes(array), self._nccl.NCCL_UINT8

        def all_gather(path: CommunicatorSet) -> None:
            ends = self._address(row), self._address(into)
            path.world.allGather(*ends, row.size, kind, path.stream.ptr)

        return self._fork(0, 0, all_gather)

    def reduce_scatter(self, arrays: Sequence[Any], into: Any, op: str) -> Fork:
        """Combine everybody's ``arrays[rank]`` into an array of that rank; they may differ in size."""
        rows = [_row(array) for array in arrays]
        kind, how = self._type(rows[0]), self._op(op, rows[0])

        def reduce_scatter(path: CommunicatorSet) -> None:
            with self._together():
                for root, row in enumerate(rows):
                    at = self._address(row)
                    own = self._address(into) if root == self._rank else 0
                    path.world.reduce(at, own, row.size, kind, how, root, path.stream.ptr)

        return self._fork(0, 0, reduce_scatter)

    def move(self, array: Any, way: str, peer: int) -> Fork:
        """Send an array's bytes to a peer, or receive them (``way``)."""
        row, kind = _bytes(array), self._nccl.NCCL_UINT8

        def move(path: CommunicatorSet) -> None:
            getattr(path.world, way)(self._address(row), row.size, kind, peer, path.stream.ptr)

        return self._fork(0, 0, move)

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._nccl.groupEnd()

    def _type(self, array: Any) -> int:
        """Return NCCL's number for a type of elements."""
        if array.dtype.kind == "b":
            return int(self._nccl.NCCL_UINT8)
        name = array.dtype.name
        if name not in _KINDS:
            raise CollectiveError(f"NCCL cannot combine elements of {array.dtype}.")
        return int(getattr(self._nccl, f"NCCL_{name.upper()}"))

    def _op(self, op: str, array: Any) -> int:
        check_op(op, array.dtype)
        return int(getattr(self._nccl, f"NCCL_{_OPS[op]}"))


def _row(array: Any) -> Any:
    if not array.flags.c_contiguous:
        raise CollectiveError("a collective needs a contiguous array.")
    return array.reshape(-1)


def _bytes(array: Any) -> Any:
    row = _row(array)
    return row.view(np.uint8) if row.size else row


def joined_parts(ends: Sequence[int], roots: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (first element, end, root) of parts; neighbours with one root are one, empty ones none."""
    parts: list[tuple[int, int, int]] = []
    for begin, end, root in zip((0, *ends), ends, roots, strict=False):
        if end == begin:
            continue
        if parts and parts[-1][2] == root:
            parts[-1] = (parts[-1][0], end, root)
        else:
            parts.append((begin, end, root))
    return parts
