"""The actor that runs a replica: placed by Ray, spoken to through the step channel."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import ray

from ...strategies.garbage import gc_paused

with gc_paused():  # searches would be a fifth of the time that an actor takes to start
    from ...executor.cuda.runtime import Runtime
    from ...executor.device.gpus import open_gpu
    from ...executor.host.cores import set_threads
    from ...executor.plan.group import CollectiveGroup
    from ...executor.replica.message import Message
    from ...executor.replica.orders import OK, LeaveTrainers, Regroup, Step
    from ...executor.replica.replica import Replica
    from ...graph.ops.python_function import FUNCTIONS
    from ...strategies import build as _build  # noqa: F401 - programs come with both: read them before
    from ...strategies import execution as _execution  # noqa: F401 - peers wait for a program to be loaded
    from ..channel.connection import ReplicaServer
    from ..channel.heartbeat import HeartbeatServer
    from ..channel.listener import STEPS, WATCH, connect
    from ..collective.backends import form_group
    from ..collective.backends.rowlock import leave_group
    from ..collective.forming import Terms
    from ..primitives.shm import check_shared_memory, sweep
    from .pinning import CoreKeeper


class RayReplica(Replica):
    """A replica that joins groups of ``ray.util.collective`` when it is told to."""

    def on_regroup(self, order: Regroup) -> Message:
        """Leave the group this replica is in, and join another (none if it would be alone)."""
        name, rank, size, backend, within, pin = order
        self.join(rank, None)
        if self._group_name:
            leave_group(self._group_name)
        self._group_name = name if size > 1 else ""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        if pin is not None:
            self._keeper = CoreKeeper(*pin)
            self._keeper.start()
        if size > 1:
            terms = Terms(within, self.within, partial(self._ended, name))
            self.join(rank, form_group(name, rank, size, backend, self.runtime, terms))
        return OK

    _group_name = ""
    _keeper: CoreKeeper | None = None
    _given_up: Mapping[str, str] = {}  # why the driver gave groups up, by name

    @property
    def own_core(self) -> bool:
        """Whether this replica has a core to itself now."""
        return self._keeper is not None and self._keeper.own_core

    def on_step(self, order: Step, arrays: Sequence[np.ndarray]) -> Message:
        """Run steps, on cores of its own while they are."""
        keeper = self._keeper
        if keeper is None:
            return super().on_step(order, arrays)
        keeper.step()
        try:
            return super().on_step(order, arrays)
        finally:
            keeper.stepped()

    def learn(self, modules: Sequence[str], functions: bytes) -> None:
        """Import modules, then take in the Python functions that programs name by number, pickled."""
        for module in modules:
            importlib.import_module(module)
        FUNCTIONS.update(pickle.loads(functions))

    def abort(self, name: str, reason: str) -> None:
        """Release this replica and its peers from waiting in a group, formed or not.

        The driver gives a group up for good. It may say so before this replica has begun to form it, while a
        reset is about to wipe an abort out, or when this replica is in the next group already.
        """
        self._given_up = {**self._given_up, name: reason}
        seat = self.trainers.get(name)
        group = self.group if name == self._group_name else seat.group if seat is not None else None
        if group is not None:
            group.abort(reason)

    def _ended(self, name: str) -> str | None:
        """Return why the driver gave a group up; None: it did not."""
        return self._given_up.get(name)

    def form_trainers(
        self, name: str, rank: int, size: int, runtime: Runtime | None, within: float
    ) -> CollectiveGroup:
        """Join a group with replicas of other trainers."""
        terms = Terms(within, self.within, partial(self._ended, name))
        return form_group(name, rank, size, "rowlock", runtime, terms)

    def on_leave_trainers(self, order: LeaveTrainers) -> Message:
        answer = super().on_leave_trainers(order)
        leave_group(order.name)
        return answer

    def _meet(self, epoch: int, alone: bool) -> None:
        super()._meet(epoch, alone)
        reason = self._ended(self._group_name)
        if reason is not None and self.group is not None:
            self.group.abort(reason)


class Driver(NamedTuple):
    """Where a replica finds its driver, and how it proves that it may talk to it."""

    host: str
    port: int
    local_name: str
    secret: bytes
    replica: int


_NEW_OBJECTS = 10_000  # before a search for garbage, of which plans, that last, leave little


@ray.remote(max_restarts=0, concurrency_groups={"step": 1, "admin": 1})  # type: ignore[call-overload]
class ReplicaActor:
    """Holds one replica. ``serve`` occupies a thread of its own for as long as the driver lives."""

    def __init__(self, threads: int, collective_s: float, on_gpu: bool) -> None:
        set_threads(threads)
        gc.freeze()  # modules stay: a search for garbage among them stops a step for a fifth of a second
        gc.set_threshold(_NEW_OBJECTS)
        runtime = None
        if on_gpu:  # Ray lets it see its own GPU alone
            runtime = open_gpu(0)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._replica = RayReplica(0, None, collective_s, runtime)
        self._replica.form = self._replica.form_trainers
        self._answered, self._answer = 0, Message("none", {})

    @ray.method(concurrency_group="admin")
    def describe(self) -> dict[str, Any]:
        """Return process and node of this replica, once it is sure that it can share memory with others here.

        Raises:
            CollectiveError: it cannot; says how much is missing, and what to do.
        """
        sweep()
        check_shared_memory()
        context = ray.get_runtime_context()
        return {
            "pid": os.getpid(),
            "node": context.get_node_id(),
            "host": ray.util.get_node_ip_address(),
            "gpus": ray.get_gpu_ids(),
        }

    @ray.method(concurrency_group="admin")
    def learn(self, modules: Sequence[str], functions: bytes) -> None:
        """Import modules, then take in the Python functions that programs name by number, pickled."""
        self._replica.learn(modules, functions)

    @ray.method(concurrency_group="step")
    def serve(self, *driver: Any) -> None:
        """Connect to the driver and answer its messages until it goes away."""
        host, port, local_name, secret, number = Driver(*driver)
        replica = self._replica
        steps = connect(host, port, secret, number, STEPS, local_name)
        post = HeartbeatServer(
            connect(host, port, secret, number, WATCH, local_name), replica, replica.abort
        )
        post.start()
        try:
            ReplicaServer(steps, replica, lambda: replica.own_core).serve()
        finally:
            steps.close()
            post.close()
            replica.close()

    @ray.method(concurrency_group="step")
    def answer(
        self,
        number: int,
        kind: str,
        head: Mapping[str, Any],
        arrays: Sequence[np.ndarray],
        step: int,
    ) -> Message:
        """Answer one message, unless it came before; for nodes that cannot connect to the driver."""
        if number == self._answered:  # an interrupt kept the driver from noting that it had asked
            return self._answer
        if number < self._answered:
            return Message("repeated", {})
        answer = self._replica.handle(Message(kind, head, arrays, step))
        self._answered, self._answer = number, answer._replace(arrays=list(answer.arrays))
        return self._answer

    @ray.method(concurrency_group="admin")
    def abort(self, group: str, reason: str) -> None:
        """Release this replica and its peers from waiting in a group, formed or not."""
        self._replica.abort(group, reason)
