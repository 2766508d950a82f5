"""Plan: a compiled program bound to buffers, run step after step."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.ops.collective import COLLECTIVES
from ...strategies.errors import CollectiveError, ExecutionError
from ..cuda.device_vote import DeviceVote
from ..device.device import Device
from .group import Agree
from .instruction import Instruction, SharedPart, with_parts
from .run import Event, LaneFailed, Lanes, timed


class Vote:
    """The stage of a plan's step: whether this replica can finish it if a peer fails.

    ``early`` are the fetched arrays that are known before the last collective, by position in the fetch list.
    The replica gives them to the driver before it takes part in that collective, so that no result of a step
    that happened can be lost. ``agree`` sends a number to all ranks and returns that of each: by it ranks
    compare their step and program before the first collective, where the collectives do not; then ``reached``
    waits for the GPU with a deadline (see :meth:`CollectiveGroup.reached`). ``on_device``: GPUs vote by
    themselves, and the host learns the outcome later.
    """

    BEGUN, PREPARED, COMMITTED = range(3)

    def __init__(self, early: Mapping[int, Any]) -> None:
        self.early = dict(early)
        self.deliver: Callable[[], None] | None = None
        self.agree: Agree | None = None
        self.reached: Callable[[bool], None] = lambda collectives: None
        self.on_device: DeviceVote | None = None
        self.stage = self.BEGUN

    def hand_over(self) -> None:
        """Give the early fetches to the driver, if it wants those of this step."""
        if self.deliver is not None:
            self.deliver()

    def prepare(self) -> None:
        """Note that this replica can finish the step without its peers."""
        self.stage = self.PREPARED

    def commit(self) -> None:
        """Note that this replica writes the results of the step."""
        self.stage = self.COMMITTED


class Plan:
    """Instructions in order, the input buffers that they read, and the buffers whose values are fetched.

    Args:
        inputs: a buffer for each feed; None if the plan does not copy it.
        lanes: run the instructions on several threads.
        vote: the step happens on all replicas or on none.
        late: instructions from this number on write persistables, after the vote.
        needs: returns, for each instruction, the numbers of those that it waits for.
        waited: returns the seconds that collectives have waited for peers so far.
        calls: the calls of all instructions, where these have others.
        parts: what other plans may have as well (None: the instructions).
    """

    nbytes = 0  # beyond its instructions, and what every plan takes
    # Of the last timed step
    seconds: Sequence[float] = ()
    busy: Sequence[float] = ()
    trace: list[Event | None] | None = None
    started = 0.0  # on this replica's clock
    _running: Iterator[Callable[[], Any]] | None = None

    def __init__(
        self,
        instructions: Sequence[Instruction],
        inputs: Sequence[Any],
        fetched: Sequence[Any],
        device: Device,
        temporaries: tuple[int, int],
        replica: int | None = None,
        lanes: Lanes | None = None,
        vote: Vote | None = None,
        late: int = 0,
        needs: Callable[[], Sequence[set[int]]] = list,
        waited: Callable[[], float] = lambda: 0.0,
        calls: list[Callable[[], Any]] | None = None,
        parts: Sequence[SharedPart] | None = None,
    ) -> None:
        self._instructions = tuple(instructions)
        self.parts = with_parts(self._instructions) if parts is None else parts
        self.vote = vote
        self._late = late
        self.temporaries = temporaries
        self.device = device
        self.lanes = lanes
        self.waited = waited
        self.needs = needs
        self._inputs = tuple(inputs)
        self._fetched = tuple(fetched)
        self._replica = replica
        self._calls = calls or [c for each in self._instructions for c in each.calls]

    @property
    def instructions(self) -> Sequence[Instruction]:
        """Its instructions, in order."""
        return self._instructions

    def run(self, feeds: Sequence[np.ndarray], *, timed: bool = False) -> None:
        """Run one step: copy the feeds in, then call every instruction.

        ``timed``: keep when each instruction ran, the seconds that it took, and those that it kept a processor
        busy: the least of all timed steps, without the seconds that a collective waited for peers.

        Raises:
            ExecutionError: an instruction raised; the message names replica, op and the user's line.
            CollectiveError: a peer failed or is missing.
        """
        for buffer, value in zip(self._inputs, feeds, strict=True):
            if buffer is not None:
                buffer[...] = value
        if self.vote is not None:
            self.vote.stage = Vote.BEGUN
        if self.lanes is not None:
            self._run_lanes(self.lanes, timed)
        elif timed:
            self._run_timed()
        else:
            self._run_in_order()

    def apply(self) -> None:
        """Finish a step that all peers can finish: run the instructions that follow the vote."""
        with np.errstate(all="ignore"):
            for instruction in self.instructions[self._late :]:
                for call in instruction.calls:
                    call()

    def fetched(self, early: Container[int] = (), lent: int = 0) -> Sequence[np.ndarray]:
        """Return copies of the fetched arrays, without the ``early`` ones (positions), which the driver has.

        The last ``lent`` are not copied: the next step overwrites them.
        """
        copied = len(self._fetched) - lent
        return [
            array.copy() if i < copied else array
            for i, array in enumerate(self._fetched)
            if i not in early
        ]

    def shaped(self, number: int) -> Any:
        """Return an array like one that is fetched, whose elements mean nothing."""
        return self._fetched[number]

    def where(self) -> Instruction | None:
        """Return the instruction that runs now, in the first lane that does not wait; any thread may ask."""
        running = self._running
        if self.lanes is not None:
            return next((at for at in self.lanes.at if at is not None), None)
        if running is None:
            return None
        left = operator.length_hint(running)
        return self._at(len(self._calls) - left) if left < len(self._calls) else None

    def at_work(self) -> bool:
        """Tell whether some lane runs an instruction that is no collective; any thread may ask."""
        running = self.lanes.at if self.lanes is not None else ()
        return any(at is not None and at.op not in COLLECTIVES for at in running)

    def _run_in_order(self) -> None:
        calls = self._running = iter(self._calls)
        with np.errstate(all="ignore"):  # like Paddle: inf and nan are values, not warnings
            try:
                for call in calls:
                    call()
            except CollectiveError:
                raise
            except Exception as error:
                done = len(self._calls) - operator.length_hint(calls)
                raise self._explain(self._at(done), error) from error
            finally:
                self._running = None

    def _run_timed(self) -> None:
        trace: list[Event | None] = []
        started = time.perf_counter()
        with np.errstate(all="ignore"):
            for instruction in self._timeable():
                try:
                    trace.append(timed(instruction, 0, started, self.waited))
                except CollectiveError:
                    raise
                except Exception as error:
                    raise self._explain(instruction, error) from error
        self._keep(trace, started)

    def _timeable(self) -> Iterable[Instruction]:
        """Return the instructions, the work of each of which is done when its calls return."""
        return self.instructions

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
            self._keep(trace, lanes.started)

    def _keep(self, trace: list[Event | None], started: float) -> None:
        self.trace, self.started = trace, started
        self.seconds = _least(self.seconds, [event.took if event else 0.0 for event in trace])
        self.busy = _least(self.busy, [event.busy if event else 0.0 for event in trace])

    def _at(self, calls_begun: int) -> Instruction:
        counted = 0
        for instruction in self.instructions:
            counted += len(instruction.calls)
            if counted >= calls_begun:
                break
        return instruction

    def _explain(self, instruction: Instruction, error: Exception) -> ExecutionError:
        text = repr(error) if isinstance(error, KeyError) else error  # its text is the key alone
        return ExecutionError.of(
            self._replica, instruction.op, text, instruction.reads, instruction.where
        )

    def close(self) -> None:
        """End the threads."""
        if self.lanes is not None:
            self.lanes.close()

    def __str__(self) -> str:
        return "\n".join(f"{i:4d} {instruction}" for i, instruction in enumerate(self.instructions))


def _least(old: Sequence[float], new: Sequence[float]) -> Sequence[float]:
    return [min(pair) for pair in zip(old, new, strict=True)] if old else new
