"""What a plan needs of a collective group, and the memory in which a program's values meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.collective import BROADCAST, COLLECTIVES
from ...graph.ops.registry import Spec
from ...strategies.types import to_numpy
from ..host.arena import bytes_of, view

_BOUNDARY = 16  # bytes


class Collectives(Protocol):
    """What a plan needs of a collective group. Arrays are views of the group's own buffers.

    ``ends`` are the element offsets at which the parts of an array end, ``roots`` a rank for each part.
    """

    def buffer(self, nbytes: int) -> Any:
        """Return memory that the peers can reach."""
        ...

    def release(self, buffer: Any) -> None:
        """Give such memory back."""
        ...

    def all_reduce(self, array: Any, op: str = "sum", *, within: float, tag: str = "") -> None:
        """Sum an array over the ranks, in place."""
        ...

    def bound_all_reduce(
        self, array: Any, op: str = "sum", *, within: float, tag: str = ""
    ) -> Callable[[], None]:
        """Return a call that does :meth:`all_reduce` on this array. Ranks bind in the same order."""
        ...

    def reduce_parts(
        self, array: Any, ends: Sequence[int], roots: Sequence[int], *, within: float, tag: str
    ) -> None:
        """Sum each part of an array over the ranks into its root's; the others keep their own."""
        ...

    def broadcast_parts(
        self, array: Any, ends: Sequence[int], roots: Sequence[int], *, within: float, tag: str
    ) -> None:
        """Copy each part of an array from its root's to every rank's."""
        ...

    def barrier(self, *, within: float, tag: str = "") -> None:
        """Return when every rank is here."""
        ...

    def vote(self, *, within: float, tag: str = "") -> None:
        """Return when every rank has the results of every collective before, or can finish them by itself."""
        ...


class Bucket:
    """One collective's memory: values side by side in a buffer that the peers can reach.

    Each begins on a boundary on which vectors of elements can be read.
    """

    def __init__(self, specs: Sequence[Spec], group: Collectives) -> None:
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

    def __init__(self, program: ReplicaProgram, group: Collectives | None) -> None:
        self.held: dict[int, Any] = {}  # position of a value -> its place in a bucket
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
                    self.held.update(zip(positions, bucket.parts, strict=True))

    def release(self) -> None:
        """Give the memory back; no plan may use it any more."""
        self.held.clear()
        while self.by_number and self._group is not None:
            self._group.release(self.by_number.popitem()[1].buffer)
