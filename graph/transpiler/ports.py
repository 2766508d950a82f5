"""Wait until servers listen at their endpoints."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from ...strategies.errors import ServerLost
from ...strategies.log import WaitLog

_WITHIN_S = 300.0  # as servers read large tables before they listen
_PAUSE_S = 0.2
_CONNECT_S = 2.0

Waiter = Callable[[Sequence[str], float | None], None]
_waiters: list[Waiter] = []


def register_waiter(wait: Waiter) -> None:
    """Have ``wait(endpoints, within)`` wait for servers: it knows how trainers reach them, and for how long.

    It raises ServerLost once ``within`` seconds (None: its own deadline) are over. Without one, a TCP port must
    be open at each endpoint.
    """
    _waiters[:] = [wait]


def wait_server_ready(endpoints: Sequence[str], within: float | None = None) -> None:
    """Return as soon as there is a server at each endpoint (``host:port``).

    Raises:
        ServerLost: there is none at some, after ``within`` seconds (None:
            ``ClusterConfig.start_deadline_s``); the text names them.
    """
    for wait in _waiters:
        return wait(endpoints, within)
    return wait_for_ports(endpoints, _WITHIN_S if within is None else within)


def wait_for_ports(endpoints: Sequence[str], within: float) -> None:
    """Return as soon as a TCP port is open at each endpoint.

    Raises:
        ServerLost: some are not, after ``within`` seconds; the text names them.
    """
    end = time.monotonic() + within
    waiting = WaitLog()
    missing = [endpoint for endpoint in endpoints if not _listens(endpoint)]
    while missing:
        if time.monotonic() >= end:
            raise ServerLost(
                f"no server listens at {', '.join(missing)} after {within:g} s. Start them (exe.run of "
                f"get_pserver_program), see that these ports can be reached from here, or pass wait_port=False "
                f"if they start later."
            )
        waiting.look(f"servers at {', '.join(missing)}")
        time.sleep(_PAUSE_S)
        missing = [endpoint for endpoint in missing if not _listens(endpoint)]


def _listens(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_S):
            return True
    except OSError:
        return False
