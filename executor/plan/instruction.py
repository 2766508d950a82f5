"""Instruction: one op of a plan, bound to its buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

EARLY_FETCH = "fetch"  # the instruction that gives away what is fetched before the vote


@dataclass(slots=True, weakref_slot=True, eq=False)
class Instruction:
    """One op bound to its buffers: ``calls`` is all that a step does for it; ``scratch``: bytes beside them."""

    op: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    where: str
    calls: tuple[Callable[[], Any], ...]
    scratch: int = 0

    def __str__(self) -> str:
        return f"{', '.join(self.writes)} = {self.op}({', '.join(self.reads)})"
