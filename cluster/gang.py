"""The gang made of Ray actors: Ray places, starts and ends them; steps travel on the channel."""

from __future__ import annotations

import os
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from ..executor.device.place import CUDAPlace, Place
from ..executor.gang.assign import Change, assign
from ..executor.gang.delivery import VALUES_GONE, Mendable, Outcome
from ..executor.gang.gang import Gang
from ..executor.gang.libraries import CURE
from ..executor.replica.message import Message, StackedMessages
from ..executor.replica.orders import Regroup, failure_of, pack
from ..strategies.cluster import ClusterConfig
from ..strategies.errors import CollectiveError, InvalidState, PlacementError, ReplicaLost
from ..strategies.log import log
from .channel.channel import Channels
from .channel.connection import ReplicaConnection
from .channel.listener import SECRET_BYTES, Listener
from .primitives.shm import forget_segments
from .ray.actor_pool import ActorPool
from .ray.calls import ActorCalls
from .ray.diagnosis import Diagnosis, named
from .ray.nodes import GPU
from .ray.replica_handle import ReplicaHandle, teach
from .ray.session import join_ray, leave_ray, session, unjoined

__all__ = ["RayDelivery", "launch_ray", "leave_ray"]

_SESSION_S = 0.05


class RayDelivery(Mendable):
    """Delivers messages to actors, notices which are lost and why, and brings in others."""

    def __init__(self, places: Sequence[Place], config: ClusterConfig) -> None:
        gpus = [place.device_id for place in places if isinstance(place, CUDAPlace)]
        if gpus:
            each = {**config.resources_per_replica, GPU: 1.0}
            config = config.model_copy(update={"resources_per_replica": each})
        self.config = config
        self._session, self._looked, self._other = session(), 0.0, False
        self._closed = False
        self._group = ""
        self._diagnosis = Diagnosis(config.heartbeat_deadline_s)
        self._pool = ActorPool(len(places), config, gpus, self._diagnosis.cut_off)
        self._members = self._pool.first
        transport = Channels if config.transport == "socket" else ActorCalls
        self._channels = transport(self._lost, self._late, self._look_after)
        try:
            self._connect(dict(enumerate(self._members)))
            self.regroup()
        except BaseException:
            self.close()
            raise

    # -- what a gang needs --------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def alive(self) -> list[int]:
        return [rank for rank, member in enumerate(self._members) if member.alive]

    @property
    def broken(self) -> bool:
        for member in self._members:  # every step asks this
            if member.alive:
                return self._closed or self._ray_is_gone()
        return True

    def _ray_is_gone(self) -> bool:
        """Tell whether Ray was shut down since; a shutdown takes far longer than the time between two looks."""
        now = time.monotonic()
        if now - self._looked > _SESSION_S:
            self._looked = now
            self._other = session() != self._session
        return self._other

    @property
    def where(self) -> list[dict[str, Any]]:
        return [member.where for member in self._members]

    def reserve(self) -> int:
        return self._channels.reserve()

    def knows(self, number: int) -> bool:
        return self._channels.knows(number)

    def start(
        self, messages: Mapping[int, Message], ahead: bool = False, number: int | None = None
    ) -> int:
        if self.broken:
            raise InvalidState(VALUES_GONE)
        first = (
            None if isinstance(messages, StackedMessages) else next(iter(messages.values()), None)
        )
        if first is not None and first.kind == "load":  # one program, on all of them
            functions = first.head["functions"]
            teach([self._members[r] for r in messages], functions, self.config.start_deadline_s)
        return self._channels.start(messages, self.config.step_deadline_s, number)

    def finish(self, number: int) -> Mapping[int, Message]:
        return self._channels.finish(number, self.config.step_deadline_s)

    def poll(self, number: int) -> bool:
        return self._channels.poll(number)

    def give_up(self, number: int) -> None:
        self._channels.give_up(number)

    # -- what became of a replica --------------------------------------------------------------------

    def _lost(self, rank: int) -> CollectiveError:
        is_over = session() != self._session
        reason = "Ray was shut down." if is_over else self._members[rank].reason()
        reason = reason[:1].upper() + reason[1:]
        name = named(self._members, rank)
        return self._gone([rank], f"{name} is gone: its channel closed. {reason}")

    def _late(self, ranks: list[int], within: float) -> CollectiveError:
        return self._gone(*self._diagnosis.late(self._members, ranks, within))

    def _look_after(self, ranks: list[int]) -> None:
        """Raise if one of these replicas, which have yet to answer, never will."""
        loss = self._diagnosis.look(self._members, ranks)
        if loss is not None:
            raise self._gone(*loss)

    def _gone(self, ranks: Sequence[int], text: str) -> ReplicaLost:
        """Give up replicas, and release those that wait for them; return the error that names them."""
        for rank in ranks:
            self._channels.hang_up(rank)
            self._members[rank].kill()
            if session() == self._session:
                self._diagnosis.end(self._members[rank])
        self.release(text)
        return ReplicaLost(text, list(ranks))

    def release(self, reason: str) -> None:
        """Have living replicas leave their group, formed or not, and stop waiting in it."""
        aborted = self._diagnosis.abort(self.alive, self._group, reason)
        if not aborted and session() == self._session:
            for rank in self.alive:
                self._members[rank].actor.abort.remote(self._group, reason)

    # -- going on without the lost ------------------------------------------------------------------

    def calls(self) -> bool:
        return False

    def drain(self) -> None:
        self._channels.drain(set(self.alive), self.config.collective_deadline_s)

    def outcome(self, number: int, rank: int) -> Outcome:
        return self._channels.outcome(number, rank)

    def replace(self) -> list[int]:
        """Replace each lost replica by a spare or a new actor; return the ranks.

        Raises:
            PlacementError: there is no node for it. Nodes where one was refused are tried again next time.
            ReplicaLost: a new one ended before it came.
        """
        empty, pool = [r for r, member in enumerate(self._members) if not member.alive], self._pool
        fresh: dict[int, ReplicaHandle] = {}
        vacated = []
        try:
            for rank in empty:
                spare = pool.take_spare()
                if spare is not None:
                    vacated.append(self._members[rank])
                fresh[rank] = spare or pool.place(self._members[rank], self._members)
            pool.describe(fresh)
            self._connect(fresh)
        except BaseException as error:
            for member in fresh.values():
                member.kill()
                member.hang_up()
            if isinstance(error, PlacementError) and pool.unfit:
                refusals, pool.unfit = " ".join(pool.unfit.values()), {}
                raise PlacementError(f"{refusals} No other node can be used: {error}") from error
            raise
        for rank, member in fresh.items():
            self._members[rank].hang_up()
            self._members[rank] = member
        pool.vacated += vacated
        return empty

    def refuse(self, unfit: Mapping[int, str]) -> ReplicaLost:
        """End new replicas that are not fit, by rank why; no other is placed on their nodes."""
        reasons = {
            rank: f"{named(self._members, rank)} was refused, for it would compute other bits: {why}. {CURE}"
            for rank, why in unfit.items()
        }
        self._pool.unfit.update(
            {self._members[r].where["node"]: text for r, text in reasons.items()}
        )
        text = " ".join(reasons.values())
        log.warning("%s", text)
        return self._gone(list(unfit), text)

    def shrink(self, *changes: Change) -> None:
        """Number the living anew, and forget the lost; make ``changes`` at the same moment."""
        for member in self._members:
            if not member.alive:
                member.hang_up()
        living = [member for member in self._members if member.alive]
        assign((self, "_members", living), *changes)

    # -- connections ----------------------------------------------------------------------------------

    def _connect(self, members: Mapping[int, ReplicaHandle]) -> None:
        """Have actors serve, and accept their connections."""
        if isinstance(self._channels, ActorCalls):
            for member in members.values():
                member.serving = member.described
            return
        secret = secrets.token_bytes(SECRET_BYTES)
        by_number = {member.number: member for member in members.values()}
        listener = Listener(ray.util.get_node_ip_address(), secret, list(by_number))
        try:
            for member in members.values():
                member.serving = member.actor.serve.remote(
                    *listener.address, listener.local_name, secret, member.number
                )

            def check() -> None:
                serving = {member.serving: rank for rank, member in members.items()}
                ready, _ = ray.wait(list(serving), num_returns=1, timeout=0)
                for reference in ready:
                    rank = serving[reference]
                    raise ReplicaLost(
                        f"replica {rank} {members[rank]} did not start: {members[rank].reason()}",
                        [rank],
                    )

            for number, ends in listener.accept_all(self.config.start_deadline_s, check).items():
                member = by_number[number]
                member.line = ReplicaConnection(ends.steps, near=member.near)
                member.watch = ends.watch
        finally:
            listener.close()

    def regroup(self) -> None:
        """Have the replicas form a new collective group, with the ranks that they have; programs are unloaded.

        Raises:
            CollectiveError: they could not.
            ReplicaLost: one more is lost.
        """
        if session() == self._session:
            self._diagnosis.post(self._members, self.config.start_deadline_s)
        if isinstance(self._channels, ActorCalls):
            self._channels.use({r: m.actor for r, m in enumerate(self._members)})
        else:
            self._channels.use({r: m.line for r, m in enumerate(self._members) if m.line})
            self._diagnosis.listen({r: m.watch for r, m in enumerate(self._members) if m.watch})
        if self._group:  # an interrupt may have kept others from what some wait for there
            self.release("its members form another group.")
        forget_segments(self._group)
        self._group = f"rowlock-{uuid.uuid4().hex}"
        backend, within = self.config.collectives, self.config.start_deadline_s
        messages = {
            r: pack(Regroup(self._group, r, self.size, backend, within, self._part_of_host(r)))
            for r in range(self.size)
        }
        answers = self.finish(self.start(messages)).values()
        failures = [failure_of(answer) for answer in answers if answer.kind == "error"]
        if failures:
            first = min(failures, key=lambda failure: failure.collateral)
            raise CollectiveError(f"the replicas could not form a group: {first.text}")
        self._pool.refill(self._members)

    def _part_of_host(self, rank: int) -> tuple[int, int, list[int]] | None:
        """Return a replica's part of its host's cores: its index, the number of parts, the gang's processes.

        None: it may use all cores.
        """
        if not self.config.pin_replicas:
            return None
        node = self._members[rank].where["node"]
        there = [r for r, member in enumerate(self._members) if member.where["node"] == node]
        pids = [self._members[r].where["pid"] for r in there]
        if self._members[rank].near:
            pids.append(os.getpid())
        return there.index(rank), len(there), pids

    def close(self) -> None:
        """End the actors, the sockets and the reservations."""
        self._closed = True
        self._channels.close()  # replicas that are idle see it and stop serving
        ray_is_there = session() == self._session
        self._diagnosis.close(probes=ray_is_there)
        if ray_is_there:
            self._pool.close(self._members)
        for member in self._members:
            member.hang_up()
        forget_segments(self._group)


def launch_ray(places: Sequence[Place], config: ClusterConfig) -> Gang:
    """Start a gang of actors, one per place."""
    join_ray(config, len(places))
    try:
        delivery = RayDelivery(places, config)
    except PlacementError as error:
        raise PlacementError(f"{str(error).rstrip('.')}{unjoined() or '.'}") from error
    log.info("placed %d replica(s): %s", len(places), _by_host(delivery.where))
    return Gang(delivery, config)


def _by_host(where: Sequence[Mapping[str, Any]]) -> str:
    hosts = [place["host"] for place in where]
    return ", ".join(
        f"{', '.join(str(rank) for rank, other in enumerate(hosts) if other == host)} on {host}"
        for host in dict.fromkeys(hosts)
    )
