"""What the plans of one program have in common, whatever shapes they are bound for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.lowering.memory import Usage
from ..host.writes import address
from .instruction import Instruction
from .shapes import Shapes


class Touched(NamedTuple):
    """The names of what a node reads and writes; ``uneven``: their rows change from step to step."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    uneven: bool


class BindingCache:
    """Kept from plan to plan: inferred shapes, how long values are needed, instructions on lasting memory.

    ``counts`` is what kernels count (see :class:`~..device.device.Device`).
    """

    def __init__(self, program: ReplicaProgram) -> None:
        self.shapes = Shapes(program)
        self.counts: Counter[str] = Counter()
        self._program = program
        self._touched: dict[int, Touched] = {}
        self._usages: dict[tuple[Any, ...], Usage] = {}
        self._instructions: dict[int, tuple[list[Hashable], Instruction]] = {}

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

    def instruction(self, node: NodeRecord, arrays: Sequence[Any]) -> Instruction | None:
        """Return the instruction that an earlier plan has for a node, if it works on this very memory."""
        before, instruction = self._instructions.get(id(node), (None, None))
        return instruction if before == list(map(_place, arrays)) else None

    def keep(self, node: NodeRecord, arrays: Sequence[Any], instruction: Instruction) -> None:
        """Keep an instruction that can be in any plan."""
        self._instructions[id(node)] = (list(map(_place, arrays)), instruction)

    def forget(self) -> None:
        """Let go of instructions, and of the memory that they work on."""
        self._instructions.clear()


def _place(array: Any) -> Hashable:
    """Return what tells an array's memory from others, and how it lies there."""
    return None if array is None else (address(array), array.shape, array.strides, array.dtype)
