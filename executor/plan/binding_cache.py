"""What the plans of one program have in common, whatever shapes they are bound for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.lowering.memory import Usage
from ...graph.ops.registry import OPS
from .instruction import Instruction
from .part import Peers, RankPart
from .shapes import Shapes, picked


class Slots(NamedTuple):
    """Which fields of an op's record one side of a node fills: with one value, or with a list of them."""

    single: list[tuple[str, int]]
    several: list[tuple[str, Sequence[int]]]
    positions: list[int]  # of all


class Touched(NamedTuple):
    """The names of what a node reads and writes; ``uneven``: their rows change from step to step.

    ``fields`` is the record of its op without values: attributes, and slots that are empty. ``places`` picks
    what tells the memory of each value from other memory.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    uneven: bool
    fields: dict[str, Any]
    read: Slots
    written: Slots
    places: Callable[[Sequence[Hashable]], Hashable]


class BindingCache:
    """Kept from plan to plan: inferred shapes, what ranks run, how long values are needed, and instructions.

    ``counts`` is what kernels count (see :class:`~..device.device.Device`). ``instructions`` are those of
    plans that are bound, by node and by the places of what it touches: other plans on this very memory have
    them, too.
    """

    def __init__(self, program: ReplicaProgram) -> None:
        self.shapes = Shapes(program)
        self.counts: Counter[str] = Counter()
        self._program = program
        self._touched: dict[int, Touched] = {}
        self._parts: dict[tuple[Peers, bool], RankPart] = {}
        self._usages: dict[tuple[Any, ...], Usage] = {}
        self.instructions: WeakValueDictionary[tuple[Hashable, ...], Instruction]
        self.instructions = WeakValueDictionary()

    def part(self, peers: Peers, idle: bool) -> RankPart:
        """Return what a rank runs of the program."""
        key = peers, idle
        if key not in self._parts:
            self._parts[key] = RankPart(self._program, peers, idle)
        return self._parts[key]

    def usage(self, key: tuple[Any, ...], make: Callable[[], Usage]) -> Usage:
        """Return how long values are needed; ``key`` is all that it depends on beside the program."""
        if key not in self._usages:
            self._usages[key] = make()
        return self._usages[key]

    def touched(self, node: NodeRecord) -> Touched:
        """Return what a node of the program reads and writes."""
        touched = self._touched.get(id(node))
        if touched is None:
            values = self._program.values
            reads, writes = (
                tuple(values[i].name for positions in slots.values() for i in positions if i >= 0)
                for slots in (node.inputs, node.outputs)
            )
            unknown = any(-1 in values[i].shape for i in node.touches())
            uneven = unknown and self._program.uneven
            op = OPS[node.op]
            sides = zip(op.parameters, (node.inputs, node.outputs), strict=True)
            read, written = (_slots(parameters, by_slot) for parameters, by_slot in sides)
            fields = vars(op.bound({}, {}, node.attrs))
            pick = picked(node.touches())
            touched = Touched(reads, writes, uneven, fields, read, written, pick)
            self._touched[id(node)] = touched
        return touched


def _slots(
    parameters: Sequence[tuple[str, str, bool]], by_slot: Mapping[str, Sequence[int]]
) -> Slots:
    fields = [(name, in_list, by_slot.get(slot, ())) for slot, name, in_list in parameters]
    single = [
        (name, ids[0]) for name, in_list, ids in fields if not in_list and ids and ids[0] >= 0
    ]
    several = [(name, ids) for name, in_list, ids in fields if in_list]
    return Slots(single, several, [i for ids in by_slot.values() for i in ids if i >= 0])
