"""The gang made of Ray actors: Ray places, starts and ends them; steps travel on the channel."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import textwrap
import time
import uuid
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ..executor.gang import Gang
from ..executor.place import Place
from ..executor.replica import Message
from ..strategies.cluster import ClusterConfig
from ..strategies.errors import CollectiveError, InvalidState
from .channel import SECRET_BYTES, Channels, Listener
from .collective.shm import segment_path
from .nodes import NODE_LABEL, homes, nodes
from .replica import ReplicaActor
from .session import join_ray, leave_ray, session

__all__ = ["RayDelivery", "launch_ray", "leave_ray"]

_DEATH_NOTICE_S = 2.0
_ABORT_S = 1.0
_END_S = 2.0
_REASON_CHARACTERS = 400


class RayDelivery:
    """Delivers messages to actors; the ``serve`` calls in flight tell when an actor dies."""

    def __init__(self, size: int, config: ClusterConfig) -> None:
        self.size = size
        self.config = config
        self._broken = False
        self._session = session()
        self._name = f"rowlock-{uuid.uuid4().hex}"  # of this generation's collective group
        self._channels: Channels | None = None
        self._stopped: set[int] = set()
        self._actors: list[Any] = []
        self._serving: list[Any] = []
        self._reservation = _reserve(size, config)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def broken(self) -> bool:
        """Whether a replica is lost, or the Ray that they ran on is gone."""
        return self._broken or session() != self._session

    def _start(self) -> None:
        config = self.config
        for rank in range(self.size):
            bundle = PlacementGroupSchedulingStrategy(
                self._reservation, placement_group_bundle_index=rank
            )
            actor = ReplicaActor.options(  # type: ignore[attr-defined]  # added by ray.remote
                num_cpus=config.num_cpus_per_replica, scheduling_strategy=bundle
            ).remote(rank, self.size)
            self._actors.append(actor)
        self.where = self._describe()
        secret = secrets.token_bytes(SECRET_BYTES)
        listener = Listener(ray.util.get_node_ip_address(), secret, self.size)
        to_driver = (*listener.address, secret, listener.local_name)
        try:
            for actor in self._actors:
                serving = actor.serve.remote(
                    *to_driver,
                    self._name,
                    config.threads_per_replica,
                    config.collective_deadline_s,
                )
                self._serving.append(serving)
            connections = listener.accept_all(config.start_deadline_s, self._check_serving)
        finally:
            listener.close()
        self._channels = Channels(connections, self._lost, self._late, self._watch)

    def _describe(self) -> list[dict[str, Any]]:
        """Return who and where the replicas are, once their actors run."""
        asked = [actor.describe.remote() for actor in self._actors]
        try:
            return ray.get(asked, timeout=self.config.start_deadline_s)
        except GetTimeoutError:
            answered, _ = ray.wait(asked, num_returns=self.size, timeout=0)
            missing = [rank for rank, one in enumerate(asked) if one not in answered]
            raise CollectiveError(
                f"the actors of replicas {missing} did not start within "
                f"{self.config.start_deadline_s:g} s (ClusterConfig.start_deadline_s)."
            ) from None
        except RayError as error:
            if "failed to import" not in str(error):
                raise CollectiveError(f"a replica's actor did not start: {_why(error)}") from error
            raise CollectiveError(
                f"a replica's actor cannot import what it needs: {_why(error)}. Install rowlock on every "
                f"node of the cluster, or send it along: "
                f"ray.init(runtime_env={{'working_dir': <folder that holds rowlock>}})."
            ) from error

    def _check_serving(self) -> None:
        ended, _ = ray.wait(self._serving, num_returns=1, timeout=0)
        if ended:
            rank = self._serving.index(ended[0])
            raise CollectiveError(f"{self._named(rank)} did not start: {self._reason(rank)}")

    def exchange(self, messages: Sequence[Message]) -> list[Message]:
        """Deliver one message to each replica and return their answers.

        Raises:
            CollectiveError: a replica died or did not answer in time; the gang cannot be used again.
        """
        if self._broken or self._channels is None:
            raise InvalidState(
                "the replicas that held the newest values are gone. Set the parameters again (run the startup "
                "program, or load them); the next run starts a new gang."
            )
        return self._channels.exchange(messages, self.config.step_deadline_s)

    def _named(self, rank: int) -> str:
        place = self.where[rank]
        return f"replica {rank} (process {place['pid']} on {place['host']}, node {place['node']})"

    def _reason(self, rank: int) -> str:
        """Return how the actor's serving ended, as Ray has it."""
        if session() != self._session:
            return "Ray was shut down."
        try:
            ray.get(self._serving[rank], timeout=_DEATH_NOTICE_S)
        except GetTimeoutError:
            return "its process is still there."
        except RayError as error:
            return _why(error)
        return "it stopped serving."

    def _lost(self, rank: int) -> CollectiveError:
        self._broken = True
        self._abort(f"replica {rank} is gone")
        return CollectiveError(
            f"{self._named(rank)} is gone: its channel closed. {self._reason(rank)}"
        )

    def _watch(self) -> None:
        """Raise if a replica on this host was stopped (SIGSTOP) and still is at the second look."""
        here = ray.util.get_node_ip_address()
        stopped = {
            rank
            for rank, place in enumerate(self.where)
            if place["host"] == here and _is_stopped(place["pid"])
        }
        again, self._stopped = stopped & self._stopped, stopped
        if again:
            self._broken = True
            self._abort(f"replicas {sorted(again)} are stopped")
            named = ", ".join(self._named(rank) for rank in sorted(again))
            raise CollectiveError(
                f"{named} is stopped (by SIGSTOP, or from a terminal) and does not answer. "
                f"The next run starts a new gang."
            )

    def _late(self, ranks: list[int], within: float) -> CollectiveError:
        self._broken = True
        self._abort(f"replicas {ranks} are late")
        named = ", ".join(self._named(rank) for rank in ranks)
        return CollectiveError(
            f"no answer from {named} within {within:g} s (ClusterConfig.step_deadline_s)."
        )

    def _abort(self, reason: str) -> None:
        """Release the replicas that wait for one another; the dead cannot hear it."""
        if session() == self._session:
            calls = [actor.abort.remote(reason) for actor in self._actors]
            ray.wait(calls, num_returns=len(calls), timeout=_ABORT_S)

    def close(self) -> None:
        """End the actors, the sockets and the reservation."""
        self._broken = True
        if self._channels is not None:
            self._channels.close()  # replicas that are idle see it and stop serving
            self._channels = None
        if session() == self._session:
            waiting = self._serving
            if waiting:
                _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_END_S)
            for actor in self._actors:
                with contextlib.suppress(RayError):
                    ray.kill(actor)
            if waiting:
                ray.wait(waiting, num_returns=len(waiting), timeout=_END_S)
            remove_placement_group(self._reservation)
        self._actors, self._serving = [], []
        # An actor that was killed while it formed its group could not take its names away.
        for path in glob.glob(segment_path(self._name, "*")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _is_stopped(pid: int) -> bool:
    """Tell whether a process of this host is stopped; one that is gone is not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def _why(error: RayError) -> str:
    """Return the line of Ray's long text that says what happened."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return textwrap.shorten(lines[-1], _REASON_CHARACTERS, placeholder=" …")


def _reserve(size: int, config: ClusterConfig) -> Any:
    """Return a placement group with one bundle per replica, on the nodes that its places are numbered on.

    Raises:
        CollectiveError: the cluster has not the CPUs, or they are taken.
    """
    cpus = config.num_cpus_per_replica
    found = nodes()
    where = homes(size, found, cpus)
    short = [n for n in found if cpus * where.count(n) > n.cpus]
    wanted = f"{size} replicas with {cpus:g} CPUs each (ClusterConfig.num_cpus_per_replica)"
    if short:
        there = ", ".join(f"{node.cpus} CPUs ({node.address})" for node in found)
        raise CollectiveError(
            f"{wanted} need {cpus * size:g} CPUs; the cluster has {there}. Ask for fewer (0 reserves none)."
        )
    needed = {"CPU": cpus} if cpus else {"memory": 1}
    group = placement_group(
        [needed] * size,
        strategy="PACK",
        bundle_label_selector=[{NODE_LABEL: node.id} for node in where],
    )
    deadline = time.monotonic() + config.start_deadline_s
    try:
        while not group.wait(1):
            state = placement_group_table(group)["stats"]["scheduling_state"]
            if state == "INFEASIBLE" or time.monotonic() > deadline:
                free = ray.available_resources().get("CPU", 0)
                raise CollectiveError(
                    f"Ray cannot place {wanted}: {state.lower().replace('_', ' ')}. "
                    f"{free:g} of its {sum(node.cpus for node in found)} CPUs are free."
                )
    except BaseException:
        remove_placement_group(group)
        raise
    return group


def launch_ray(places: Sequence[Place], config: ClusterConfig) -> Gang:
    """Start a gang of actors, one per place."""
    join_ray(config)
    return Gang(RayDelivery(len(places), config), config.step_deadline_s)
