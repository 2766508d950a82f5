"""The actor that runs a replica: placed by Ray, spoken to through the step channel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import ray

from ..executor.cores import set_threads
from ..executor.cuda.gpus import open_gpu
from ..executor.message import Message
from ..executor.replica import Replica
from .collective.backend import form_group, leave_group
from .line import Outbox
from .listener import STEPS, WATCH, connect
from .watch import WatchPost


class RayReplica(Replica):
    """A replica that joins groups of ``ray.util.collective`` when it is told to."""

    def on_regroup(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Leave the group this replica is in, and join another (none if it would be alone)."""
        self.join(head["rank"], None)
        if self._group_name:
            leave_group(self._group_name)
        self._group_name = head["group"] if head["size"] > 1 else ""
        if head["pin"]:
            self.own_core = pin(*head["pin"])
        if head["size"] > 1:
            made: Any = form_group(
                head["group"], head["rank"], head["size"], head["backend"], self.runtime
            )
            self.join(head["rank"], made)
        return Message("ok", {})

    _group_name = ""
    own_core = False

    def abort(self, reason: str) -> None:
        """Release this replica, and its peers, from a collective they wait in."""
        group = self.group
        if group is not None:
            group.abort(reason)


class Driver(NamedTuple):
    """Where a replica finds its driver, and how it proves that it may talk to it."""

    host: str
    port: int
    local_name: str
    secret: bytes
    who: int


@ray.remote(max_restarts=0, concurrency_groups={"step": 1, "admin": 1})  # type: ignore[call-overload]
class ReplicaActor:
    """Holds one replica. ``serve`` occupies a thread of its own for as long as the driver lives."""

    def __init__(self, threads: int, collective_s: float, on_gpu: bool) -> None:
        set_threads(threads)
        runtime = None
        if on_gpu:  # Ray lets it see its own GPU alone
            runtime = open_gpu(0)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._replica = RayReplica(0, None, collective_s, runtime)
        self._answered, self._answer = 0, Message("none", {})

    @ray.method(concurrency_group="admin")
    def describe(self) -> dict[str, Any]:
        """Return who and where this replica is."""
        context = ray.get_runtime_context()
        return {
            "pid": os.getpid(),
            "node": context.get_node_id(),
            "host": ray.util.get_node_ip_address(),
            "gpus": ray.get_gpu_ids(),
        }

    @ray.method(concurrency_group="step")
    def serve(self, *driver: Any) -> None:
        """Connect to the driver and answer its messages until it goes away."""
        host, port, local_name, secret, who = Driver(*driver)
        replica = self._replica
        steps = connect(host, port, secret, who, STEPS, local_name)
        post = WatchPost(
            connect(host, port, secret, who, WATCH, local_name), replica, replica.abort
        )
        post.start()
        try:
            Outbox(steps, replica, lambda: replica.own_core).serve()
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
        """Answer one message, if it did not come before: the way of those who cannot connect."""
        if number == self._answered:  # an interrupt kept the driver from noting that it had asked
            return self._answer
        if number < self._answered:
            return Message("repeated", {})
        answer = self._replica.handle(Message(kind, head, arrays, step))
        self._answered, self._answer = number, answer._replace(arrays=list(answer.arrays))
        return self._answer

    @ray.method(concurrency_group="admin")
    def abort(self, reason: str) -> None:
        """Release this replica, and its peers, from a collective they wait in."""
        self._replica.abort(reason)


def pin(index: int, count: int) -> bool:
    """Keep this process, one of ``count`` on its host, to its part of the host's cores; tell if it has one.

    Otherwise the system now and then runs two replicas on one core in turn while another one is idle.
    """
    cores = _cores or sorted(os.sched_getaffinity(0))
    _cores[:] = cores
    each = max(len(cores) // count, 1)
    first = index * each % len(cores)
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            os.sched_setaffinity(int(thread), cores[first : first + each])
    return len(cores) >= count


_cores: list[int] = []  # that the process had when it came
