"""ActorPool: the actors that take a gang's ranks: the first, those that stand by, and those for lost ones."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import ray
from ray.exceptions import GetTimeoutError, RayError

from ...strategies.cluster import ClusterConfig
from ...strategies.errors import CollectiveError, PlacementError, ReplicaLost
from .diagnosis import LOOK_S
from .nodes import reachable
from .placement import reserve, reserve_another
from .replica_handle import ReplicaHandle, end_all, why

_END_S = 2.0


class ActorPool:
    """Actors for ``size`` ranks, and those that stand by (``ClusterConfig.spares``); all run once it is made.

    ``first``: those for the ranks. ``cut_off``: nodes that were not to be heard, which it keeps up to date.
    ``unfit``: why an actor was refused, by its node; no other is placed there.

    Raises:
        PlacementError: there is no room for them.
        CollectiveError: one did not start.
    """

    def __init__(
        self, size: int, config: ClusterConfig, gpus: Sequence[int], cut_off: set[str]
    ) -> None:
        self._config, self._cut_off = config, cut_off
        everyone = size + config.spares
        self._reservations = [reserve(everyone, config, gpus=gpus)]
        handles = [
            ReplicaHandle(self._reservations[0], bundle, config) for bundle in range(everyone)
        ]
        self.first, self.spares = handles[:size], handles[size:]
        self.vacated: list[ReplicaHandle] = []  # in whose places the next spares stand
        self.unfit: dict[str, str] = {}
        try:
            self.describe(dict(enumerate(handles)))
        except BaseException:
            self.close(self.first)
            raise

    def describe(self, members: Mapping[int, ReplicaHandle]) -> None:
        """Learn where members are, once their actors run; ``members`` by rank.

        Raises:
            CollectiveError: one did not start in time, or cannot import what it needs.
            ReplicaLost: one ended before it was there.
        """
        within = self._config.start_deadline_s
        calls = [member.described for member in members.values()]
        try:
            for member, where in zip(members.values(), ray.get(calls, timeout=within), strict=True):
                member.where = where
        except GetTimeoutError:
            answered, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
            missing = [rank for rank, other in members.items() if other.described not in answered]
            raise CollectiveError(
                f"the actors of replicas {missing} did not start within "
                f"{within:g} s (ClusterConfig.start_deadline_s)."
            ) from None
        except RayError as error:
            if "failed to import" not in str(error):
                ended = [r for r, member in members.items() if member.ended()] or list(members)
                names = ", ".join(f"{rank} on {members[rank].address}" for rank in ended)
                raise ReplicaLost(
                    f"the actor of replica {names} did not start: {why(error)}", ended
                ) from error
            raise CollectiveError(
                f"a replica's actor cannot import what it needs: {why(error)}. Install rowlock on every "
                f"node of the cluster, or send it along: "
                f"ray.init(runtime_env={{'working_dir': <folder that holds rowlock>}})."
            ) from error

    def take_spare(self) -> ReplicaHandle | None:
        """Return a spare that is alive, if there is one."""
        while self.spares:
            spare = self.spares.pop(0)
            spare.described = spare.actor.describe.remote()  # it may have ended since it was made
            if not spare.stopped:
                with contextlib.suppress(CollectiveError):
                    self.describe({-1: spare})
                    return spare
            spare.kill()
            if spare.where:
                self.vacated.append(spare)
        return None

    def place(self, lost: ReplicaHandle, members: Sequence[ReplicaHandle]) -> ReplicaHandle:
        """Start an actor for a lost one: in its bundle, or beside ``members`` if its node is lost, too.

        Raises:
            PlacementError: there is no room for it.
        """
        node = lost.where["node"]
        there = reachable(node, LOOK_S)
        (self._cut_off.discard if there else self._cut_off.add)(node)
        if there and node not in self.unfit:
            return ReplicaHandle(lost.reservation, lost.bundle, self._config)
        without = self._cut_off.union(self.unfit)
        occupied = [member.where["node"] for member in members if member.alive]
        self._reservations.append(reserve_another(occupied, len(members), self._config, without))
        return ReplicaHandle(self._reservations[-1], 0, self._config)

    def refill(self, members: Sequence[ReplicaHandle]) -> None:
        """Start new spares, while training goes on, for those that replaced a replica."""
        with contextlib.suppress(PlacementError):  # there is no room for another spare
            while self.vacated:
                self.spares.append(self.place(self.vacated.pop(), members))

    def close(self, members: Sequence[ReplicaHandle]) -> None:
        """End members and spares, and give their bundles back."""
        with contextlib.suppress(RayError):
            end_all([*members, *self.spares], self._reservations, _END_S)
        self.spares = []
