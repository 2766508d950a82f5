"""What the plans of one program have in common, whatever shapes they are bound for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.lowering.memory import Usage
from .instruction import Instruction
from .part import Peers, RankPart
from .shapes import Shapes


class Touched(NamedTuple):
    """The names of what a node reads and writes; ``uneven``: their rows change from step to step."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    uneven: bool


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
            touched = self._touched[id(node)] = Touched(reads, writes, uneven)
        return touched
