"""The memory in which a program's values meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.collective import BROADCAST, COLLECTIVES
from ...graph.ops.registry import Spec
from ...strategies.types import to_numpy
from ..host.arena import bytes_of, view
from .group import CollectiveGroup

_BOUNDARY = 16  # bytes


class Bucket:
    """One collective's memory: values side by side in a buffer that the peers can reach.

    Each begins on a boundary on which vectors of elements can be read.
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
        self.flat = buffer[:nbytes].view(to_numpy(specs[0].dtype))


def _padded(nbytes: int) -> int:
    return -(-nbytes // _BOUNDARY) * _BOUNDARY


class Buckets:
    """The memory in which a program's values meet, one bucket per collective that carries any.

    What is reduced lies in its bucket from the start; what is broadcast is copied into it and out.
    Sizes are those of parameters, so they outlive any batch size.
    """

    def __init__(self, program: ReplicaProgram, group: CollectiveGroup | None) -> None:
        self.parts_of: dict[int, Any] = {}  # position of a value -> its place in a bucket
        self.by_number: dict[int, Bucket] = {}
        self._group = group
        if group is None:
            return
        for node in program.nodes:
            positions = node.inputs.get("X", ())
            if node.op in COLLECTIVES and positions:
                bucket = Bucket([program.values[i].spec for i in positions], group)
                self.by_number[node.attrs["bucket"]] = bucket
                if node.op != BROADCAST:
                    self.parts_of.update(zip(positions, bucket.parts, strict=True))

    def release(self) -> None:
        """Give the memory back; no plan may use it any more."""
        self.parts_of.clear()
        while self.by_number and self._group is not None:
            self._group.release(self.by_number.popitem()[1].buffer)
