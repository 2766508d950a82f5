"""Exact shapes of a program's values, and which nodes depend on the batch's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from ...graph.ir.graph import STATE
from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.registry import OPS, Inference, Spec

_SHAPES_KNOWN = 64  # kept per kind of node
_Known = dict[tuple[Spec | None, ...], list[Spec | None]]  # what is read -> what is written


def infer_specs(
    program: ReplicaProgram, feeds: Sequence[Spec], state: Callable[[str], Spec | None]
) -> list[Spec]:
    """Return the exact spec of every value, given what is fed and what the persistables hold.

    Raises:
        ShapeError: what is fed does not fit the program; the message names the op and the user's line.
    """
    return Shapes(program).infer(feeds, state)


class Shapes:
    """Infers the specs of a program again and again: what reads the same shapes is not inferred twice."""

    def __init__(self, program: ReplicaProgram) -> None:
        self._program = program
        self._states = [
            (i, value.name)
            for i, value in enumerate(program.values)
            if value.kind == STATE and value.version == 0
        ]
        self._declared = [value.spec for value in program.values]
        self._known: dict[str, _Known] = {}
        self._nodes = [self._node(node) for node in program.nodes]

    def infer(self, feeds: Sequence[Spec], state: Callable[[str], Spec | None]) -> list[Spec]:
        """Return the exact spec of every value (see :func:`infer_specs`)."""
        specs: list[Spec | None] = [None] * len(self._declared)
        for position, spec in zip(self._program.feeds, feeds, strict=True):
            specs[position] = spec
        for i, name in self._states:
            specs[i] = state(name) or self._declared[i]
        for record, reads, writes, known in self._nodes:
            read = tuple([None if i < 0 else specs[i] for i in reads])
            results = known.get(read)
            if results is None:
                if len(known) >= _SHAPES_KNOWN:
                    known.clear()
                results = known[read] = self._inferred(record, specs)
            for i, result in zip(writes, results, strict=True):
                if result is not None:
                    specs[i] = result
        return [spec or declared for spec, declared in zip(specs, self._declared, strict=True)]

    def _node(self, record: NodeRecord) -> tuple[NodeRecord, list[int], list[int], _Known]:
        """Return a node, what it reads and writes, and what is known of nodes like it."""
        slots = [
            [(slot, [i >= 0 for i in positions]) for slot, positions in side.items()]
            for side in (record.inputs, record.outputs)
        ]
        form = repr((record.op, record.attrs, slots))
        reads = [i for positions in record.inputs.values() for i in positions]
        writes = [i for positions in record.outputs.values() for i in positions if i >= 0]
        return record, reads, writes, self._known.setdefault(form, {})

    def _inferred(self, record: NodeRecord, specs: Sequence[Spec | None]) -> list[Spec | None]:
        """Return the specs of what a node writes, where its rule tells them."""
        values, op = self._program.values, OPS[record.op]
        read = {
            slot: [None if i < 0 else specs[i] for i in positions]
            for slot, positions in record.inputs.items()
        }
        names = {
            slot: ["" if i < 0 else values[i].name for i in positions]
            for slot, positions in record.inputs.items()
        }
        results = op.infer(Inference(op, read, record.attrs, names, record.where))
        return [
            spec
            for slot, positions in record.outputs.items()
            for i, spec in zip_longest(positions, results.get(slot, ())[: len(positions)])
            if i >= 0
        ]


def batch_dependent(program: ReplicaProgram) -> frozenset[int]:
    """Return the positions of the nodes that compute from the batch's rows, collectives aside."""
    varying = {i for i in program.feeds if program.values[i].varies}
    dependent = set()
    for k, node in enumerate(program.nodes):
        reads = {i for positions in node.inputs.values() for i in positions}
        if node.op not in COLLECTIVES and varying & reads:
            dependent.add(k)
            outputs = {i for positions in node.outputs.values() for i in positions}
            varying |= {i for i in outputs if i >= 0 and program.values[i].kind != STATE}
    return frozenset(dependent)
