"""Calls that put NCCL's work on streams: from arrays and names of ops to addresses, counts and numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...executor.cuda.runtime import Fork, Runtime
from ...strategies.errors import CollectiveError
from .combine import check_op, flat
from .communicator import NcclCommunicator

_OPS = {"sum": "SUM", "mean": "AVG", "product": "PROD", "min": "MIN", "max": "MAX"}
_KINDS = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)


class NcclCalls:
    """Each method returns a call for the communicator's stream; once ``broken()``, the call does nothing."""

    def __init__(
        self,
        communicator: NcclCommunicator,
        runtime: Runtime,
        rank: int,
        broken: Callable[[], Any],
    ) -> None:
        self._communicator, self._runtime = communicator, runtime
        self._rank, self._broken = rank, broken
        self._nccl = runtime.nccl
        self._address = runtime.address

    def _fork(self, work: Callable[[Any, int], None]) -> Fork:
        """Return a call of ``work(NCCL's communicator, address of the stream)``."""

        communicator = self._communicator

        def step() -> None:
            with communicator.lock:
                if self._broken():
                    return
                try:
                    work(communicator.world, communicator.stream.ptr)
                except Exception as error:
                    if not self._broken():  # meanwhile
                        raise CollectiveError(
                            f"rank {self._rank}: NCCL refused: {error}"
                        ) from error

        return self._runtime.fork(self._communicator.stream, step)

    def all_reduce(self, array: Any, op: str) -> Fork:
        """Combine an array over the ranks."""
        row, kind, how = flat(array), self._type(array), self._op(op, array)

        def all_reduce(world: Any, stream: int) -> None:
            address = self._address(row)
            world.allReduce(address, address, row.size, kind, how, stream)

        return self._fork(all_reduce)

    def reduce_parts(self, array: Any, ends: Sequence[int], roots: Sequence[int], op: str) -> Fork:
        """Combine each part of an array into its root's."""
        row, kind, how = flat(array), self._type(array), self._op(op, array)
        parts = joined_parts(ends, roots)

        def reduce_parts(world: Any, stream: int) -> None:
            begin = self._address(row)
            with self._together():
                for first, end, root in parts:
                    at = begin + first * row.itemsize
                    into = at if root == self._rank else 0
                    world.reduce(at, into, end - first, kind, how, root, stream)

        return self._fork(reduce_parts)

    def broadcast_parts(self, array: Any, ends: Sequence[int], roots: Sequence[int]) -> Fork:
        """Copy each part of an array from its root's."""
        row, kind, each = _bytes(array), self._nccl.NCCL_UINT8, array.itemsize
        parts = joined_parts(ends, roots)

        def broadcast_parts(world: Any, stream: int) -> None:
            begin = self._address(row)
            with self._together():
                for first, end, root in parts:
                    at, count = begin + first * each, (end - first) * each
                    world.broadcast(at, at, count, kind, root, stream)

        return self._fork(broadcast_parts)

    def all_gather(self, array: Any, into: Any) -> Fork:
        """Put the bytes of all ranks side by side."""
        row, kind = _bytes(array), self._nccl.NCCL_UINT8

        def all_gather(world: Any, stream: int) -> None:
            world.allGather(self._address(row), self._address(into), row.size, kind, stream)

        return self._fork(all_gather)

    def reduce_scatter(self, arrays: Sequence[Any], into: Any, op: str) -> Fork:
        """Combine the ``arrays[rank]`` of all ranks into an array of that rank; they may differ in size."""
        rows = [flat(array) for array in arrays]
        kind, how = self._type(rows[0]), self._op(op, rows[0])

        def reduce_scatter(world: Any, stream: int) -> None:
            with self._together():
                for root, row in enumerate(rows):
                    at = self._address(row)
                    own = self._address(into) if root == self._rank else 0
                    world.reduce(at, own, row.size, kind, how, root, stream)

        return self._fork(reduce_scatter)

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


def _bytes(array: Any) -> Any:
    row = flat(array)
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
