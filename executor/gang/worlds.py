"""Worlds: the groups that a gang's replicas form with those of other trainers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ...strategies.errors import RowlockError
from ..replica import orders
from ..replica.message import Message
from .replicas import Replicas
from .trainers import Card, Table, Trainers, World, meet


class Worlds:
    """The groups of one gang, by their trainers. The caller has the gang's turn."""

    def __init__(self, gang: Replicas) -> None:
        self._gang = gang
        self._worlds: dict[Trainers, World] = {}

    def __bool__(self) -> bool:
        return bool(self._worlds)

    def of(self, trainers: Trainers) -> World | None:
        """Return the group of trainers, None if they have yet to meet; one that has ended is left."""
        world = self._worlds.get(trainers)
        if world is not None and world.ended is not None:
            self.part(world)
            return None
        return world

    def enter(
        self,
        trainers: Trainers,
        card: Card,
        table: Table,
        each: Callable[[Sequence[Message]], list[Message]],
    ) -> World:
        """Meet the trainers, and have all replicas form a group with theirs; ``each`` sends them messages.

        Raises:
            InvalidValue: trainers disagree about who they are.
            TrainerLost: one does not come within ``ClusterConfig.start_deadline_s``.
            CollectiveError: their replicas cannot form a group.
        """
        within, size = self._gang.config.start_deadline_s, self._gang.size
        world = self._worlds[trainers] = meet(trainers, card, table, within)
        ranks = range(world.first, world.first + size)
        try:
            each(
                [orders.pack(orders.JoinTrainers(world.name, r, world.size, within)) for r in ranks]
            )
        except RowlockError as error:
            explained = world.explain(error)
            self.part(world)
            raise explained from error
        return world

    def part(self, world: World) -> None:
        """Have living replicas leave a group that has ended, and forget the programs that met in it."""
        gang = self._gang
        with gang.turn:
            if self._worlds.pop(world.trainers, None) is None:
                return
            loads = gang.ledger.programs.items()
            gang.ledger.programs = {n: p for n, p in loads if p.options.trainers != world.name}
            leave = gang.stamped(orders.pack(orders.LeaveTrainers(world.name, world.ended or "")))
            with contextlib.suppress(RowlockError):  # another loss is noticed at the next step
                if not gang.delivery.broken:
                    gang.some(dict.fromkeys(gang.delivery.alive, leave))

    def close(self) -> None:
        """Tell the other trainers that this one leaves."""
        for world in self._worlds.values():
            world.leave()
        self._worlds.clear()
