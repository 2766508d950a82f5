"""Buckets: memory in which gradients lie side by side, one bucket for each collective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.collective import BROADCAST, BUCKETED
from ...graph.ops.dgc import counts_sent
from ...graph.ops.registry import Spec
from ...strategies.types import VarType, to_numpy
from ..host.arena import bytes_of, view
from .group import CollectiveGroup

_BOUNDARY = 16  # bytes


class Bucket:
    """The memory of one collective: values side by side in a buffer of the group.

    Each value begins at an address from which vectors can be loaded.
    """

    def __init__(self, specs: Sequence[Spec], group: CollectiveGroup) -> None:
        nbytes = sum(_padded(bytes_of([spec])) for spec in specs)
        self.buffer = buffer = group.buffer(nbytes)
        self.parts: list[Any] = []
        self.ends: list[int] = []
        offset = 0
        for spec in specs:
            part, offset = view(buffer, offset, spec)
            offset = _padded(offset)
            self.parts.append(part)
            self.ends.append(offset // part.itemsize)
        self.dtype = specs[0].dtype
        self.flat = buffer[:nbytes].view(to_numpy(self.dtype))
        # Places and values by how many elements each rank sends: see ``sparse.py``.
        self.largest: dict[int, tuple[Any, Any]] = {}
        self.buffers = [buffer]

    def add_largest(self, counts: Iterable[int], group: CollectiveGroup) -> None:
        """Make room for positions and values of some elements from each rank, where that is less memory."""
        for count in sorted(set(counts)):
            shape = (count * group.size,)
            rows = [Spec(shape, VarType.INT64), Spec(shape, self.dtype)]
            nbytes = bytes_of(rows)
            if nbytes < self.flat.nbytes:
                self.buffers.append(group.buffer(nbytes))
                places, end = view(self.buffers[-1], 0, rows[0])
                self.largest[count] = places, view(self.buffers[-1], end, rows[1])[0]


def _padded(nbytes: int) -> int:
    return -(-nbytes // _BOUNDARY) * _BOUNDARY


class Buckets:
    """The buckets of a program: one for each collective that moves values.

    Values that are reduced lie in their bucket from the start; those that are broadcast are copied into it and
    out. Sizes are those of parameters, so buckets serve every batch size.
    """

    def __init__(self, program: ReplicaProgram, group: CollectiveGroup | None) -> None:
        self.parts_of: dict[int, Any] = {}  # position of a value -> its place in a bucket
        self.by_number: dict[int, Bucket] = {}
        self.users = 0  # programs that meet here
        self._group = group
        if group is None:
            return
        for node in program.nodes:
            positions = node.inputs.get("X", ())
            if node.op in BUCKETED and positions:
                bucket = Bucket([program.values[i].spec for i in positions], group)
                self.by_number[node.attrs["bucket"]] = bucket
                on_host = isinstance(bucket.buffer, np.ndarray)
                if "Step" in node.inputs and on_host and not group.asynchronous:
                    bucket.add_largest(counts_sent(node.attrs, bucket.parts[0].size), group)
                if node.op != BROADCAST:
                    self.parts_of.update(zip(positions, bucket.parts, strict=True))

    def release(self) -> None:
        """Release the memory if no other program uses these buckets; no plan may use them any more."""
        self.users -= 1
        if self.users > 0:
            return
        self.parts_of.clear()
        while self.by_number and self._group is not None:
            for buffer in self.by_number.popitem()[1].buffers:
                self._group.release(buffer)
