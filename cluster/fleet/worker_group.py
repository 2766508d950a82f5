"""How the workers of a job wait for each other and exchange values, beside what trains them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...executor.gang.launchers import launcher_of
from ...executor.gang.meeting import meet
from ...executor.gang.trainers import Card, Trainers
from ...executor.gang.worlds import World
from ...executor.plan.group import CollectiveGroup, When
from ...strategies.current import current_config

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class WorkerGroup:
    """One member's way to the others; they meet at its first use. All make the same calls in the same order.

    ``job`` is the same for all members, and no other job's.
    """

    def __init__(self, job: str, number: int, count: int) -> None:
        members = tuple(f"{job} {i}" for i in range(count))
        self._trainers = Trainers(members, number, "fleet")
        self._current: World | None = None
        self._group: CollectiveGroup | None = None
        self._rounds = 0

    def gather(self, value: Any) -> list[Any]:
        """Return the values that members passed, by number: any that JSON can hold.

        What this member said stays where the others can read it, for it may end before they do.

        Raises:
            TrainerLost: some did not come; names them.
        """
        self._rounds += 1
        within = current_config().step_deadline_s
        return self._world().exchange(f"round {self._rounds}", value, within)

    def gather_bytes(self, array: Bytes) -> list[Bytes]:
        """Return the bytes that each member passed, by number; they may be many.

        Raises:
            TrainerLost: some did not come; names them.
        """
        sizes = self.gather(len(array))
        padded = np.zeros(max(1, *sizes), np.uint8)
        padded[: len(array)] = array
        parts = self._collectives().all_gather(padded, When(current_config().step_deadline_s))
        return [np.asarray(part)[:size] for part, size in zip(parts, sizes, strict=True)]

    def _world(self) -> World:
        if self._current is None:
            config = current_config()
            number = self._trainers.trainer
            card = Card(number, self._trainers.endpoints, 1, "CPU", {})
            table = launcher_of(config).table()
            cards = meet(self._trainers, card, table, config.start_deadline_s)
            self._current = World(self._trainers, cards, table)
        return self._current

    def _collectives(self) -> CollectiveGroup:
        if self._group is None:
            world, config = self._world(), current_config()
            rank = (world.name, world.first, world.size, None, config.start_deadline_s)
            self._group = launcher_of(config).form(*rank)
        return self._group
