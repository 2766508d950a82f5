"""Servers and trainers on threads of one process: they find each other by endpoint."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...strategies.errors import InvalidState, ServerLost
from ...strategies.log import WaitLog
from ..gang.launchers import Launcher
from ..gang.local import launch_threads
from ..gang.thread_group import form_threads
from ..gang.trainers import LocalTable
from ..host.deadline import Deadline
from ..rpc.answers import accepted
from ..rpc.messages import Answer, Message, Service, Wire

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig
    from ..cuda.runtime import Runtime
    from ..device.place import Place
    from ..gang.gang import Gang
    from ..plan.group import CollectiveGroup

_services: dict[str, Service] = {}
_changed = threading.Condition()


class LocalWire(Wire):
    """Calls servers of this process. Arrays are handed over as they are."""

    def call(self, endpoint: str, message: Message, within: float) -> Answer:
        with _changed:
            deadline, waiting = Deadline(within), WaitLog()
            while endpoint not in _services and not deadline.over:
                _changed.wait(deadline.slice_s)
                waiting.look(f"the parameter server {endpoint}")
            if endpoint not in _services:
                raise ServerLost(
                    f"no parameter server is at {endpoint} after {within:g} s. In this process are: "
                    f"{', '.join(sorted(_services)) or 'none'}. Run the server's program there: "
                    f"exe.run(transpiler.get_pserver_program({endpoint!r}))."
                )
            service = _services[endpoint]
        return accepted(service.handle(message))

    def close(self) -> None:
        """Nothing is held open."""


class ThreadLauncher(Launcher):
    """Gangs, trainers and servers are threads of this process; a server is that which runs its program."""

    def __init__(self) -> None:
        self._table = LocalTable()

    def start(self, places: Sequence[Place], config: ClusterConfig) -> Gang:
        return launch_threads(places, config)

    def table(self) -> LocalTable:
        return self._table

    def form(
        self, name: str, rank: int, size: int, runtime: Runtime | None, within: float
    ) -> CollectiveGroup:
        return form_threads(name, rank, size, runtime, within)

    def serve(self, server: Service, config: ClusterConfig) -> None:
        with _changed:
            if server.endpoint in _services:
                raise InvalidState(
                    f"another parameter server is at {server.endpoint}. Give each an endpoint of its own."
                )
            _services[server.endpoint] = server
            _changed.notify_all()
        try:
            while not server.wait(config.step_deadline_s):
                pass
        finally:
            with _changed:
                del _services[server.endpoint]

    def wire(self, config: ClusterConfig) -> LocalWire:
        return LocalWire()


def service_at(endpoint: str) -> Service | None:
    """Return the server of this process at an endpoint, if there is one."""
    with _changed:
        return _services.get(endpoint)
