"""Hosting a server from the process that runs its program: an actor that is started, waited for, restored."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...executor.rpc.answers import error_of
from ...executor.rpc.messages import Refused
from ...strategies.cluster import ClusterConfig
from ...strategies.endpoints import split_endpoint
from ...strategies.errors import CollectiveError, InvalidState, ServerLost
from ...strategies.log import log
from ..primitives.ray_private import get
from ..ray.nodes import nodes
from ..ray.replica_handle import why
from ..ray.session import join_ray
from .actor import NAMESPACE, Build, ServerActor, Terms, table_key
from .address import Address
from .moving import move
from .snapshots import SnapshotFolder
from .wire import Directory

_TURN_S = 0.5
_END_S = 5.0
# In the name of an actor, between the endpoint and what tells it from an earlier one.
_ANOTHER = "#"
_LOOPBACK = ("127.", "localhost", "[::1]", "0.0.0.0")
_used: set[str] = set()  # names that actors of this process had


class Job(NamedTuple):
    """A server to be hosted.

    ``build`` makes its service from values by name, in another process: a function of a module, or a
    ``functools.partial`` of one with plain data. ``value_of`` returns a value, ``let_go`` is told when this
    process does not need to hold it any more. Trainers pull the values that ``published`` names, as they lie in
    memory.
    """

    endpoint: str
    build: Build
    names: Sequence[str]
    value_of: Callable[[str], np.ndarray]
    let_go: Callable[[str], object]
    published: Sequence[str] = ()


class RayDirectory(Directory):
    """Servers of the Ray cluster that this process has joined: named actors, which tell where they listen.

    They tell it in a table of the cluster: the name alone would not do, for a process that has looked an actor
    up by name gets the dead one for ever.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config

    def join(self) -> None:
        """Join the cluster, or start the one that processes of this host share."""
        join_ray(self._config, shared=True)

    def find(self, endpoint: str, within: float) -> Address | None:
        text = get(table_key(endpoint))
        if text is None or endpoint not in endpoints():
            return None
        return Address.read(text)

    def others(self) -> list[str]:
        """Return the endpoints of all servers of the cluster."""
        return endpoints()


def endpoints() -> list[str]:
    """Return the endpoints of all servers of the cluster."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    names = {actor["name"] for actor in actors if actor["namespace"] == NAMESPACE}
    return sorted({name.partition(_ANOTHER)[0] for name in names})


class HostedServer:
    """A server's actor, and the next one where it is restored."""

    def __init__(self, job: Job, config: ClusterConfig) -> None:
        self.job, self.config = job, config
        self.generation = 0
        self.actor: Any = None
        self._serving: Any = None
        self._failures = 0
        self._newest: Sequence[str] = ()  # snapshot when the actor was lost last
        split_endpoint(job.endpoint)
        join_ray(config, shared=True)

    def start(self) -> None:
        """Start the actor, and move the values there.

        Raises:
            InvalidState: another server has this endpoint.
            CollectiveError: the actor did not start.
        """
        self._create()
        config = self.config
        try:
            parts = ray.get(self.actor.expect.remote(), timeout=config.start_deadline_s)
            self._serving = self.actor.serve.remote()
            job = self.job
            move(Address(*parts), job.names, job.value_of, job.let_go, config.start_deadline_s)
        except BaseException as error:
            self.kill()
            if isinstance(error, RayError):
                reason = (
                    f"not within {config.start_deadline_s:g} s (ClusterConfig.start_deadline_s)"
                    if isinstance(error, GetTimeoutError)
                    else why(error)
                )
                raise CollectiveError(
                    f"the actor of parameter server {self.job.endpoint} did not start: {reason}."
                ) from error
            raise

    def _create(self) -> None:
        self.generation += 1
        config = self.config
        terms = Terms(
            self.job.endpoint,
            self.job.build,
            self.job.published,
            self.generation,
            config.server_snapshot_folder or "",
            config.server_snapshot_steps,
            config.trainer_deadline_s,
            config.start_deadline_s,
            config.threads_per_replica,
        )
        if self.generation == 1 and self.job.endpoint in endpoints():
            raise self._taken()
        where = NodeAffinitySchedulingStrategy(_node(self.job.endpoint), soft=False)
        how: dict[str, Any] = {"namespace": NAMESPACE, "scheduling_strategy": where}
        try:
            self.actor = ServerActor.options(name=self._name(), **how).remote(terms)  # type: ignore[attr-defined]
        except ValueError as error:
            raise self._taken() from error

    def _name(self) -> str:
        """Return a name that only one server of this endpoint can have, or that this one alone can.

        Ray refuses a name of which this process knows that an actor had it, also if that has ended.
        """
        if self.generation > 1 or self.job.endpoint in _used:
            return f"{self.job.endpoint}{_ANOTHER}{secrets.token_hex(8)}"
        _used.add(self.job.endpoint)
        return self.job.endpoint

    def _taken(self) -> InvalidState:
        return InvalidState(
            f"another parameter server is at {self.job.endpoint} in this Ray cluster. Give each server an "
            f"endpoint of its own, and end the servers of an earlier training first."
        )

    def wait(self, within: float) -> bool:
        """Wait until the service has ended, and tell whether it has; restore it if its actor was lost.

        Raises:
            ServerLost: its actor was lost, and it cannot be restored.
            EnforceNotMet: the service ended for another reason.
        """
        try:
            outcome = ray.get(self._serving, timeout=within)
        except GetTimeoutError:
            return False
        except RayActorError as error:
            self._restore(why(error))
            return False
        except RayError as error:
            raise ServerLost(
                f"the parameter server {self.job.endpoint} failed: {why(error)}"
            ) from error
        if outcome is not None:
            raise error_of(Refused(*outcome))
        return True

    def _restore(self, reason: str) -> None:
        """Start another actor from the last snapshot."""
        endpoint, folder = self.job.endpoint, self.config.server_snapshot_folder
        if not folder:
            raise ServerLost(
                f"the parameter server {endpoint} was lost, and its values with it: {reason} With "
                f"ClusterConfig.server_snapshot_folder it would have been restored."
            )
        files = SnapshotFolder(folder, endpoint).files()
        self._failures = 1 if files[:1] != self._newest else self._failures + 1
        self._newest = files[:1]
        if self._failures > self.config.max_failures:
            raise ServerLost(
                f"the parameter server {endpoint} was lost {self._failures} times without a snapshot in "
                f"between (ClusterConfig.max_failures): {reason}"
            )
        log.warning("the parameter server %s was lost and is restored: %s", endpoint, reason)
        self._create()
        self._serving = self.actor.serve.remote()

    def stop(self, reason: str) -> None:
        """End the service, and its actor."""
        with contextlib.suppress(RayError):
            self.actor.stop.remote(reason)
            ray.wait([self._serving], timeout=_END_S)
        self.kill()

    def kill(self) -> None:
        """End the actor."""
        if self.actor is not None:
            with contextlib.suppress(RayError):
                ray.kill(self.actor)
        self.actor = None


def host(job: Job, config: ClusterConfig) -> None:
    """Start a server and wait until it has ended; Ctrl-C ends it.

    Raises:
        InvalidState: another server has this endpoint.
        ServerLost: it was lost, and cannot be restored.
        EnforceNotMet: it ended for another reason, such as the loss of a trainer.
    """
    server = HostedServer(job, config)
    server.start()
    try:
        while not server.wait(_TURN_S):
            pass
        server.kill()
    except BaseException as error:
        reason = "interrupted (Ctrl-C)" if isinstance(error, KeyboardInterrupt) else str(error)
        server.stop(f"the process that ran its program ended: {reason}.")
        raise


def _node(endpoint: str) -> str:
    """Return the node at the endpoint's address, else this process's node."""
    address, _ = split_endpoint(endpoint)
    own: str = ray.get_runtime_context().get_node_id()
    matching = [node.id for node in nodes() if node.address == address]
    if matching:
        return own if own in matching else matching[0]
    say = log.info if address.startswith(_LOOPBACK) else log.warning
    say(
        "no node of the Ray cluster has the address of %s: it runs on this process's node", endpoint
    )
    return own
