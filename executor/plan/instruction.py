"""Instruction: one op of a plan, bound to its buffers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

INSTRUCTION_BYTES, CALL_BYTES = 1 << 10, 2 << 10  # as measured: views of memory, calls, tables
EARLY_FETCH = "fetch"  # the instruction that gives away what is fetched before the vote


class SharedPart(Hashable, Protocol):
    """Something that several plans may have."""

    @property
    def nbytes(self) -> int:
        """The bytes that it takes."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Instruction:
    """One op bound to its buffers: ``calls`` is all that a step does for it; ``scratch``: bytes beside them.

    ``own``: bytes of arrays, and of a library's code, that nothing else has; ``parts`` are what other
    instructions may have as well.
    """

    op: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    where: str
    calls: tuple[Callable[[], Any], ...]
    scratch: int = 0
    own: int = 0
    parts: tuple[SharedPart, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes that it takes: itself, and its calls with the arrays that they know."""
        return INSTRUCTION_BYTES + len(self.calls) * CALL_BYTES + self.own

    def with_calls(self, calls: Sequence[Callable[[], Any]]) -> Instruction:
        """Return the same instruction with other calls."""
        return replace(self, calls=tuple(calls))

    def __str__(self) -> str:
        return f"{', '.join(self.writes)} = {self.op}({', '.join(self.reads)})"


def with_parts(instructions: Sequence[Instruction]) -> list[SharedPart]:
    """Return instructions and their parts."""
    return [*instructions, *(part for each in instructions for part in each.parts)]
