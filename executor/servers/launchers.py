"""How parameter servers become reachable and trainers reach them: launchers by name.

The front door registers launchers, so that nothing here knows Ray or sockets.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ...graph.transpiler.ports import register_waiter
from ...strategies.current import current_config
from ...strategies.errors import ServerLost
from ..rpc.messages import Ask, Wire
from .state import Saver

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig
    from .server import ParameterServer


class ServerLauncher(Protocol):
    """Brings trainers and servers together; what ``ClusterConfig.launcher`` names."""

    def serve(self, server: ParameterServer, config: ClusterConfig) -> None:
        """Make a server reachable by its ``endpoint``; return once it ended.

        Raises:
            InvalidState: another server has this endpoint.
            TrainerLost: it ended because a trainer was lost.
        """

    def wire(self, config: ClusterConfig) -> Wire:
        """Return what carries a trainer's messages to servers."""


_savers: list[Saver] = []
_launchers: dict[str, ServerLauncher] = {}
_LEAST_S = 1.0  # for a server that is there, although another took all the time


def register_server_launcher(name: str, launcher: ServerLauncher) -> None:
    """Make servers and trainers under ``ClusterConfig(launcher=name)`` meet by ``launcher``."""
    _launchers[name] = launcher


def server_launcher() -> ServerLauncher:
    """Return the launcher of the configuration in force."""
    return _launchers[current_config().launcher]


def wait_for_servers(endpoints: Sequence[str], within: float | None = None) -> None:
    """Return once a server answers at each endpoint.

    Raises:
        ServerLost: some do not within ``within`` seconds (None: ``ClusterConfig.start_deadline_s``).
    """
    config = current_config()
    within = config.start_deadline_s if within is None else within
    missing: dict[str, str] = {}
    wire = server_launcher().wire(config)
    end = time.monotonic() + within
    try:
        for endpoint in endpoints:
            remaining_s = max(end - time.monotonic(), min(within, _LEAST_S))
            try:
                wire.call(endpoint, Ask(), round(remaining_s, 3))
            except ServerLost as error:
                missing[endpoint] = str(error)
    finally:
        wire.close()
    if missing:
        first = next(iter(missing.values()))
        raise ServerLost(
            f"get_trainer_program waited for {', '.join(missing)}: {first} Pass wait_port=False if "
            f"servers start later."
        )


register_waiter(wait_for_servers)


def register_saver(save: Saver) -> None:
    """Let servers write what trainers ask them to save with ``save``."""
    _savers[:] = [save]


def saver() -> Saver | None:
    """Return what writes files for servers, if something does."""
    return _savers[0] if _savers else None
