"""Replica: one copy of a training program. It answers the messages that a gang delivers, wherever it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...strategies.errors import CollectiveAborted, NotInitialized
from ..cuda.memory import DeviceMemory
from ..cuda.runtime import Runtime
from ..cuda.transfers import download
from ..host.arena import Memory
from ..host.cores import openmp_threads, working_threads
from ..host.memory import available_memory
from ..kernels.capabilities import versions
from ..kernels.measure import Limit, measure
from ..plan.cuda_plan import CudaPlan
from ..plan.group import CollectiveGroup, When
from . import orders
from .agreement import NO_STEP
from .loaded import LoadedProgram, Seat
from .message import Message
from .steps import StepRunner

# Makes a group in this process: its name, the rank, how many there are, the GPU, seconds to wait for others.
Form = Callable[[str, int, int, Runtime | None, float], CollectiveGroup]


class Replica(StepRunner):
    """Answers messages, each kind by ``on_<kind>``: loads programs, runs steps, reads and writes persistables.

    ``group`` joins it to its peers (None: it is alone). ``openmp``: threads that OpenMP may start for it, where
    replicas share a process (0: as many as the process may). ``form`` makes groups with replicas of other
    trainers.
    """

    def __init__(
        self,
        rank: int,
        group: CollectiveGroup | None,
        within: float = 60.0,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__(rank, within, runtime)
        self.group = group
        self.epoch = self._group_epoch = 0
        self.in_driver = False  # errors need not tell which replica it is
        self.openmp = 0
        self.form: Form | None = None
        self.trainers: dict[str, Seat] = {}  # by name: groups of replicas of several trainers
        self.look_ahead: Callable[[], None] | None = None  # for the next message: see stage()
        self._staged: CudaPlan | None = None
        if group is not None:
            self._introduce(group)

    def handle(self, message: Message) -> Message:
        """Answer a message; an exception becomes an ``error`` message."""
        order = None
        staged, self._staged = self._staged, None
        try:
            if self.runtime is not None:
                self.runtime.use()
            self._first_step, self._lasting = message.step, message.lasting
            order = orders.unpack(message)
            if isinstance(order, orders.Step):
                return self.on_step(order, message.arrays)
            self._undecided.settle()
            if isinstance(order, orders.Write):
                return self.on_write(order, message.arrays)
            answer: Callable[[Any], Message] = getattr(self, f"on_{message.kind}")
            return answer(order)
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

    def on_join_trainers(self, order: orders.JoinTrainers) -> Message:
        """Form a group with replicas of other trainers."""
        assert self.form is not None, "set by what makes the replica"
        group = self.form(order.name, order.rank, order.size, self.runtime, order.within)
        group.share_cores(self.at_work)
        self.trainers[order.name] = Seat(group, order.rank)
        return orders.OK

    def on_leave_trainers(self, order: orders.LeaveTrainers) -> Message:
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

    def on_spread(self, order: orders.Spread) -> Message:
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

    def on_load(self, order: orders.Load) -> Message:
        """Load a program (or its JSON), to run on the device scope ``scope``.

        The answer has the memory that it may use: this replica's share of what its host has left, and what the
        replica already holds that the program will use.
        """
        self._meet(order.epoch, order.options.alone)
        neighbours = self.group.local_size if self.group is not None else 1
        present = self.scopes[order.scope].nbytes
        host_share = available_memory() // neighbours
        free = host_share if self.runtime is None else self.runtime.memory()[0]
        memory = free + present + self.memory.taken
        cores = max(min((os.cpu_count() or 1) // neighbours, len(os.sched_getaffinity(0))), 1)
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

    def on_unload(self, order: orders.Unload) -> Message:
        """Forget programs and device scopes."""
        for program in order.programs:
            loaded = self.programs.pop(program, None)
            if loaded is not None:
                loaded.release()
        for scope in order.scopes:
            self.scopes.pop(scope, None)
        return orders.OK

    def on_inventory(self, order: orders.Inventory) -> Message:
        """Tell how many programs and device scopes are held, and how many steps were done."""
        return orders.pack(orders.Stock(len(self.programs), len(self.scopes), self.done))

    def on_libraries(self, order: orders.Libraries) -> Message:
        """Tell which libraries can compute here, in which versions."""
        return orders.pack(orders.Versions(versions(self.runtime)))

    def on_measure(self, order: orders.Measure) -> Message:
        """Time kernels on this host's processor."""
        with openmp_threads(self.openmp):
            limit, threads = Limit(order.within, order.until), working_threads()
            return orders.pack(measure(order.questions, order.math, threads, limit))

    def on_write(self, order: orders.Write, arrays: Sequence[np.ndarray]) -> Message:
        """Write persistables of a device scope."""
        if self.scopes[order.scope].write(order.names, arrays):
            self.forget_plans(order.scope)
        return orders.OK

    def on_read(self, order: orders.Read) -> Message:
        """Return copies of persistables of a device scope."""
        scope = self.scopes[order.scope]
        missing = [name for name in order.names if name not in scope.arrays]
        if missing:
            raise NotInitialized(f"replica {self.rank} holds no value for {', '.join(missing)}.")
        return Message("values", {}, [scope.read(name) for name in order.names])

    def on_step(self, order: orders.Step, arrays: Sequence[np.ndarray]) -> Message:
        """Run steps of a loaded program on the fed arrays; return what the last one fetches."""
        loaded = self.programs[order.id]
        self._meet(order.epoch, loaded.options.alone)
        return self.run_steps(loaded, order, arrays)

    def on_roll_forward(self, order: orders.RollForward) -> Message:
        """After a failure: finish the step that a peer has finished, if it can."""
        self.roll_forward(order.upto)
        return orders.pack(orders.Stand(self.done))

    def on_resume(self, order: orders.Resume) -> Message:
        """Count on from ``done`` steps: the values of a replica that has done so many were copied here."""
        self.done, self._under_way = order.done, None
        return orders.OK

    def on_names(self, order: orders.Names) -> Message:
        """Tell what the device scopes hold: names by scope."""
        return orders.pack(
            orders.PersistableNames([(number, list(s.arrays)) for number, s in self.scopes.items()])
        )

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
        group.while_waiting(self._prepare_next)

    def _prepare_next(self) -> None:
        if self.look_ahead is not None:
            self.look_ahead()

    def stage(self, message: Message) -> None:
        """Begin to copy the feeds of the next message to the GPU, if there is a plan for them."""
        if message.kind != "step":
            return
        order = orders.unpack(message)
        loaded = self.programs.get(order.id)
        if loaded is None or order.iterations != 1 or order.epoch != self._group_epoch:
            return
        # What is computed first, or other trainers' row counts, tell which plan runs.
        if loaded.earlier or loaded.row_counts is not None:
            return
        if order.idle[0]:  # little is fed to its plan
            return
        bound = loaded.plans.get(loaded.cache.shapes.key(message.arrays))
        if bound is not None and isinstance(bound.plan, CudaPlan):
            bound.plan.stage(message.arrays, lasting=message.lasting)
            self._staged = bound.plan

    def on_drop(self, order: orders.Drop) -> Message:
        """End the life of a program's temporaries and give their memory back."""
        loaded = self.programs.get(order.id)
        if loaded is not None:
            loaded.forget_plans()
            loaded.memory.give_back()
        return orders.OK

    def on_temporaries(self, order: orders.Temporaries) -> Message:
        """Tell how many temporaries of a program are alive, and their bytes."""
        plan = self.programs[order.id].alive
        count, nbytes = plan.temporaries if plan is not None else (0, 0)
        return orders.pack(orders.Alive(count, nbytes))

    def on_trace(self, order: orders.Trace) -> Message:
        """Keep times of a program's steps from now on (``on``), and return those of the last steps."""
        loaded = self.programs[order.id]
        loaded.tracing = order.on
        lanes = loaded.last.lanes if loaded.last is not None else None
        steps = [step.plain() for step in loaded.traced]
        return orders.pack(orders.StepTraces(steps, lanes.signals if lanes else 0))

    def on_graphs(self, order: orders.Graphs) -> Message:
        """Tell of which graphs a program's last step on a GPU is made, and why of several."""
        plan = self.programs[order.id].last
        return orders.pack(
            orders.GraphTexts(plan.described() if isinstance(plan, CudaPlan) else [])
        )

    def on_clock(self, order: orders.Clock) -> Message:
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
                    self.forget_all_plans()
                self.group.reset(epoch)
                self.group.begin(NO_STEP)  # one that failed early is behind the others
