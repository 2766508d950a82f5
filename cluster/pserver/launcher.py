"""What ``ClusterConfig(launcher="ray")`` means for servers and trainers: actors, and sockets to them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...executor.feed.scope import Scope
from ...executor.rpc.messages import Service
from ...executor.saving.files import save_arrays
from ...executor.servers.server import ParameterServer
from ...graph.program.program import Program
from ...strategies.cluster import ClusterConfig
from ...strategies.current import push_config
from ...strategies.errors import InvalidState
from .hosting import Job, RayDirectory, host
from .wire import SocketWire


def host_server(server: Service, config: ClusterConfig) -> None:
    """Move a server into an actor named by its endpoint, and return once it has ended.

    Its values leave the scope: a second copy would be an old one.
    """
    assert isinstance(server, ParameterServer)
    host(job_of(server), config)


def wire_to_servers(config: ClusterConfig) -> SocketWire:
    """Return what carries a trainer's messages to servers of the cluster, once that is joined."""
    directory = RayDirectory(config)
    directory.join()
    return SocketWire(directory)


def job_of(server: ParameterServer) -> Job:
    """Return what an actor needs to go on as this server."""
    state = server.state
    program, config = server.program.serialize_to_string(), state.config.model_dump_json()
    names = sorted(state.parts.lasting)
    home = _Moved(server.endpoint, names)

    def value_of(name: str) -> np.ndarray:
        value: np.ndarray = state.updates.memory(name)
        return value

    def let_go(name: str) -> None:
        server.scope.home(name).get_tensor().move(home)

    server.scope.erase(list(state.parts.by_pushed))  # what trainers would have pushed into
    build = functools.partial(build_server, program, config)
    return Job(server.endpoint, build, names, value_of, let_go, server.published)


def build_server(program: bytes, config: str, values: dict[str, np.ndarray]) -> Service:
    """Return a server in this process; ``values`` is emptied as they find their places."""
    settings = ClusterConfig.model_validate_json(config)
    push_config(settings)
    scope = Scope()
    for name in list(values):
        scope.var(name).get_tensor().adopt(values.pop(name))
    return ParameterServer(Program.parse_from_string(program), scope, settings, save_arrays)


class _Moved:
    """The connection of tensors to a server that their values have moved to. Trainers read them there."""

    def __init__(self, endpoint: str, names: Iterable[str]) -> None:
        self.version = 1
        self.dirty: set[str] = set()
        self.written = set(names)
        self._endpoint = endpoint

    @property
    def turn(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Do nothing: no step is under way in this process."""

    def pull(self, name: str) -> np.ndarray:
        """Raise InvalidState: the value is another process's."""
        raise InvalidState(
            f"{name!r} lives in the parameter server {self._endpoint} since its program ran there. Trainers "
            f"receive it; to have it in files, save it from a trainer (fleet.save_persistables)."
        )
