"""The gang made of Ray actors: Ray places, starts and ends them; steps travel on the channel."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ..executor.gang import Gang
from ..executor.place import Place
from ..executor.replica import Message
from ..strategies.cluster import ClusterConfig
from ..strategies.errors import CollectiveError, InvalidState
from .channel import SECRET_BYTES, Channels, Listener
from .nodes import NODE_LABEL, homes, nodes
from .replica import ReplicaActor

_OBJECT_STORE_BYTES = 200_000_000
_DEATH_NOTICE_S = 2.0
_started_ray = False


class RayDelivery:
    """Delivers messages to actors; the ``serve`` calls in flight tell when an actor dies."""

    def __init__(self, size: int, config: ClusterConfig) -> None:
        self.size = size
        self.config = config
        self.broken = False
        self._channels: Channels | None = None
        self._group = _reserve(size, config)
        self._actors: list[Any] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        config, secret = self.config, secrets.token_bytes(SECRET_BYTES)
        for rank in range(self.size):
            bundle = PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=rank
            )
            actor = ReplicaActor.options(  # type: ignore[attr-defined]  # added by ray.remote
                num_cpus=config.num_cpus_per_replica, scheduling_strategy=bundle
            ).remote(rank, self.size)
            self._actors.append(actor)
        self.where = _get(
            [actor.describe.remote() for actor in self._actors], config.start_deadline_s
        )
        listener = Listener(ray.util.get_node_ip_address(), secret, self.size)
        group = f"rowlock-{uuid.uuid4().hex}"
        host, port = listener.address
        self._serving = [
            actor.serve.remote(
                host, port, secret, group, config.threads_per_replica, config.collective_deadline_s
            )
            for actor in self._actors
        ]
        self._channels = Channels(listener.accept_all(config.start_deadline_s, self._check_serving))

    def _check_serving(self) -> None:
        ended, _ = ray.wait(self._serving, num_returns=1, timeout=0)
        if ended:
            ray.get(ended[0])  # raises what ended it
            raise CollectiveError("a replica stopped before it connected.")

    def exchange(self, messages: Sequence[Message]) -> list[Message]:
        """Deliver one message to each replica and return their answers.

        Raises:
            CollectiveError: a replica died or did not answer in time; the gang cannot be used again.
        """
        if self.broken or self._channels is None:
            raise InvalidState(
                "the replicas that held the newest values are gone. Set the parameters again (run the startup "
                "program, or load them); the next run starts a new gang."
            )
        try:
            return self._channels.exchange(
                messages, self.config.step_deadline_s, self._lost, self._late
            )
        except BaseException as error:
            if not isinstance(
                error, CollectiveError
            ):  # an interrupt: let the replicas out of the step
                self._abort(f"the driver was interrupted ({type(error).__name__})")
            raise

    def _lost(self, rank: int) -> CollectiveError:
        self.broken = True
        self._abort(f"replica {rank} is gone")
        place = self.where[rank]
        reason = ""
        if not ray.is_initialized():
            return CollectiveError(f"replica {rank} is gone: Ray was shut down.")
        with contextlib.suppress(ray.exceptions.GetTimeoutError):
            try:
                ray.get(self._serving[rank], timeout=_DEATH_NOTICE_S)
            except ray.exceptions.GetTimeoutError:
                raise
            except ray.exceptions.RayError as error:
                reason = " " + str(error).strip().splitlines()[0]
        return CollectiveError(
            f"replica {rank} (process {place['pid']} on {place['host']}) is gone: its channel closed.{reason} "
            f"The next run starts a new gang from the values in the driver's scope."
        )

    def _late(self, ranks: list[int]) -> None:
        self.broken = True
        self._abort(f"replicas {ranks} are late")

    def _abort(self, reason: str) -> None:
        if not ray.is_initialized():  # or the call would start another
            return
        with contextlib.suppress(Exception):  # the cause is what the caller reports, not this
            _get([actor.abort.remote(reason) for actor in self._actors[:1]], 1.0)

    def close(self) -> None:
        """End the actors, the sockets and the reservation."""
        self.broken = True
        if self._channels is not None:
            self._channels.close()
            self._channels = None
        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor)
            remove_placement_group(self._group)
        self._actors = []


def _get(references: list[Any], within: float) -> list[Any]:
    try:
        return ray.get(references, timeout=within)
    except ray.exceptions.GetTimeoutError:
        raise CollectiveError(f"the replicas' actors did not start within {within} s.") from None


def _reserve(size: int, config: ClusterConfig) -> Any:
    """Return a placement group with one bundle per replica, on the nodes that its places are numbered on.

    Raises:
        CollectiveError: the cluster has not the CPUs.
    """
    cpus = config.num_cpus_per_replica
    found = nodes()
    where = homes(size, found, cpus)
    short = [n for n in found if cpus * where.count(n) > n.cpus]
    if short:
        raise CollectiveError(
            f"{size} replicas of {cpus} CPUs each do not fit: the cluster's nodes have "
            f"{', '.join(f'{n.cpus} ({n.address})' for n in found)}. "
            f"Lower ClusterConfig.num_cpus_per_replica (0 reserves none)."
        )
    needed = {"CPU": cpus} if cpus else {"memory": 1}
    group = placement_group(
        [needed] * size,
        strategy="PACK",
        bundle_label_selector=[{NODE_LABEL: node.id} for node in where],
    )
    deadline = time.monotonic() + config.start_deadline_s
    while not group.wait(1):
        state = placement_group_table(group)["stats"]["scheduling_state"]
        if state == "INFEASIBLE" or time.monotonic() > deadline:
            remove_placement_group(group)
            raise CollectiveError(
                f"Ray cannot place {size} replicas of {cpus} CPUs: {state.lower()}."
            )
    return group


def _join_ray(config: ClusterConfig) -> None:
    """Join the Ray that is initialised, the one the configuration names, or start one on this machine."""
    global _started_ray
    if ray.is_initialized():
        return
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": True}
    address = config.address or os.environ.get("RAY_ADDRESS")
    if address:
        ray.init(address=address, **quiet)
        return
    # Workers import this package from where the driver has it, installed or not.
    root = str(Path(__file__).resolve().parents[1])
    package_home = root if (Path(root) / "rowlock").is_dir() else str(Path(root).parent)
    if package_home not in sys.path or not os.environ.get("PYTHONPATH", "").startswith(
        package_home
    ):
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = package_home + (os.pathsep + before if before else "")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(include_dashboard=False, object_store_memory=_OBJECT_STORE_BYTES, **quiet)
    _started_ray = True


def launch_ray(places: Sequence[Place], config: ClusterConfig) -> Gang:
    """Start a gang of actors, one per place."""
    _join_ray(config)
    return Gang(RayDelivery(len(places), config), config.step_deadline_s)


def leave_ray() -> None:
    """End the Ray that was started for gangs; leave one that was joined."""
    global _started_ray
    if _started_ray and ray.is_initialized():
        ray.shutdown()
    _started_ray = False
