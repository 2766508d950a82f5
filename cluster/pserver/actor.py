"""The Ray actor that a parameter server lives in, named by its endpoint."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import ray

from ...executor.host.cores import set_threads
from ...executor.rpc.messages import Service
from ...strategies.errors import EnforceNotMet, InvalidState
from ..primitives.doorway import SECRET_BYTES
from ..primitives.ray_private import delete, put
from ..primitives.shm import Segment
from .address import Address
from .message_server import MessageServer
from .moving import Destination
from .segments import publish
from .snapshots import SnapshotFolder, SnapshotTaker

NAMESPACE = "rowlock-servers"
_TURN_S = 1.0


def table_key(endpoint: str) -> str:
    """Return the key under which a server tells where it listens."""
    return f"server {endpoint}"


Build = Callable[[dict[str, np.ndarray]], Service]


class Terms(NamedTuple):
    """What an actor is told about its server.

    ``build`` makes the service from its values; trainers pull those that ``published`` names. ``folder``: where
    snapshots go ("": none are taken), one in ``every`` steps. ``generation``: 1, and one more each time that
    it is restored.
    """

    endpoint: str
    build: Build
    published: Sequence[str]
    generation: int
    folder: str
    every: int
    lost_after_s: float
    within_s: float
    threads: int


@ray.remote(  # type: ignore[call-overload]
    num_cpus=0, max_restarts=0, concurrency_groups={"serve": 1, "admin": 4}
)
class ServerActor:
    """Holds one server. ``serve`` occupies a thread of its own until the service has ended."""

    def __init__(self, terms: Terms) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        set_threads(terms.threads)
        self._terms = terms
        self._host = ray.util.get_node_ip_address()
        self._destination: Destination | None = None
        self._service: Service | None = None
        self._published: Segment | None = None

    @ray.method(concurrency_group="admin")
    def expect(self) -> tuple[Any, ...]:
        """Return where its values are to be sent."""
        self._destination = Destination(self._host, secrets.token_bytes(SECRET_BYTES))
        return tuple(self._destination.address)

    @ray.method(concurrency_group="admin")
    def stop(self, reason: str) -> None:
        """End the service."""
        if self._service is not None:
            self._service.stop(reason)

    @ray.method(concurrency_group="serve")
    def serve(self) -> tuple[str, str] | None:
        """Serve until all trainers have finished (None), or return the error that ended it: class and text."""
        try:
            self._service, step = self._build()
        except EnforceNotMet as error:
            return type(error).__name__, str(error)
        terms = self._terms
        taker = None
        if terms.folder:
            folder = SnapshotFolder(terms.folder, terms.endpoint)
            taker = SnapshotTaker(self._service, folder, terms.every, step)
            taker.start()
        secret = secrets.token_bytes(SECRET_BYTES)
        server = MessageServer(
            self._service,
            self._host,
            secret,
            terms.generation,
            terms.lost_after_s,
            taker.answered if taker is not None else lambda record, answer: 0,
            terms.endpoint,
            self._published,
        )
        server.start()
        address = Address(
            self._host,
            server.port,
            server.local_name,
            secret,
            terms.generation,
            bool(terms.folder),
            os.getpid(),
        )
        put(table_key(terms.endpoint), address.packed())
        try:
            while not self._service.wait(_TURN_S):
                pass
            return None
        except EnforceNotMet as error:
            return type(error).__name__, str(error)
        finally:
            delete(table_key(terms.endpoint))
            server.close()
            if self._published is not None:
                self._published.close()
            if taker is not None:
                taker.close()

    def _build(self) -> tuple[Service, int]:
        """Return the service, of moved values or of the last snapshot, and the step that it is at."""
        terms = self._terms
        if terms.generation == 1:
            assert self._destination is not None, "expect() comes before serve()"
            values = self._destination.take(terms.within_s)
            if terms.folder:
                SnapshotFolder(terms.folder, terms.endpoint).set_aside()
            self._published = publish(values, terms.published)
            return terms.build(values), 0
        newest = SnapshotFolder(terms.folder, terms.endpoint).newest()
        if newest is None:
            raise InvalidState(
                f"there is no snapshot of the parameter server {terms.endpoint} in {terms.folder!r} as its new "
                f"node sees it. ClusterConfig.server_snapshot_folder must be a folder that all nodes share."
            )
        snapshot, step = newest
        values = dict(snapshot.arrays)
        self._published = publish(values, terms.published)
        service = terms.build(values)
        service.restore(snapshot)
        return service, step
