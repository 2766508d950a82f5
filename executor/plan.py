"""Plan: a compiled program bound to buffers, run step after step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..strategies.errors import CollectiveError, ExecutionError
from .device import Device


@dataclass(frozen=True)
class Instruction:
    """One op bound to its buffers: ``calls`` is all that a step does for it."""

    op: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    where: str
    calls: tuple[Callable[[], Any], ...]

    def __str__(self) -> str:
        return f"{', '.join(self.writes)} = {self.op}({', '.join(self.reads)})"


class Plan:
    """Instructions in order, the input buffers they read and the buffers whose values are fetched."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        inputs: Sequence[Any],
        fetched: Sequence[Any],
        device: Device,
        temporaries: tuple[int, int],
        replica: int | None = None,
    ) -> None:
        self.instructions = tuple(instructions)
        self.temporaries = temporaries
        self.device = device
        self._inputs = tuple(inputs)
        self._fetched = tuple(fetched)
        self._replica = replica
        self._calls = [call for instruction in self.instructions for call in instruction.calls]

    def run(self, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run one step: copy the feeds in, call every instruction in order, return copies of the fetches.

        Raises:
            ExecutionError: an instruction raised; the message names replica, op and the user's line.
            CollectiveError: a peer failed or is missing.
        """
        for buffer, value in zip(self._inputs, feeds, strict=True):
            buffer[...] = value
        calls = iter(self._calls)
        with np.errstate(all="ignore"):  # like Paddle: inf and nan are values, not warnings
            try:
                for call in calls:
                    call()
            except CollectiveError:
                raise
            except Exception as error:
                done = len(self._calls) - operator.length_hint(calls)
                raise self._explain(done, error) from error
        return [array.copy() for array in self._fetched]

    def _explain(self, calls_begun: int, error: Exception) -> ExecutionError:
        counted = 0
        for instruction in self.instructions:
            counted += len(instruction.calls)
            if counted >= calls_begun:
                break
        on = "" if self._replica is None else f"replica {self._replica}: "
        return ExecutionError(
            f"{on}operator {instruction.op} failed: {error} "
            f"(reads {', '.join(instruction.reads) or 'nothing'}; built at {instruction.where})"
        )

    def __str__(self) -> str:
        return "\n".join(f"{i:4d} {instruction}" for i, instruction in enumerate(self.instructions))
