"""Plan: a compiled program bound to buffers, run step after step."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..strategies.errors import CollectiveError, ExecutionError
from .device import Device
from .run import Event, LaneFailed, Lanes


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
    """Instructions in order, the input buffers they read and the buffers whose values are fetched.

    An input of None is not used here. ``lanes``: run the instructions on several threads.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        inputs: Sequence[Any],
        fetched: Sequence[Any],
        device: Device,
        temporaries: tuple[int, int],
        replica: int | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        self.instructions = tuple(instructions)
        self.temporaries = temporaries
        self.device = device
        self.lanes = lanes
        self.seconds: list[float] = []
        self.trace: list[Event | None] | None = None
        self._inputs = tuple(inputs)
        self._fetched = tuple(fetched)
        self._replica = replica
        self._calls = [call for instruction in self.instructions for call in instruction.calls]

    def run(self, feeds: Sequence[np.ndarray], *, timed: bool = False) -> None:
        """Run one step: copy the feeds in, then call every instruction.

        ``timed`` keeps the seconds each instruction took (the least of all timed steps), and when it ran.

        Raises:
            ExecutionError: an instruction raised; the message names replica, op and the user's line.
            CollectiveError: a peer failed or is missing.
        """
        for buffer, value in zip(self._inputs, feeds, strict=True):
            if buffer is not None:
                buffer[...] = value
        if self.lanes is not None:
            self._run_lanes(self.lanes, timed)
        elif timed:
            self._run_timed()
        else:
            self._run_in_order()

    def fetched(self) -> list[np.ndarray]:
        """Return copies of what is fetched."""
        return [array.copy() for array in self._fetched]

    def _run_in_order(self) -> None:
        calls = iter(self._calls)
        with np.errstate(all="ignore"):  # like Paddle: inf and nan are values, not warnings
            try:
                for call in calls:
                    call()
            except CollectiveError:
                raise
            except Exception as error:
                done = len(self._calls) - operator.length_hint(calls)
                raise self._explain(self._at(done), error) from error

    def _run_timed(self) -> None:
        trace: list[Event | None] = []
        started = time.perf_counter()
        with np.errstate(all="ignore"):
            for instruction in self.instructions:
                began = time.perf_counter()
                try:
                    for call in instruction.calls:
                        call()
                except CollectiveError:
                    raise
                except Exception as error:
                    raise self._explain(instruction, error) from error
                ended = time.perf_counter()
                trace.append(
                    Event(instruction.op, instruction.writes, 0, began - started, ended - started)
                )
        self._keep(trace)

    def _run_lanes(self, lanes: Lanes, timed: bool) -> None:
        trace: list[Event | None] | None = [None] * len(self.instructions) if timed else None
        try:
            lanes.run(trace)
        except LaneFailed as failure:
            cause = failure.__cause__
            if isinstance(cause, CollectiveError) or not isinstance(cause, Exception):
                raise cause or failure from None
            raise self._explain(failure.instruction, cause) from cause
        if trace is not None:
            self._keep(trace)

    def _keep(self, trace: list[Event | None]) -> None:
        self.trace = trace
        took = [event.ended - event.began if event else 0.0 for event in trace]
        self.seconds = (
            [min(old, new) for old, new in zip(self.seconds, took, strict=True)]
            if self.seconds
            else took
        )

    def _at(self, calls_begun: int) -> Instruction:
        counted = 0
        for instruction in self.instructions:
            counted += len(instruction.calls)
            if counted >= calls_begun:
                break
        return instruction

    def _explain(self, instruction: Instruction, error: Exception) -> ExecutionError:
        on = "" if self._replica is None else f"replica {self._replica}: "
        return ExecutionError(
            f"{on}operator {instruction.op} failed: {error} "
            f"(reads {', '.join(instruction.reads) or 'nothing'}; built at {instruction.where})"
        )

    def close(self) -> None:
        """End the threads."""
        if self.lanes is not None:
            self.lanes.close()

    def __str__(self) -> str:
        return "\n".join(f"{i:4d} {instruction}" for i, instruction in enumerate(self.instructions))
