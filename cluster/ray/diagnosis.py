"""Diagnosis: what became of replicas that do not answer, told by heartbeats, processes and nodes."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...executor.host.deadline import Stopwatch
from ...graph.ops.collective import COLLECTIVES
from ..channel.heartbeat import HeartbeatMonitor
from .replica_handle import NodeProbes, ReplicaHandle

LOOK_S = 2.0  # for which a node may take to tell of a process
_PAUSE_S = 0.5  # between two looks: more is none of the replicas' silence
_UNKNOWN_S = 5.0  # for how long a replica may be silent whose process is there, but does nothing
_BY_SIGNAL = "is stopped (by SIGSTOP, or from a terminal) and does not answer"


class Loss(NamedTuple):
    """Replicas that will not answer, and why."""

    ranks: list[int]
    text: str


def named(members: Sequence[ReplicaHandle], rank: int) -> str:
    """Return a replica's rank, process and node in words."""
    return f"replica {rank} {members[rank]}"


class Diagnosis:
    """Watches over the members of a gang, by rank. ``cut_off``: nodes that were not to be heard."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._monitor: HeartbeatMonitor | None = None
        self._probes = NodeProbes()
        self._stopped: dict[int, float] = {}  # since when, by rank
        self._watch = Stopwatch(_PAUSE_S)
        self.cut_off: set[str] = set()

    def post(self, members: list[ReplicaHandle], within: float) -> None:
        """Have a probe on every node of the members."""
        self._probes.post(members, within)

    def listen(self, connections: Mapping[int, socket.socket]) -> None:
        """Hear the heartbeats of replicas on these connections from now on."""
        self._monitor = HeartbeatMonitor(connections)

    def late(self, members: Sequence[ReplicaHandle], ranks: list[int], within: float) -> Loss:
        """Tell which of the replicas that did not answer in time keep the others waiting, and in which op."""
        ranks = [rank for rank in ranks if self._doing(rank).get("op") not in COLLECTIVES] or ranks
        names = ", ".join(named(members, rank) + self._op(rank) for rank in ranks)
        text = f"no answer from {names} within {within:g} s (ClusterConfig.step_deadline_s)."
        return Loss(ranks, text)

    def look(self, members: Sequence[ReplicaHandle], ranks: list[int]) -> Loss | None:
        """Return which replicas that have yet to answer never will: stopped ones, or one silent and dead."""
        now = self._watch.look()
        self._stopped = {r: self._stopped.get(r, now) for r in ranks if members[r].stopped}
        stopped = [r for r, since in self._stopped.items() if now - since > self._patience]
        if stopped:
            names = ", ".join(named(members, rank) for rank in stopped)
            return Loss(stopped, f"{names} {_BY_SIGNAL}.")
        for rank in self._silent(ranks, self._patience):
            problem = self._judge(members[rank], rank)
            if problem:
                return Loss([rank], f"{named(members, rank)}{self._op(rank)} {problem}.")
        return None

    def _silent(self, ranks: list[int], seconds: float) -> list[int]:
        return self._monitor.silent(ranks, seconds) if self._monitor is not None else []

    def _judge(self, member: ReplicaHandle, rank: int) -> str:
        """Return why a silent replica is dead; empty if it is busy."""
        report = self._probes.look(member, LOOK_S)
        if report is None:
            self.cut_off.add(member.where["node"])
            return (
                f"was not heard of for {self._patience:g} s (ClusterConfig.heartbeat_deadline_s), nor is its "
                f"node: it is frozen, or cut off from the network"
            )
        state, ticks = report
        if state in ("T", "t"):
            return _BY_SIGNAL
        if ticks > 0 or state in ("R", "D") or not self._silent([rank], _UNKNOWN_S):
            return ""  # it computes, and keeps Python's lock meanwhile; or others keep it from computing
        return f"does not answer; its process is there (state {state}) and does nothing"

    def _op(self, rank: int) -> str:
        """Return in words the op that a replica last reported to be running."""
        doing = self._doing(rank)
        if not doing.get("op"):
            return ""
        return f" [in {doing['op']}, built at {doing['where']}, {doing['seconds']:.1f} s into the step]"

    def _doing(self, rank: int) -> Mapping[str, Any]:
        return self._monitor.doing(rank) if self._monitor is not None else {}

    def abort(self, ranks: Iterable[int], group: str, reason: str) -> bool:
        """Have replicas leave a collective group, over the connections of heartbeats; False without these."""
        if self._monitor is not None:
            self._monitor.abort(ranks, group, reason)
        return self._monitor is not None

    def end(self, member: ReplicaHandle) -> None:
        """End a member's process, by the probe of its node."""
        self._probes.kill(member)

    def close(self, probes: bool) -> None:
        """Close the connections, and end the ``probes`` if Ray is still there."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        if probes:
            self._probes.close()
