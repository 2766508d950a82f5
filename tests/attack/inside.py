"""Named points inside a replica at which it ends itself; installed in the actors by the attack."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from types import SimpleNamespace
from typing import Any

import ray

# The point at which this process ends, how often it is passed before, and the seconds after it.
_armed: list[tuple[str, int, float]] = []
_installed: list[bool] = []


def reached(point: str) -> None:
    """End this process, or set the kernel's timer to do so, if it was armed for this point."""
    if not _armed or _armed[0][0] != point:
        return
    name, skip, after = _armed.pop()
    if skip:
        _armed.append((name, skip - 1, after))
    elif after:
        # SIGALRM ends a process that does not handle it
        signal.setitimer(signal.ITIMER_REAL, after)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def install(actor: Any) -> None:
    """Have this process pass the named points, once."""
    from rowlock.cluster.channel.connection import ReplicaServer
    from rowlock.cluster.collective.group import SharedMemoryGroup
    from rowlock.executor.plan.plan import Vote
    from rowlock.executor.replica.replica import Replica
    from rowlock.executor.simulated.simulated import HostLaunch

    if _installed:
        return
    _installed.append(True)
    for home, method in (
        (Vote, "hand_over"),
        (Vote, "prepare"),
        (Vote, "commit"),
        (ReplicaServer, "_answer"),
        (SharedMemoryGroup, "all_reduce"),
    ):
        _around(home, method)
    handle = Replica.handle

    def handled(self: Any, message: Any) -> Any:
        reached(f"takes {message.kind}")
        answer = handle(self, message)
        reached(f"did {message.kind}")
        return answer

    Replica.handle = handled  # type: ignore[method-assign]
    launch = HostLaunch.__call__

    def launched(self: HostLaunch) -> None:
        reached(f"before {self.kernel.name}")
        launch(self)
        reached(f"after {self.kernel.name}")

    HostLaunch.__call__ = launched  # type: ignore[method-assign]


def _around(home: Any, method: str) -> None:
    call = getattr(home, method)

    def body(*args: Any, **kwargs: Any) -> Any:
        reached(f"before {method}")
        answer = call(*args, **kwargs)
        reached(f"after {method}")
        return answer

    setattr(home, method, body)


def arm(actor: Any, point: str, skip: int = 0, after: float = 0.0) -> None:
    """End this process when it passes the point the next time but ``skip``."""
    _armed[:] = [(point, skip, after)]


def disarm(actor: Any) -> None:
    """Let this process live."""
    _armed.clear()
    signal.setitimer(signal.ITIMER_REAL, 0)


def sit_apart(actor: Any, host: str) -> None:
    """Have this process be on a host of its own, as far as a group that it forms can tell."""
    from rowlock.cluster.collective.backends import rowlock as backend

    context = SimpleNamespace(get_node_id=lambda: host)
    backend.ray = SimpleNamespace(util=ray.util, get_runtime_context=lambda: context)  # type: ignore[attr-defined]


def babble(actor: Any, what: str, data: bytes) -> int:
    """Send bytes over connections that this process was let into; return how many there were.

    ``what``: "steps" or "watch" (to the driver), "aborts" or "data" (to the other hosts).
    """
    from rowlock.cluster.channel.connection import ReplicaServer
    from rowlock.cluster.channel.heartbeat import HeartbeatServer
    from rowlock.cluster.collective.abort_channel import AbortChannel
    from rowlock.cluster.collective.inter_host import InterHostTransport

    kind, connections = {
        "steps": (ReplicaServer, lambda one: [one._connection]),
        "watch": (HeartbeatServer, lambda one: [one._connection]),
        "aborts": (AbortChannel, lambda one: one._connections.values()),
        "data": (InterHostTransport, lambda one: one._sockets.values()),
    }[what]
    sent = 0
    for one in [o for o in gc.get_objects() if isinstance(o, kind)]:
        for connection in list(connections(one)):
            with contextlib.suppress(OSError):
                connection.send(data)
                sent += 1
    return sent
