"""One actor of a gang: where it is, how it ends, and why it ended."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pickle import PickleError
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from ...graph.ops.python_function import PythonFunction, function_of
from ...strategies.cluster import ClusterConfig
from ...strategies.errors import CollectiveError, Unsupported
from ..channel.connection import ReplicaConnection
from ..primitives.processes import look_at, process_state
from .node_probe import NodeProbe
from .nodes import GPU, nodes
from .replica import ReplicaActor

_DEATH_NOTICE_S = 0.5
_REASON_CHARACTERS = 400
_numbers = itertools.count()


class ReplicaHandle:
    """An actor in its bundle of a reservation. ``where`` says process, node and host, once it is known."""

    def __init__(self, reservation: Any, bundle: int, config: ClusterConfig) -> None:
        self.reservation, self.bundle = reservation, bundle
        self.number = next(_numbers)
        self.alive = True
        self.where: dict[str, Any] = {}
        self.functions: set[int] = set()  # numbers of the Python functions that it has
        self.serving: Any = None
        self.line: ReplicaConnection | None = None
        self.watch: socket.socket | None = None
        strategy = PlacementGroupSchedulingStrategy(
            reservation, placement_group_bundle_index=bundle
        )
        each = config.resources_per_replica
        self.actor = ReplicaActor.options(  # type: ignore[attr-defined]  # added by ray.remote
            num_cpus=config.num_cpus_per_replica,
            num_gpus=each.get(GPU, 0),
            resources={k: v for k, v in each.items() if k not in ("memory", GPU)},
            memory=each.get("memory"),
            scheduling_strategy=strategy,
        ).remote(config.threads_per_replica, config.collective_deadline_s, GPU in each)
        self.described = self.actor.describe.remote()

    def __str__(self) -> str:
        place = self.where
        return f"(process {place['pid']} on {place['host']}, node {place['node']})"

    @property
    def address(self) -> str:
        """Where its bundle is; "no node" if that is lost. Known before it is there."""
        bundles = placement_group_table(self.reservation)["bundles_to_node_id"]
        there = bundles.get(self.bundle)
        return next((node.address for node in nodes() if node.id == there), "no node")

    @property
    def near(self) -> bool:
        """Whether it runs on the driver's host."""
        here: bool = self.where["host"] == ray.util.get_node_ip_address()
        return here

    @property
    def stopped(self) -> bool:
        """Whether its process is stopped, as far as the driver's host can tell."""
        return bool(self.where) and self.near and process_state(self.where["pid"]) == "T"

    def reason(self) -> str:
        """Return how its serving ended, as Ray has it."""
        try:
            ray.get(self.serving, timeout=_DEATH_NOTICE_S)
        except GetTimeoutError:
            if not self.near:
                return "Ray has not told why."
            is_gone = process_state(self.where["pid"]) in ("", "Z", "X")
            return "its process has ended." if is_gone else "its process is still there."
        except RayError as error:
            return why(error)
        return "it stopped serving."

    def ended(self) -> bool:
        """Tell whether its actor ended before it told where it is."""
        try:
            ray.get(self.described, timeout=0)
        except GetTimeoutError:
            return False
        except RayError:
            return True
        return False

    def hang_up(self) -> None:
        """Close the connections to it."""
        if self.line is not None:
            self.line.close()
        if self.watch is not None:
            self.watch.close()

    def end(self) -> None:
        """End it as Ray does."""
        self.alive = False
        with contextlib.suppress(RayError):
            ray.kill(self.actor)

    def kill(self) -> None:
        """End it, also if it is stopped."""
        self.end()
        if self.where and self.near:
            with contextlib.suppress(OSError):
                os.kill(self.where["pid"], signal.SIGKILL)


def teach(members: Sequence[ReplicaHandle], functions: Iterable[int], within: float) -> None:
    """Bring members the Python functions that they lack, pickled as Ray pickles.

    What such a function refers to may be in a module that imports ``paddle``: where that is Rowlock here, it is
    so there. A member that is lost meanwhile is found out when it is spoken to.

    Raises:
        Unsupported: a function cannot be pickled, or not be read where the member runs.
        CollectiveError: there is no answer in time.
    """
    lessons = {number: function_of(number) for number in functions}
    untaught = [member for member in members if not lessons.keys() <= member.functions]
    if not untaught:
        return
    try:
        pickled = cloudpickle.dumps(lessons)
    except (TypeError, AttributeError, ValueError, PickleError) as error:
        raise _untaught(lessons.values(), f"cannot be pickled: {error}") from error
    aliased = getattr(sys.modules.get("paddle"), "__name__", "") == "rowlock"
    modules = ["rowlock.alias"] if aliased else []
    learning = {member.actor.learn.remote(modules, pickled): member for member in untaught}
    for answer, member in learning.items():
        try:
            ray.get(answer, timeout=within)
        except GetTimeoutError:
            raise CollectiveError(
                f"{member} took in no Python functions within {within:g} s "
                f"(ClusterConfig.start_deadline_s)."
            ) from None
        except RayActorError:
            continue
        except RayError as error:
            raise _untaught(lessons.values(), f"cannot be read there: {why(error)}") from error
        member.functions.update(lessons)


def _untaught(functions: Iterable[PythonFunction], problem: str) -> Unsupported:
    return Unsupported(
        f"py_func: {', '.join(map(str, functions))} cannot be sent to replicas in other processes: it, or "
        f"something it refers to, {problem}. Have it make what it needs when it is called, or run on threads: "
        f"rowlock.configure(launcher='threads')."
    )


def why(error: RayError) -> str:
    """Return the line of Ray's long text that says what happened."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text, causes, _ = lines[-1].partition(" Some common causes include")
    text = textwrap.shorten(text, _REASON_CHARACTERS, placeholder=" …")
    return f"{text} Out of memory, a kill and a crash are common causes." if causes else text


def end_all(members: list[ReplicaHandle], reservations: list[Any], within: float) -> None:
    """End actors and give their bundles back; those that serve are given a moment to end by themselves."""
    waiting = [m.serving for m in members if m.serving is not None and m.alive]
    if waiting:
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=within)
    for member in members:
        member.end()
    if waiting:  # some are at work, or do not hear
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=within)
        for member in members:
            if member.serving in waiting:
                member.kill()
    for reservation in reservations:
        remove_placement_group(reservation)


class NodeProbes:
    """A probe on every node but the driver's own."""

    def __init__(self) -> None:
        self._by_node: dict[str, Any] = {}

    def post(self, members: list[ReplicaHandle], within: float) -> None:
        """Have one on the node of each member, ready to look, or given up as the members would be."""
        starting = []
        for member in members:
            node = member.where["node"]
            if not member.near and node not in self._by_node:
                there = NodeAffinitySchedulingStrategy(node, soft=False)
                probe = NodeProbe.options(scheduling_strategy=there).remote()  # type: ignore[attr-defined]
                self._by_node[node] = probe
                starting.append(probe.look.remote(member.where["pid"]))
        if starting:
            ray.wait(starting, num_returns=len(starting), timeout=within)

    def look(self, member: ReplicaHandle, within: float) -> tuple[str, int] | None:
        """Look at a member's process; None if its node does not answer."""
        if member.near:
            return look_at(member.where["pid"])
        probe = self._by_node.get(member.where["node"])
        if probe is None:
            return None
        try:
            report: tuple[str, int] = ray.get(
                probe.look.remote(member.where["pid"]), timeout=within
            )
        except (GetTimeoutError, RayError):
            return None
        return report

    def kill(self, member: ReplicaHandle) -> None:
        """End a member's process; if its node is cut off, once it is back."""
        probe = self._by_node.get(member.where["node"])
        if probe is not None:
            with contextlib.suppress(RayError):
                probe.kill.remote(member.where["pid"])

    def close(self) -> None:
        """End the probe."""
        for probe in self._by_node.values():
            with contextlib.suppress(RayError):
                ray.kill(probe)
        self._by_node = {}
