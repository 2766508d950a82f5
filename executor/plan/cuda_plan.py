"""CudaPlan: a plan on a GPU. It captures what a graph can hold, and copies feeds and fetches beside it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...graph.ops.collective import COLLECTIVES
from ...strategies.errors import CollectiveError, ExecutionError
from ..cuda.memory import DeviceMemory
from ..cuda.runtime import Fork, Reading, Runtime, Step, Waiting, graph_can_hold
from ..cuda.transfers import Arriving, Outward, Staged
from ..device.host_device import OnHost
from .captures import Captures, Key, Segment
from .instruction import EARLY_FETCH, Instruction
from .plan import Plan


class CudaPlan(Plan):
    """A plan whose calls put work on a GPU.

    The first step makes every call, so that kernels are compiled and loaded. The second captures the calls
    between host calls as graphs (if ``captures``), and later steps launch these, if all peers can
    (``captures.py``). A collective on a stream of its own is joined before the first instruction that needs it.
    ``settle`` is called before waiting for the GPU without a deadline: after it no GPU work waits for peers.
    """

    def __init__(self, *args: Any, captures: bool = True, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.settle: Callable[[], None] = lambda: None
        runtime, memory = self.device.runtime, self.device.memory
        assert runtime is not None and isinstance(memory, DeviceMemory)
        self.runtime: Runtime = runtime
        self._memory = memory
        self._ran = 0
        self._under: Instruction | None = None
        self._by_instruction = self._with_joins()
        self.segments = self._cut()
        agree = self.vote.agree if self.vote is not None else None
        self._graphs = Captures(runtime, self.segments, agree, lambda: self.settle())
        self._captures = captures
        fed = [a is not None and a.size > 0 and runtime.on_host(a) for a in self._inputs]
        self._fed_here = [(k, self._inputs[k]) for k, here in enumerate(fed) if here]
        away = [None if here else a for a, here in zip(self._inputs, fed, strict=True)]
        self._inward = Staged(runtime, away)
        # Of the step that is fetched from: the GPU may be at the next one when that is read.
        failed = [memory.asserts.word] if self._fetched and memory.asserts else []
        self._outward = Outward(runtime, [*self._fetched, *failed])
        if self.vote is not None and self.vote.early:
            self._early = Outward(runtime, list(self.vote.early.values()), slots=1)
            self.vote.early = dict(zip(self.vote.early, self._early.arrays, strict=True))

    def _with_joins(self) -> list[list[Step]]:
        """Return the calls of each instruction, with joins of other streams where their results are needed.

        If the last collective runs on a stream of its own, early fetches are delivered after it was started, so
        that it need not wait for them.
        """
        lands = any(_waits(call) for instruction in self.instructions for call in instruction.calls)
        beside = [
            any(isinstance(call, Fork) for call in instruction.calls)
            for instruction in self.instructions
        ]
        waits = self.needs() if any(beside) else []
        open_joins: dict[int, list[Step]] = {}
        calls: list[list[Step]] = []
        for k, instruction in enumerate(self.instructions):
            steps: list[Step] = []
            calls.append(steps)
            if instruction.op == EARLY_FETCH and lands:
                continue
            if open_joins and instruction.op not in COLLECTIVES:
                for other in sorted(open_joins.keys() & waits[k]):
                    steps += open_joins.pop(other)
            for call in instruction.calls:
                if open_joins and not graph_can_hold(call, self.runtime.xp):
                    steps += [join for joins in open_joins.values() for join in joins]
                    open_joins.clear()
                if _waits(call):
                    steps += [Waiting(self._set_aside), call, self._hand_over]
                elif instruction.op == EARLY_FETCH:
                    steps += [self._set_aside, self._hand_over]
                else:
                    steps.append(call)
                if isinstance(call, Fork) and call.finish not in instruction.calls:
                    open_joins.setdefault(k, []).append(call.finish)
        if open_joins:
            calls[-1] += [join for joins in open_joins.values() for join in joins]
        return calls

    def _cut(self) -> list[Segment]:
        segments: list[Segment] = []
        for instruction, steps in zip(self.instructions, self._by_instruction, strict=True):
            for step in steps:
                capturable = graph_can_hold(step, self.runtime.xp)
                same = segments and _alike(segments[-1].steps[-1], step)
                if not same or segments[-1].capturable != capturable:
                    segments.append(Segment(capturable, [], instruction, {}))
                segments[-1].steps.append(step)
                segments[-1].ops.setdefault(instruction.op, instruction.where)
        return segments

    def described(self) -> list[str]:
        """Return lines that tell how many graphs a step has, where it is split, and why."""
        graphs = [segment for segment in self.segments if segment.capturable]
        work = sum(len(segment.steps) for segment in graphs)
        captured = sum(bool(segment.graphs) for segment in graphs)
        return [
            f"a step is {len(graphs)} graph(s) of {work} pieces of work, {captured} captured",
            *(f"  not captured: {segment.refused}" for segment in graphs if segment.refused),
            *(
                f"  split at {op} (built at {where}): {_why_split(segment, op)}"
                for segment in self.segments
                if not segment.capturable
                for op, where in segment.ops.items()
            ),
        ]

    def stage(self, feeds: Sequence[np.ndarray], *, lasting: bool = False) -> None:
        """Begin to copy what the next step is fed; ``lasting``: it stays as it is until that step is fetched.

        What is on the GPU already when :meth:`run` comes with the same list is not copied again.
        """
        self._inward.bring(feeds, lasting)

    def forget_staged(self) -> None:
        """Forget what :meth:`stage` copied: another plan runs next."""
        self._inward.forget()

    def run(self, feeds: Sequence[np.ndarray], *, timed: bool = False) -> None:
        """Put one step on the GPU (see :meth:`Plan.run`); return before it is done, if no host call waits."""
        if timed or not self._ran:
            self.settle()
        self._memory.asserts.check(self._replica)
        self._inward.send(feeds)
        if self._fed_here:
            moves = [partial(np.copyto, array, feeds[k]) for k, array in self._fed_here]
            self.runtime.host(OnHost(self.runtime, moves))
        if self.device.ticked:
            clock = self.device.clock
            self._memory.tick(clock.step, clock.row, clock.share)
        if self.vote is not None:
            self.vote.stage = self.vote.BEGUN
        key = self._graphs.key(self._captures and self._ran > 0 and not timed)
        if timed:
            self._run_timed()
        else:
            with np.errstate(all="ignore"):
                for segment in self.segments:
                    self._run_segment(segment, key)
        self._ran += 1
        self._under = None
        self._outward.send()

    def _run_segment(self, segment: Segment, key: Key | None) -> None:
        runtime = self.runtime
        self._under = segment.first
        graph = segment.graph_for(key) if key is not None else None
        try:
            if graph is not None:
                graph()
            elif segment.capturable:
                runtime.execute(segment.steps)
            else:
                for step in segment.steps:
                    self._on_host(step)
        except CollectiveError:
            raise
        except Exception as error:
            raise self._explain(segment.first, error) from error

    def _on_host(self, step: Step) -> None:
        """Make a call for the host; one that waits for the GPU may find it waiting for a peer that is gone."""
        if self.vote is not None and isinstance(step, OnHost | Reading):
            self.runtime.host(Waiting(self.vote.reached, False))
        self.runtime.host(step)

    def _explain(self, instruction: Instruction, error: Exception) -> ExecutionError:
        """Prefer what a kernel on the GPU found wrong to the error that the host met after it."""
        return self._memory.asserts.failed(self._replica) or super()._explain(instruction, error)

    def _set_aside(self) -> None:
        """Begin to copy early fetches to the host, if the driver wants those of this step."""
        if self.vote is not None and self.vote.early and self.vote.deliver is not None:
            self._early.send()

    def _hand_over(self) -> None:
        """Give early fetches to the driver, once they are on the host."""
        if self.vote is not None and self.vote.early and self.vote.deliver is not None:
            self._early.wait()
            self.vote.deliver()

    def _timeable(self) -> Iterator[Instruction]:
        for instruction, steps in zip(self.instructions, self._by_instruction, strict=True):
            self._under = instruction
            yield replace(instruction, calls=(partial(self._through, steps),))

    def _through(self, steps: Sequence[Step]) -> None:
        """Make some calls, and wait until the GPU has finished their work."""
        for step in steps:
            if graph_can_hold(step, self.runtime.xp):
                self.runtime.execute((step,))
            else:
                self._on_host(step)
        if self.vote is not None and self.vote.stage == self.vote.BEGUN:
            self.runtime.host(Waiting(self.vote.reached, True))
        self.runtime.synchronize()

    def apply(self) -> None:
        """Finish a step that all peers can finish."""
        for steps in self._by_instruction[self._late :]:
            self._through(steps)

    def fetched(self, early: Container[int] = (), lent: int = 0) -> Arriving:
        """Return the fetches of the last step, without ``early`` ones, as copies that are still arriving."""
        which = [i for i in range(len(self._fetched)) if i not in early]
        failed = self._outward.arrays[len(self._fetched) :]
        return self._outward.arriving(
            which, behind=self._inward.read, check=partial(self._check, failed)
        )

    def _check(self, failed: Sequence[np.ndarray]) -> None:
        """Raise what a kernel found wrong in a step, or before it; ``failed``: the word at its end, if any."""
        if all(word[0] for word in failed):
            self._memory.asserts.check(self._replica)

    def where(self) -> Instruction | None:
        """Return the instruction at which the host is; any thread may ask."""
        return self._under

    def at_work(self) -> bool:
        """The host does not compute."""
        return False

    def close(self) -> None:
        """Wait for the GPU, and release the graphs."""
        self.runtime.synchronize()
        self._graphs.close()


def _waits(call: Step) -> bool:
    return isinstance(call, Waiting)


def _alike(first: Step, second: Step) -> bool:
    """Tell whether both calls run on the host, or neither."""
    return isinstance(first, OnHost) == isinstance(second, OnHost)


def _why_split(segment: Segment, op: str) -> str:
    if isinstance(segment.steps[0], OnHost):
        return "it is placed on the host (device_guard), or has no kernel for GPUs"
    meets = op in COLLECTIVES or op == EARLY_FETCH
    return "replicas meet there" if meets else "the host takes part there"
