"""ActorCalls: the fallback transport by ordinary actor calls, for nodes that cannot connect to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from ...executor.gang.delivery import Outcome
from ...executor.host.deadline import Deadline
from ...executor.host.interrupts import interruptible
from ...executor.replica.message import Message
from ..channel.transport import Transport

_WATCH_S = 0.25


class _Exchange:
    """A message to each replica; the answers that are asked for, and those that came, by rank."""

    def __init__(self, messages: dict[int, Message], lasting: bool) -> None:
        self.messages, self.lasting = messages, lasting
        self.calls: dict[int, Any] = {}
        self.answers: dict[int, Message] = {}


class ActorCalls(Transport[_Exchange]):
    """Calls actors: for small messages this takes about ten times as long as :class:`Channels`.

    What a replica fetched is lost with it if it ends between its vote and its answer. A message that an
    interrupt kept from being sent, or maybe not, is sent before the next: an actor that had it gives the same
    answer again.
    """

    _actors: Mapping[int, Any] = {}

    def use(self, actors: Mapping[int, Any]) -> None:
        """Talk to these actors, by rank, from now on; messages in flight are forgotten."""
        self._actors = dict(actors)
        self._under_way = {}

    def start(
        self, messages: Mapping[int, Message], within: float, number: int | None = None
    ) -> int:
        self._push()
        lasting = number is not None
        number = self.reserve() if number is None else number
        self._under_way[number] = _Exchange(dict(messages), lasting)
        self._push()
        return number

    def _push(self) -> None:
        for number, exchange in list(self._under_way.items()):
            for rank in exchange.messages.keys() - exchange.calls.keys():
                exchange.calls[rank] = self._ask(rank, number, exchange.messages[rank])

    def _ask(self, rank: int, number: int, message: Message) -> Any:
        arrays = [np.asarray(array) for array in message.arrays]
        head = dict(message.head)
        return self._actors[rank].answer.remote(number, message.kind, head, arrays, message.step)

    def finish(self, number: int, within: float) -> dict[int, Message]:
        self._push()
        exchange = self._under_way[number]
        self._gather(exchange, set(exchange.messages), within)
        if not exchange.lasting:
            self._under_way.pop(number, None)
        return dict(sorted(exchange.answers.items()))

    def _gather(self, exchange: _Exchange, ranks: set[int], within: float) -> None:
        deadline = Deadline(within)
        calls, answers = exchange.calls, exchange.answers
        while waiting := {calls[r]: r for r in calls if r in ranks and r not in answers}:
            with interruptible:
                ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_WATCH_S)
            for reference in ready:
                rank = waiting[reference]
                try:
                    with interruptible:
                        answers[rank] = _own(ray.get(reference))
                except RayError:
                    raise self._lost(rank) from None
            if deadline.over:
                raise self._late(sorted(set(waiting.values()) - set(answers)), within)
            if not ready:
                self._watch(sorted(waiting.values()))

    def poll(self, number: int) -> bool:
        exchange = self._under_way.get(number)
        calls = list(exchange.calls.values()) if exchange is not None else []
        with interruptible:
            return len(ray.wait(calls, num_returns=len(calls), timeout=0)[0]) == len(calls)

    def give_up(self, number: int) -> None:
        exchange = self._under_way.get(number)
        if exchange is not None:
            self._push()
            self._under_way.pop(number, None)

    def outcome(self, number: int, rank: int) -> Outcome:
        """Return the answer of a replica, which posts nothing."""
        exchange = self._under_way.get(number)
        return Outcome(None, exchange.answers.get(rank) if exchange is not None else None)

    def drain(self, ranks: set[int], within: float) -> None:
        for exchange in list(self._under_way.values()):
            self._gather(exchange, ranks, within)

    def hang_up(self, rank: int) -> None:
        """Do nothing: an actor that is not asked is not listened to."""

    def close(self) -> None:
        """Forget all actors."""
        self.use({})


def _own(answer: Message) -> Message:
    """Return an answer with arrays that can be written to, unlike arrays of Ray's object store."""
    return answer._replace(arrays=[np.array(array) for array in answer.arrays])
