"""Reads the ops by which a trainer's program meets those of other trainers."""

from __future__ import annotations

from collections.abc import Iterator

from ..ops.collective import (
    ALL_REDUCE,
    BROADCAST,
    RING_BROADCAST,
    RING_GATHER,
    RING_REDUCE,
    RING_SCATTER,
)
from ..ops.trainer_collective import INTRODUCTIONS, MEETINGS, REDUCTIONS, STREAM_ORDERS
from ..program.operator import Operator
from .block_reader import BlockReader, finished, node_of
from .graph import STATE, TEMP, Node, Value


class TrainerOps(BlockReader):
    """Makes collectives of ``c_allreduce_sum`` and the like; ops that prepare them need no node."""

    def _introduction(self, op: Operator) -> Iterator[Node]:
        """Read an op that tells trainers of each other: nothing is computed."""
        yield from ()

    def _stream_order(self, op: Operator) -> Iterator[Node]:
        """Read an op that waits for a stream: its results are its operands."""
        for source, result in zip(op.inputs.get("X", ()), op.outputs.get("Out", ()), strict=False):
            if source != result:
                yield self._copy(op, self._read(op.block, source), result)

    def _copy(self, op: Operator, source: Value | None, result: str) -> Node:
        return node_of(op, "assign", {"X": (source,)}, {"Out": (self._write(op.block, result),)})

    def _meeting(self, op: Operator) -> Iterator[Node]:
        """Read a collective; what parameters and gradients are travels in buckets."""
        (source,), (result,) = op.inputs["X"], op.outputs["Out"]
        kind, attrs, value = op.type, op.attrs, self._read(op.block, source)
        assert value is not None, "a collective names its operand"
        fixed = all(size >= 0 for size in value.spec.shape)
        if kind == "c_broadcast" and value.kind == STATE and source == result:
            yield self._collective(op, BROADCAST, value, result, roots=[attrs["root"]])
        elif kind == "c_allreduce_sum" and fixed:
            yield from self._sum(op, value, result)
        elif kind == "c_broadcast":
            yield self._collective(op, RING_BROADCAST, value, result, root=attrs["root"])
        elif kind == "c_allgather":
            yield self._collective(op, RING_GATHER, value, result, nranks=attrs["nranks"])
        elif kind == "c_reducescatter":
            yield self._collective(op, RING_SCATTER, value, result, nranks=attrs["nranks"])
        else:
            yield self._collective(op, RING_REDUCE, value, result, reduce=REDUCTIONS[kind])

    def _sum(self, op: Operator, value: Value, result: str) -> Iterator[Node]:
        """Sum a temporary in place, and a copy of a variable that outlives steps or is fed."""
        if value.kind == TEMP and op.inputs["X"][0] == result:
            yield self._collective(op, ALL_REDUCE, value, result)
            return
        copy, total = (self._new(f"{value.name}@RING", value.spec) for _ in range(2))
        yield node_of(op, "assign", {"X": (value,)}, {"Out": (copy,)})
        yield node_of(op, ALL_REDUCE, {"X": (copy,)}, {"Out": (total,)}, {"bucket": 0})
        yield self._copy(op, total, result)

    def _collective(
        self, op: Operator, kind: str, value: Value | None, result: str, **attrs: object
    ) -> Node:
        written = self._write(op.block, result)
        names = {} if written is None else {written.name: written}
        how = {"bucket": 0, **attrs}
        return node_of(op, kind, {"X": (value,)}, {"Out": (written,)}, how, finished(op, names))


READERS = {
    **dict.fromkeys(INTRODUCTIONS, TrainerOps._introduction),
    **dict.fromkeys(STREAM_ORDERS, TrainerOps._stream_order),
    **dict.fromkeys(MEETINGS, TrainerOps._meeting),
}
