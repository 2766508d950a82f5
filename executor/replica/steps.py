"""StepRunner: runs the steps of loaded programs, one at a time: their segments, loops, votes and lanes."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np

from ..cuda.memory import DeviceMemory
from ..cuda.runtime import Runtime
from ..cuda.transfers import Arriving
from ..device.device import Clock
from ..host.cores import openmp_threads
from ..plan.cuda_plan import CudaPlan
from ..plan.group import When
from ..plan.overlap import choose
from ..plan.plan import Plan, Vote
from ..plan.run import MEASURED_STEPS, Lanes
from ..plan.sizes import forms_of
from ..plan.traced import TracedStep
from .agreement import pack_step
from .holdings import Holdings
from .host_call import HostCall, LoopDeadline, Totals, Values, add_to, fed_to
from .loaded import BoundPlan, LastSegment, LoadedProgram, Segment
from .message import Message
from .orders import Step
from .undecided import UndecidedStep, UndecidedSteps

_AHEAD = 1  # steps that a GPU may still be at when it is given another one


class StepRunner(Holdings):
    """Runs steps of the programs that it holds. ``done`` counts those that were voted for and written.

    Peers are waited for ``within`` seconds.
    """

    def __init__(self, rank: int, within: float, runtime: Runtime | None) -> None:
        self._undecided = UndecidedSteps(within, self._count, self._failed_on_gpu)
        super().__init__(runtime, partial(self._undecided.leave, 0))
        self.rank = rank
        self.within = within
        self.done = 0
        # Of the message at hand: the number of its first step, and whether its arrays are filled anew for more.
        self._first_step, self._lasting = 0, False
        self._newest: UndecidedStep | None = None
        self._under_way: Plan | None = None
        self._began = 0.0
        self._loops_until = LoopDeadline(inf)
        self._measuring = False
        self._calling: HostCall | None = None

    def _count(self) -> None:
        self.done += 1

    def _failed_on_gpu(self) -> Exception | None:
        memory = self.memory
        return memory.asserts.failed(self.rank) if isinstance(memory, DeviceMemory) else None

    def run_step(
        self,
        loaded: LoadedProgram,
        shapes: Hashable,
        feeds: Sequence[np.ndarray],
        step: int,
        timed: bool = False,
    ) -> Plan:
        """Run one step of a loaded program for a driver on the same thread; return the plan, to fetch from.

        ``shapes`` stands for the shapes and types of the feeds; ``timed``: keep when each instruction ran.

        Raises:
            ExecutionError: an operator failed.
        """
        if loaded.earlier:
            feeds = self._after_earlier(loaded, loaded, feeds, Clock(step))
            bound = self._plan_for(loaded, loaded, feeds)
        else:
            bound = loaded.plans.get(shapes) or self.keep_plan(loaded, loaded, shapes, feeds)
        plan = bound.plan
        plan.device.clock.step = step
        if timed or not loaded.direct or loaded.tracing:
            self._run(loaded, bound, feeds, True, timed)
            return plan
        loaded.alive = loaded.last = plan
        if loaded.whole.changes:
            self.scopes[loaded.scope].writes.note()
        plan.run(feeds)
        return plan

    def run_steps(
        self, loaded: LoadedProgram, order: Step, arrays: Sequence[np.ndarray]
    ) -> Message:
        """Run steps of a loaded program; return what the last one fetches, less what was posted.

        All ``iterations`` steps run on the same arrays, or each on its own set of arrays if as many came.
        ``idle``: this place has no rows in that step.
        """
        width, sets = len(loaded.whole.feeds), len(order.rows)
        self._lasting = self._lasting and sets == 1
        last = order.iterations - 1
        for k in range(last + 1):
            s = k % sets
            feeds = arrays[s * width : (s + 1) * width] if sets > 1 else arrays
            now = Clock(self._first_step + k, order.rows[s], order.parts[s])
            self._began = time.monotonic()
            feeds = self._with_row_counts(loaded, feeds, now.step)
            form = loaded.idle if order.idle[s] else loaded
            feeds = self._after_earlier(loaded, form, feeds, now)
            bound = self._bound(loaded, form, feeds)
            bound.plan.device.clock.show(now)
            self._began = time.monotonic()
            self._run(loaded, bound, feeds, last=k == last)
        assert loaded.last is not None, "there is at least one step"
        fetched = loaded.last.fetched(self._posted(loaded.last))
        if isinstance(fetched, Arriving):
            fetched.step = self._newest
        for number in order.drop:
            self.programs[number].alive = None
        return Message("fetched", {}, fetched)

    def _posted(self, plan: Plan) -> Mapping[int, Any]:
        """Return the fetches of a plan that were posted, by position in the fetch list."""
        return plan.vote.early if plan.vote is not None and self.post is not None else {}

    def roll_forward(self, upto: int) -> None:
        """Finish the step with which ``upto`` are done, as a peer has, if this replica came to its vote.

        If it did not, the driver copies the values to it.
        """
        plan = self._under_way
        prepared = plan is not None and plan.vote is not None and plan.vote.stage == Vote.PREPARED
        if plan is not None and prepared and upto == self.done + 1:
            plan.apply()
            self.done += 1
        self._under_way = None

    def catch_up(self, other: StepRunner) -> None:
        """Finish a step whose writes were interrupted here; ``other``, in this process, has finished it.

        Writing twice is wrong only for values that both hold, and these are taken from the other.
        """
        if self._under_way is not None:
            self._under_way.apply()
        self._under_way = None
        for number, scope in self.scopes.items():
            if number in other.scopes:
                scope.take(other.scopes[number])
        self.done = other.done

    def doing(self) -> Mapping[str, Any]:
        """Return the op under way, where the user built it, and the seconds since the step began."""
        plan, began, calling = self._under_way, self._began, self._calling
        if calling is not None:
            seconds = time.monotonic() - began
            return {"op": calling.function, "where": calling.record.where, "seconds": seconds}
        at = plan.where() if plan is not None else None
        if at is None:
            return {}
        return {"op": at.op, "where": at.where, "seconds": time.monotonic() - began}

    def at_work(self) -> bool:
        """Tell whether a collective should sleep, not spin, while it waits; any thread may ask.

        It should while instructions are timed: busy time then matches the overlapped case.
        """
        plan = self._under_way
        return self._measuring or (plan is not None and plan.at_work())

    def _run(
        self,
        loaded: LoadedProgram,
        bound: BoundPlan,
        feeds: Sequence[np.ndarray],
        last: bool,
        timed: bool = False,
    ) -> None:
        """Run one step; after some timed steps, deal the instructions to threads if that pays."""
        plan = bound.plan
        seat = loaded.seat
        by_gpus = plan.vote is not None and plan.vote.on_device is not None
        self._undecided.leave(_AHEAD if by_gpus else 0)
        self._begin_collectives(loaded, plan.device.clock.step)
        loaded.alive = loaded.last = self._under_way = plan
        if self._lasting and not loaded.earlier and isinstance(plan, CudaPlan):
            plan.stage(feeds, lasting=True)
        if loaded.whole.changes:
            self.scopes[loaded.scope].writes.note()
        if plan.vote is not None:
            plan.vote.deliver = bound.deliver if last else bound.deliver_own(self.done + 1)
        dealt = loaded.parallel and bound.binder is not None
        measuring = dealt and bound.timed_steps < MEASURED_STEPS
        self._measuring = measuring and loaded.overlap
        timed = timed or measuring or loaded.tracing
        if loaded.openmp:
            with openmp_threads(loaded.openmp):
                plan.run(feeds, timed=timed)
        else:
            plan.run(feeds, timed=timed)
        self._measuring = False
        if loaded.tracing:
            loaded.traced.append(TracedStep.of(plan.device.clock.step, plan))
        if measuring:
            bound.timed_steps += 1
            if bound.timed_steps == MEASURED_STEPS:
                self._deal(loaded, bound)
        self._under_way = self._newest = None
        if by_gpus and seat.group is not None and self.runtime is not None:
            tag = f"step {plan.device.clock.step} of schedule {loaded.schedule}"
            event = self.runtime.record(self.runtime.compute)
            self._newest = self._undecided.add(seat.group, event, tag)
        elif plan.vote is not None:
            self.done += 1
            seat.done += 1

    def _deal(self, loaded: LoadedProgram, bound: BoundPlan) -> None:
        needs, timed = bound.plan.needs(), bound.plan
        choice = choose(timed, needs, loaded.threads, overlap=loaded.overlap, spare=loaded.spare)
        if choice is None:
            return
        group = loaded.seat.group
        # The step that was just timed is still to be fetched from: binding writes nothing.
        assert bound.binder is not None, "what may be dealt to threads can be bound again"
        loaded.uses_lanes = True
        bound.use(bound.binder.plan(choice))
        bound.plan.trace, bound.plan.started = timed.trace, timed.started
        bound.plan.lanes = Lanes(
            bound.plan.instructions,
            choice,
            needs,
            every_lock=not loaded.options.build.remove_unnecessary_lock,
            within=self.within,
            on_failure=group.abort if group is not None else lambda reason: None,
            waited=bound.plan.waited,
        )

    def _begin_collectives(self, loaded: LoadedProgram, step: int) -> None:
        """Say which step the collectives of a program belong to from now on."""
        seat, options = loaded.seat, loaded.options
        if seat.group is not None:
            done = seat.done if options.trainers else self.done + len(self._undecided)
            seat.group.begin(pack_step(done if options.rings else step, done))

    def _with_row_counts(
        self, loaded: LoadedProgram, feeds: Sequence[np.ndarray], step: int
    ) -> Sequence[np.ndarray]:
        """Return the feeds with the row counts of all trainers' places; the driver fed those of its own."""
        place, group = loaded.row_counts, loaded.seat.group
        if place is None or group is None:
            return feeds
        self._begin_collectives(loaded, step)
        when = When(self.within, f"row counts of schedule {loaded.schedule}")
        counts = group.exchange(feeds[place][:, group.rank], when).T
        return [*feeds[:place], np.ascontiguousarray(counts), *feeds[place + 1 :]]

    def _after_earlier(
        self,
        loaded: LoadedProgram,
        form: LastSegment,
        feeds: Sequence[np.ndarray],
        now: Clock,
    ) -> Sequence[np.ndarray]:
        """Run the parts before the last segment of a program, or of its idle form; return what that is fed."""
        if form is loaded and not form.earlier:
            return feeds
        values: Values = dict(zip(loaded.whole.feeds, feeds, strict=True))
        if form.earlier:
            self._began = time.monotonic()
            self._loops_until = LoopDeadline(loaded.options.within)
            self._undecided.leave(0)
            if loaded.meets_early:
                self._begin_collectives(loaded, now.step)
            self._run_parts(loaded, now, form.earlier, values, {})
        return fed_to(form.program, values)

    def _run_parts(
        self,
        loaded: LoadedProgram,
        now: Clock,
        parts: Sequence[Segment | HostCall],
        values: Values,
        totals: Totals,
    ) -> None:
        """Run segments and host calls on ``values``; store results there, or add them to ``totals``."""
        around = self._calling
        for part in parts:
            if isinstance(part, HostCall):
                self._calling = part
                part.run(values, partial(self._run_round, loaded, now), self._loops_until)
                continue
            fed = fed_to(part.program, values)
            bound = self._plan_for(loaded, part, fed)
            bound.plan.device.clock.show(now)
            self._under_way = bound.plan if part.program.buckets else self._under_way
            bound.plan.run(fed)
            lent = len(part.program.fetches) if totals and self.runtime is None else 0
            fetched = iter(bound.plan.fetched(part.unread, lent))
            for k, i in enumerate(part.program.fetches):
                if k in part.unread:
                    values[i] = bound.plan.shaped(k)
                elif i in totals:
                    add_to(totals[i], next(fetched))
                else:
                    values[i] = next(fetched).copy() if lent else next(fetched)
        self._calling = around

    def _run_round(
        self,
        loaded: LoadedProgram,
        now: Clock,
        parts: Sequence[Segment | HostCall],
        values: Values,
        number: int,
        totals: Totals,
    ) -> None:
        """Run a round of a loop."""
        self._run_parts(loaded, now.in_round(number), parts, values, totals)

    def _bound(
        self, loaded: LoadedProgram, form: LastSegment, feeds: Sequence[np.ndarray]
    ) -> BoundPlan:
        """Return the plan for what is fed: for its places if they last, else for its shapes."""
        lasting = self._lasting and bool(feeds) and self.runtime is None and form is loaded
        lasting = lasting and not form.earlier and not form.cache.shapes.known.feeds
        if not lasting:
            return self._plan_for(loaded, form, feeds)
        key = id(feeds)
        return form.plans.get(key) or self.keep_plan(loaded, form, key, feeds, lasting)

    def _plan_for(self, loaded: LoadedProgram, segment: Segment, feeds: Sequence[Any]) -> BoundPlan:
        """Return a segment's plan for the shapes of what is fed, and for elements on which shapes depend."""
        forms = forms_of(feeds)
        key = segment.cache.shapes.key(feeds, forms)
        return segment.plans.get(key) or self.keep_plan(loaded, segment, key, feeds, forms=forms)
