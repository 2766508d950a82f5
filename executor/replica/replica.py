"""Replica: one copy of a training program. It answers the messages that a gang delivers, wherever it runs."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.registry import Spec
from ...strategies.errors import CollectiveAborted, NotInitialized
from ...strategies.garbage import gc_paused
from ..cuda.memory import DeviceMemory
from ..cuda.runtime import Runtime
from ..cuda.transfers import Arriving, download
from ..device.device import Clock as DeviceClock
from ..device.device import Device
from ..device.device_scope import DeviceScope
from ..host.arena import Memory, spec_of
from ..host.cores import openmp_threads, working_threads
from ..host.memory import available_memory
from ..kernels.capabilities import versions
from ..kernels.measure import Limit, measure
from ..plan.bind import Binder
from ..plan.cuda_plan import CudaPlan
from ..plan.group import CollectiveGroup, When
from ..plan.memory import SizedByStep
from ..plan.overlap import choose
from ..plan.plan import Plan, Vote
from ..plan.run import MEASURED_STEPS, Lanes
from ..plan.shapes import Inferred, Telling
from ..plan.traced import TracedStep
from . import orders
from .agreement import NO_STEP, pack_step
from .host_call import Allowance, HostCall, Totals, Values, add_to, fed_to
from .loaded import BoundPlan, LastSegment, LoadedProgram, Seat, Segment
from .message import Message
from .undecided import UndecidedStep, UndecidedSteps

_AHEAD = 1  # steps that a GPU may still be at when it is given another one
# Makes a group in this process: its name, the rank, how many there are, the GPU, seconds to wait for others.
Form = Callable[[str, int, int, Runtime | None, float], CollectiveGroup]


class Replica:
    """Holds device scopes and loaded programs, and runs steps; ``on_<kind>`` answers each kind of message.

    ``group`` joins it to its peers (None: it is alone). ``runtime`` is the GPU that holds its scopes and
    temporaries (None: the host). ``post`` sends the driver a message that must arrive even if this process
    ends before its answer. ``done`` counts the steps that were voted for and written. ``openmp``: threads that
    OpenMP may start for it, where replicas share a process (0: as many as the process may). ``form`` makes
    groups with replicas of other trainers.
    """

    def __init__(
        self,
        rank: int,
        group: CollectiveGroup | None,
        within: float = 60.0,
        runtime: Runtime | None = None,
    ) -> None:
        self.rank = rank
        self.group = group
        self.within = within
        self.runtime = runtime
        self.scopes: defaultdict[int, DeviceScope] = defaultdict(partial(DeviceScope, runtime))
        self.programs: dict[int, LoadedProgram] = {}
        # One step runs at a time, so its plans can share memory.
        self.memory: Memory | DeviceMemory = (
            Memory() if runtime is None else DeviceMemory(runtime, self._forget_all_plans)
        )
        self.epoch = self._group_epoch = 0
        self.done = 0
        self.bindings = 0
        self.in_driver = False  # errors need not tell which replica it is
        self.openmp = 0
        self.post: Callable[[Message], None] | None = None
        self.form: Form | None = None
        self.trainers: dict[str, Seat] = {}  # by name: groups of replicas of several trainers
        self._step, self._lasting = 0, False
        self._under_way: Plan | None = None
        self._began = 0.0
        self._measuring = False
        self._calling: HostCall | None = None
        self.look_ahead: Callable[[], None] | None = None  # for the next message: see stage()
        self._staged: CudaPlan | None = None
        self._undecided = UndecidedSteps(within, self._count, self._failed_on_gpu)
        self._newest: UndecidedStep | None = None
        if group is not None:
            self._introduce(group)

    def handle(self, message: Message) -> Message:
        """Answer a message; an exception becomes an ``error`` message."""
        order = None
        staged, self._staged = self._staged, None
        try:
            answer: Callable[[Any, Sequence[np.ndarray]], Message]
            if self.runtime is not None:
                self.runtime.use()
            answer = getattr(self, f"on_{message.kind}")
            self._step, self._lasting = message.step, message.lasting
            order = orders.unpack(message)
            if not isinstance(order, orders.Step):
                self._undecided.settle()
            return answer(order, message.arrays)
        except Exception as error:
            return self.failed(error, order)
        finally:
            if staged is not None and staged is not self._staged:
                staged.forget_staged()

    def failed(self, error: Exception, order: Any = None) -> Message:
        """Tell the other replicas that this one failed, if they are not the cause; return the answer."""
        self._undecided.settle()  # steps that all were given before happen on all
        collateral = isinstance(error, CollectiveAborted)
        group = self._seat_of(order).group
        if group is not None and not collateral:
            group.abort(f"{type(error).__name__}: {error}")
        kind = type(error).__name__
        return orders.pack(orders.Failure(self.rank, kind, str(error), collateral, self.done))

    def _count(self) -> None:
        self.done += 1

    def _failed_on_gpu(self) -> Exception | None:
        memory = self.memory
        return memory.asserts.failed(self.rank) if isinstance(memory, DeviceMemory) else None

    def _seat_of(self, order: Any) -> Seat:
        """Return where an order's program meets its peers: trainers, or the gang's group if it is not alone."""
        if isinstance(order, orders.Step) and order.id in self.programs:
            return self.programs[order.id].seat
        name, group = "", self.group
        if isinstance(order, orders.Load):
            name, group = order.options.trainers, None if order.options.alone else group
        elif isinstance(order, orders.Spread):
            name = order.group
        return self.trainers.get(name) or Seat(group, None if self.in_driver else self.rank)

    def on_join_trainers(self, order: orders.JoinTrainers, arrays: Sequence[np.ndarray]) -> Message:
        """Form a group with replicas of other trainers."""
        assert self.form is not None, "set by what makes the replica"
        group = self.form(order.name, order.rank, order.size, self.runtime, order.within)
        group.share_cores(self.at_work)
        self.trainers[order.name] = Seat(group, order.rank)
        return orders.OK

    def on_leave_trainers(
        self, order: orders.LeaveTrainers, arrays: Sequence[np.ndarray]
    ) -> Message:
        """Leave a group of trainers, with the programs that met there."""
        for number in [
            n for n, program in self.programs.items() if program.options.trainers == order.name
        ]:
            self.programs.pop(number).release()
        seat = self.trainers.pop(order.name, None)
        if seat is not None and seat.group is not None:
            if order.reason:
                seat.group.abort(order.reason)
            seat.group.close()
        return orders.OK

    def on_spread(self, order: orders.Spread, arrays: Sequence[np.ndarray]) -> Message:
        """Copy persistables from one rank of a group of trainers to all."""
        seat, scope = self.trainers[order.group], self.scopes[order.scope]
        assert seat.group is not None
        values = {name: scope.read(name) for name in order.names}
        seat.group.begin(NO_STEP)
        row = seat.group.buffer(max((value.nbytes for value in values.values()), default=0))
        for name, value in values.items():
            part = row[: value.nbytes]
            if seat.rank == order.root:
                self._fill(part, value.reshape(-1).view(np.uint8))
            tag = f"{name}, {value.dtype} {list(value.shape)}"
            seat.group.broadcast(part, order.root, When(self.within, tag))
            if seat.rank != order.root:
                bits = np.array(part) if self.runtime is None else download(self.runtime, part)
                scope.write([name], [bits.view(value.dtype).reshape(value.shape)])
        seat.group.release(row)
        return orders.OK

    def _fill(self, part: Any, value: np.ndarray) -> None:
        """Copy a row of bytes to memory that a group reaches."""
        if self.runtime is None:
            part[...] = value
        else:
            self.runtime.copy(part, value, self.runtime.compute)
            self.runtime.record(self.runtime.compute).synchronize()

    def on_load(self, order: orders.Load, arrays: Sequence[np.ndarray]) -> Message:
        """Load a program (or its JSON), to run on the device scope ``scope``.

        The answer has the memory that it may use: this replica's share of what its host has left, and what the
        replica already holds that the program will use.
        """
        self._meet(order.epoch, order.options.alone)
        shared = self.group.local_size if self.group is not None else 1
        present = self.scopes[order.scope].nbytes
        free = available_memory() // shared if self.runtime is None else self.runtime.memory()[0]
        memory = free + present + self.memory.taken
        share = (os.cpu_count() or 1) // (self.group.local_size if self.group else 1)
        cores = max(min(share, len(os.sched_getaffinity(0))), 1)
        seat = self._seat_of(order)
        twin = self._twin(order) if order.options.trainers else None
        # Of its own on the driver's thread: a function that a program calls may run another program there.
        own = Memory() if self.in_driver else self.memory
        self.programs[order.id] = LoadedProgram(
            order, seat, own, cores, self.openmp, self.within, self.runtime, twin
        )
        return orders.pack(orders.ProgramMemory(memory))

    def _twin(self, order: orders.Load) -> LoadedProgram | None:
        """Return a loaded program that has the same collectives with other trainers, if there is one."""
        program = order.program
        if isinstance(program, str):
            program = ReplicaProgram.from_json(program)
        mine = program.meetings if order.options.rings else program.schedule
        peers = (p for p in self.programs.values() if p.options.trainers == order.options.trainers)
        return next((peer for peer in peers if peer.schedule == mine), None)

    def on_unload(self, order: orders.Unload, arrays: Sequence[np.ndarray]) -> Message:
        """Forget programs and device scopes."""
        for program in order.programs:
            loaded = self.programs.pop(program, None)
            if loaded is not None:
                loaded.release()
        for scope in order.scopes:
            self.scopes.pop(scope, None)
        return orders.OK

    def on_inventory(self, order: orders.Inventory, arrays: Sequence[np.ndarray]) -> Message:
        """Tell how many programs and device scopes are held, and how many steps were done."""
        return orders.pack(orders.Stock(len(self.programs), len(self.scopes), self.done))

    def on_libraries(self, order: orders.Libraries, arrays: Sequence[np.ndarray]) -> Message:
        """Tell which libraries can compute here, in which versions."""
        return orders.pack(orders.Versions(versions(self.runtime)))

    def on_measure(self, order: orders.Measure, arrays: Sequence[np.ndarray]) -> Message:
        """Time kernels on this host's processor."""
        with openmp_threads(self.openmp):
            limit, threads = Limit(order.within, order.until), working_threads()
            return orders.pack(measure(order.questions, order.math, threads, limit))

    def on_write(self, order: orders.Write, arrays: Sequence[np.ndarray]) -> Message:
        """Write persistables of a device scope."""
        if self.scopes[order.scope].write(order.names, arrays):
            self.forget_plans(order.scope)
        return orders.OK

    def on_read(self, order: orders.Read, arrays: Sequence[np.ndarray]) -> Message:
        """Return copies of persistables of a device scope."""
        scope = self.scopes[order.scope]
        missing = [name for name in order.names if name not in scope.arrays]
        if missing:
            raise NotInitialized(f"replica {self.rank} holds no value for {', '.join(missing)}.")
        return Message("values", {}, [scope.read(name) for name in order.names])

    def on_step(self, order: orders.Step, arrays: Sequence[np.ndarray]) -> Message:
        """Run steps of a loaded program on the fed arrays; return what the last one fetches.

        All ``iterations`` steps run on the same arrays, or each on its own set of arrays if as many came.
        ``idle``: this place has no rows in that step. Fetches that were posted are not returned again.
        """
        loaded = self.programs[order.id]
        self._meet(order.epoch, loaded.options.alone)
        width, sets = len(loaded.whole.feeds), len(order.rows)
        self._lasting = self._lasting and sets == 1
        last = order.iterations - 1
        for k in range(last + 1):
            s = k % sets
            feeds = arrays[s * width : (s + 1) * width] if sets > 1 else arrays
            now = DeviceClock(self._step + k, order.rows[s], order.parts[s])
            self._began = time.monotonic()
            feeds = self._with_row_counts(loaded, feeds, now.step)
            form = loaded.idle if order.idle[s] else loaded
            feeds = self._after_earlier(loaded, form, feeds, now)
            bound = self._bound(loaded, form, feeds)
            bound.plan.device.clock.show(now)
            self._began = time.monotonic()
            self._run(loaded, bound, feeds, last=k == last)
        assert loaded.last is not None, "there is at least one step"
        fetched = loaded.last.fetched(self._handed(loaded.last))
        if isinstance(fetched, Arriving):
            fetched.step = self._newest
        for number in order.drop:
            self.programs[number].alive = None
        return Message("fetched", {}, fetched)

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
            feeds = self._after_earlier(loaded, loaded, feeds, DeviceClock(step))
            shapes = loaded.cache.shapes.key(feeds)
        bound = loaded.plans.get(shapes)
        if bound is None:
            bound = self._keep_plan(loaded, loaded, shapes, feeds)
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

    def _handed(self, plan: Plan) -> Mapping[int, Any]:
        """Return the fetches of a plan that were posted, by position in the fetch list."""
        return plan.vote.early if plan.vote is not None and self.post is not None else {}

    def on_roll_forward(self, order: orders.RollForward, arrays: Sequence[np.ndarray]) -> Message:
        """After a failure: finish the step that a peer has finished (``upto`` steps in all), if it can.

        It can if it came to the vote; if it did not, the driver copies the values to it.
        """
        plan = self._under_way
        prepared = plan is not None and plan.vote is not None and plan.vote.stage == Vote.PREPARED
        if plan is not None and prepared and order.upto == self.done + 1:
            plan.apply()
            self.done += 1
        self._under_way = None
        return orders.pack(orders.Stand(self.done))

    def catch_up(self, other: Replica) -> None:
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

    def on_resume(self, order: orders.Resume, arrays: Sequence[np.ndarray]) -> Message:
        """Count on from ``done`` steps: the values of a replica that has done so many were copied here."""
        self.done, self._under_way = order.done, None
        return orders.OK

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

    def on_names(self, order: orders.Names, arrays: Sequence[np.ndarray]) -> Message:
        """Tell what the device scopes hold: names by scope."""
        return orders.pack(
            orders.PersistableNames([(number, list(s.arrays)) for number, s in self.scopes.items()])
        )

    def forget_fed(self) -> None:
        """Forget the plans that read feeds in place, from shared memory that is about to be released."""
        for loaded in self.programs.values():
            for bound in loaded.plans:
                if bound.fed is not None:
                    loaded.plans.forget(bound)
            loaded.alive = loaded.last = None

    def join(self, rank: int, group: CollectiveGroup | None) -> None:
        """Join another group, as ``rank``; loaded programs are forgotten, and have to be loaded again."""
        for loaded in self.programs.values():
            loaded.forget_plans()
        self.programs.clear()
        if self.group is not None:
            self.group.close()
        self.rank, self.group, self.epoch, self._group_epoch = rank, group, 0, 0
        if group is not None:
            self._introduce(group)

    def _introduce(self, group: CollectiveGroup) -> None:
        group.share_cores(self.at_work)
        group.while_waiting(self._wait_for_gpu)

    def _wait_for_gpu(self) -> None:
        if self.look_ahead is not None:
            self.look_ahead()

    def stage(self, message: Message) -> None:
        """Begin to copy the feeds of the next message to the GPU, if there is a plan for them."""
        if message.kind != "step":
            return
        order = orders.unpack(message)
        loaded = self.programs.get(order.id)
        if (
            loaded is None
            or loaded.earlier
            or order.iterations != 1
            or order.epoch != self._group_epoch
        ):
            return
        if order.idle[0]:  # little is fed to its plan
            return
        bound = loaded.plans.get(loaded.cache.shapes.key(message.arrays))
        if bound is not None and isinstance(bound.plan, CudaPlan):
            bound.plan.stage(message.arrays, lasting=message.lasting)
            self._staged = bound.plan

    def at_work(self) -> bool:
        """Tell whether a collective should sleep, not spin, while it waits; any thread may ask.

        It should while instructions are timed: busy time then matches the overlapped case.
        """
        plan = self._under_way
        return self._measuring or (plan is not None and plan.at_work())

    def on_drop(self, order: orders.Drop, arrays: Sequence[np.ndarray]) -> Message:
        """End the life of a program's temporaries and give their memory back."""
        loaded = self.programs.get(order.id)
        if loaded is not None:
            loaded.forget_plans()
            loaded.memory.give_back()
        return orders.OK

    def on_temporaries(self, order: orders.Temporaries, arrays: Sequence[np.ndarray]) -> Message:
        """Tell how many temporaries of a program are alive, and their bytes."""
        plan = self.programs[order.id].alive
        count, nbytes = plan.temporaries if plan is not None else (0, 0)
        return orders.pack(orders.Alive(count, nbytes))

    def on_trace(self, order: orders.Trace, arrays: Sequence[np.ndarray]) -> Message:
        """Keep times of a program's steps from now on (``on``), and return those of the last steps."""
        loaded = self.programs[order.id]
        loaded.tracing = order.on
        lanes = loaded.last.lanes if loaded.last is not None else None
        steps = [step.plain() for step in loaded.traced]
        return orders.pack(orders.StepTraces(steps, lanes.signals if lanes else 0))

    def on_graphs(self, order: orders.Graphs, arrays: Sequence[np.ndarray]) -> Message:
        """Tell of which graphs a program's last step on a GPU is made, and why of several."""
        plan = self.programs[order.id].last
        return orders.pack(
            orders.GraphTexts(plan.described() if isinstance(plan, CudaPlan) else [])
        )

    def on_clock(self, order: orders.Clock, arrays: Sequence[np.ndarray]) -> Message:
        """Tell what the clock of traced steps shows."""
        return orders.pack(orders.Now(time.perf_counter()))

    def close(self) -> None:
        """Let go of everything."""
        for loaded in self.programs.values():
            loaded.forget_plans()
        self.programs.clear()
        self.scopes.clear()
        for group in (self.group, *(seat.group for seat in self.trainers.values())):
            if group is not None:
                group.close()
        self.trainers.clear()

    def _meet(self, epoch: int, alone: bool) -> None:
        """After a failure the driver counts the epoch up, and all ranks begin their collectives afresh.

        Ranks wait there for each other, so a program that runs ``alone`` leaves it to the next of all.
        """
        if epoch != self.epoch:
            self._undecided.settle()
            self.epoch = epoch
            if isinstance(self.memory, DeviceMemory):
                self.memory.asserts.reset()
        if epoch != self._group_epoch and not alone:
            self._group_epoch = epoch
            if self.group is not None:
                if self.runtime is not None:  # captured graphs hold what the group lets go of
                    self._forget_all_plans()
                self.group.reset(epoch)
                self.group.begin(NO_STEP)  # one that failed early is behind the others

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
        measuring = loaded.parallel and bound.timed_steps < MEASURED_STEPS
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
        if place is None or group is None or not loaded.options.trainers:
            return feeds
        self._begin_collectives(loaded, step)
        by_rank = np.array(feeds[place].T, order="C")
        ends = [by_rank.shape[1] * (rank + 1) for rank in range(group.size)]
        tag = f"row counts of schedule {loaded.schedule}"
        flat = by_rank.reshape(-1)
        group.broadcast_parts(flat, ends, range(group.size), When(self.within, tag))
        return [*feeds[:place], np.ascontiguousarray(by_rank.T), *feeds[place + 1 :]]

    def _after_earlier(
        self,
        loaded: LoadedProgram,
        form: LastSegment,
        feeds: Sequence[np.ndarray],
        now: DeviceClock,
    ) -> Sequence[np.ndarray]:
        """Run the parts before the last segment of a program, or of its idle form; return what that is fed."""
        if form is loaded and not form.earlier:
            return feeds
        values: Values = dict(zip(loaded.whole.feeds, feeds, strict=True))
        if form.earlier:
            self._began = time.monotonic()
            self._undecided.leave(0)
            if loaded.meets_early:
                self._begin_collectives(loaded, now.step)
            self._run_parts(loaded, now, form.earlier, values, {})
        return fed_to(form.program, values)

    def _run_parts(
        self,
        loaded: LoadedProgram,
        now: DeviceClock,
        parts: Sequence[Segment | HostCall],
        values: Values,
        totals: Totals,
    ) -> None:
        """Run segments and host calls on ``values``; store results there, or add them to ``totals``."""
        around = self._calling
        for part in parts:
            if isinstance(part, HostCall):
                self._calling = part
                allowance = Allowance(self._began, loaded.options.within)
                part.run(values, partial(self._run_round, loaded, now), allowance)
                continue
            fed = fed_to(part.program, values)
            key = part.cache.shapes.key(fed)
            bound = part.plans.get(key)
            if bound is None:
                bound = self._keep_plan(loaded, part, key, fed, specs=key[: len(fed)])
            bound.plan.device.clock.show(now)
            self._under_way = bound.plan if part.program.buckets else self._under_way
            bound.plan.run(fed)
            lent = len(part.program.fetches) if totals and self.runtime is None else 0
            fetched = bound.plan.fetched(lent=lent)
            for i, array in zip(part.program.fetches, fetched, strict=True):
                if i in totals:
                    add_to(totals[i], array)
                else:
                    values[i] = array.copy() if lent else array
        self._calling = around

    def _run_round(
        self,
        loaded: LoadedProgram,
        now: DeviceClock,
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
        key: Hashable = id(feeds) if lasting else form.cache.shapes.key(feeds)
        bound = form.plans.get(key)
        return bound or self._keep_plan(loaded, form, key, feeds, lasting)

    def _keep_plan(
        self,
        loaded: LoadedProgram,
        segment: Segment,
        key: Hashable,
        feeds: Sequence[np.ndarray],
        lasting: bool = False,
        specs: Sequence[Spec] | None = None,
    ) -> BoundPlan:
        """Cache a plan of a segment under ``key``: one for the same shapes that is there, or a new one.

        ``specs``: those of the feeds, if they are known.
        """
        self._undecided.leave(0)  # the GPU may be asked to finish what it does
        scope = self.scopes[loaded.scope]
        if scope.migrate(segment.program.sides):
            self.forget_plans(loaded.scope)
        inferred = segment.infer(specs or [spec_of(a) for a in feeds], feeds, scope.spec)
        # What a graph holds is the same whenever it is launched.
        known = segment.cache.shapes.met(inferred) if self.runtime is not None else {}
        telling = segment.cache.shapes.telling(inferred)
        shapes = None if lasting else (telling, *(a.tobytes() for a in known.values()))
        bound = segment.plans.alike(shapes)
        if bound is None:
            with gc_paused():
                bound = self._bind(loaded, segment, inferred, telling, feeds, known, lasting)
        segment.plans.keep(key, shapes, bound)
        return bound

    def _bind(
        self,
        loaded: LoadedProgram,
        segment: Segment,
        inferred: Inferred,
        telling: Sequence[Telling],
        feeds: Sequence[Any],
        known: Mapping[int, np.ndarray],
        lasting: bool,
    ) -> BoundPlan:
        self.bindings += 1
        complete = partial(segment.cache.shapes.complete, inferred)
        dealt = loaded.parallel and isinstance(segment, LastSegment)
        if not (lasting or dealt):
            resized = segment.resized(telling, complete)
            if resized is not None:
                return BoundPlan(segment.program, resized, None, None, self.post)
        scope, program = self.scopes[loaded.scope], segment.program
        captures = loaded.options.build.allow_cuda_graph_capture is not False
        binder = Binder(
            program,
            Device(
                seed=program.seed,
                math=program.math,
                memory=loaded.memory,
                writes=scope.writes,
                passes=scope.passes,
                runtime=self.runtime,
            ),
            complete(),
            scope.allocate,
            segment.buckets,
            loaded.peers(segment),
            fed=feeds if lasting else None,
            memory_options=loaded.options.memory_options,
            cache=segment.cache,
            make=partial(CudaPlan, captures=captures) if self.runtime else Plan,
            sized_by_step=self._sized_by_step(loaded, program),
            known=known,
        )
        fed = feeds if lasting else None
        bound = BoundPlan(program, binder.plan(), binder, fed, self.post)
        resizer = None if lasting or dealt else binder.resizer()
        if resizer is not None:
            segment.resize(resizer)
            bound.binder = None
        if isinstance(bound.plan, CudaPlan):
            bound.plan.settle = partial(self._undecided.leave, 0)
        if self.runtime is not None:
            # Libraries timed what they can do on memory like the operands'.
            self.runtime.give_back()
        return bound

    def _sized_by_step(self, loaded: LoadedProgram, program: ReplicaProgram) -> SizedByStep | None:
        names, scope = program.sized_by_step(), self.scopes[loaded.scope]
        return SizedByStep(names, scope.new, partial(self._put, loaded.scope)) if names else None

    def _put(self, number: int, name: str, array: Any) -> None:
        """Make memory that a step wrote a persistable's; plans that read its old memory are bound again."""
        moved = self.scopes[number].put(name, array)
        for loaded in self.programs.values():
            if loaded.scope == number:
                loaded.forget_states()
                if moved and name in loaded.whole.needed_names():
                    loaded.forget_plans()

    def _forget_all_plans(self) -> None:
        for loaded in self.programs.values():
            loaded.forget_plans()

    def forget_plans(self, scope: int) -> None:
        """Forget the plans that use a device scope, as some of its memory has moved."""
        for loaded in self.programs.values():
            if loaded.scope == scope:
                loaded.forget_plans()
