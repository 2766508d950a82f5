"""The fallback transport: ordinary actor calls, for nodes that cannot connect to the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from ..executor.message import Message
from ..strategies.errors import CollectiveError

_WATCH_S = 0.25


class ActorCalls:
    """Offers what :class:`Channels` offers, about ten times slower for small messages.

    What a replica fetched is lost with it if it ends between its vote and its answer.
    """

    def __init__(
        self,
        lost: Callable[[int], CollectiveError],
        late: Callable[[list[int], float], CollectiveError],
        watch: Callable[[list[int]], None] = lambda ranks: None,
    ) -> None:
        self._lost, self._late, self._watch = lost, late, watch
        self._actors: dict[int, Any] = {}
        self._number = 0
        self._asked: dict[int, dict[int, Any]] = {}
        self._answers: dict[int, dict[int, Message]] = {}

    def use(self, actors: Mapping[int, Any]) -> None:
        """Talk to these actors, by rank, from now on; what was under way is forgotten."""
        self._actors = dict(actors)
        self._asked, self._answers = {}, {}

    def start(self, messages: Mapping[int, Message], within: float) -> int:
        """Send messages by rank; return the number under which :meth:`finish` gives the answers.

        An interrupt leaves no replica without its message: all are sent again, and an actor does nothing for a
        number that it had before.
        """
        self._number = number = self._number + 1
        try:
            asked = {rank: self._ask(rank, number, m) for rank, m in messages.items()}
        except BaseException:
            for rank, message in messages.items():
                self._ask(rank, number, message)
            raise
        self._answers[number], self._asked[number] = {}, asked
        return number

    def _ask(self, rank: int, number: int, message: Message) -> Any:
        arrays = [np.asarray(array) for array in message.arrays]
        head = dict(message.head)
        return self._actors[rank].answer.remote(number, message.kind, head, arrays, message.step)

    def finish(self, number: int, within: float) -> dict[int, Message]:
        """Return the answers by rank.

        Raises:
            CollectiveError: a replica is gone or late.
        """
        self._gather(number, set(self._asked[number]), within)
        del self._asked[number]
        return dict(sorted(self._answers.pop(number).items()))

    def _gather(self, number: int, ranks: set[int], within: float) -> None:
        deadline = time.monotonic() + within
        asked, answers = self._asked[number], self._answers[number]
        while waiting := {asked[r]: r for r in asked if r in ranks and r not in answers}:
            came, _ = ray.wait(list(waiting), num_returns=1, timeout=_WATCH_S)
            for reference in came:
                rank = waiting[reference]
                try:
                    answers[rank] = _own(ray.get(reference))
                except RayError:
                    raise self._lost(rank) from None
            if time.monotonic() > deadline:
                raise self._late(sorted(set(waiting.values()) - set(answers)), within)
            if not came:
                self._watch(sorted(waiting.values()))

    def poll(self, number: int) -> bool:
        """Tell, without waiting, whether :meth:`finish` would wait."""
        asked = list(self._asked.get(number, {}).values())
        return len(ray.wait(asked, num_returns=len(asked), timeout=0)[0]) == len(asked)

    def give_up(self, number: int) -> None:
        """Nobody wants these answers any more."""
        self._asked.pop(number, None)
        self._answers.pop(number, None)

    def came(self, number: int, rank: int) -> tuple[Message | None, Message | None]:
        """Return what a replica posted for a message (nothing), and its answer, if it came."""
        return None, self._answers.get(number, {}).get(rank)

    def own(self, number: int, rank: int) -> Mapping[int, Sequence[np.ndarray]]:
        """Return what a replica posted of its own: nothing."""
        return {}

    def settle(self, ranks: set[int], within: float) -> None:
        """Wait until these replicas have answered everything."""
        for number in list(self._asked):
            self._gather(number, ranks, within)

    def hang_up(self, rank: int) -> None:
        """Nothing to do: nobody listens to an actor that is not asked."""

    def close(self) -> None:
        """Forget everybody."""
        self.use({})


def _own(answer: Message) -> Message:
    """Return an answer whose arrays can be written to; those of Ray's object store cannot."""
    return answer._replace(arrays=[np.array(array) for array in answer.arrays])
