"""One replica of a gang as a gang of its own: for programs that run on one place of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...graph.ir.replica_program import ReplicaProgram
from ..replica.message import Message
from ..replica.options import RunOptions
from .assign import assign
from .delivery import Delivery
from .gang import Gang

if TYPE_CHECKING:
    from ...strategies.errors import ReplicaLost


class SingleRankDelivery:
    """Delivers to one rank of a gang, which is rank 0 here."""

    def __init__(self, delivery: Delivery, rank: int) -> None:
        self._all, self._rank = delivery, rank
        self.size = 1

    @property
    def broken(self) -> bool:
        """Whether the gang is closed."""
        return self._all.broken

    @property
    def where(self) -> Sequence[Mapping[str, Any]]:
        """What tells the process and host of the replica."""
        return [self._all.where[self._rank]]

    def reserve(self) -> int:
        """Return a number for messages to be sent."""
        return self._all.reserve()

    def knows(self, number: int) -> bool:
        """Tell whether a message was sent under a number, and not given up."""
        return self._all.knows(number)

    def start(
        self, messages: Mapping[int, Message], ahead: bool = False, number: int | None = None
    ) -> int:
        """Send the message for rank 0."""
        return self._all.start({self._rank: messages[0]}, ahead, number)

    def finish(self, number: int) -> dict[int, Message]:
        """Return the answer, as that of rank 0."""
        return {0: self._all.finish(number)[self._rank]}

    def poll(self, number: int) -> bool:
        """Tell, without waiting, whether the answer is there."""
        return self._all.poll(number)

    def give_up(self, number: int) -> None:
        """Throw the answer away."""
        self._all.give_up(number)

    @property
    def alive(self) -> list[int]:
        """Rank 0, as long as it is."""
        return [0] if self._rank in self._all.alive else []

    def calls(self) -> bool:
        """Tell whether a replica of the gang, at work, has called the caller."""
        return self._all.calls()

    def drain(self) -> None:
        """Wait until all of the gang stand at one step."""
        self._all.drain()

    def close(self) -> None:
        """The gang goes on."""


class SingleReplicaGang(Gang):
    """Replica ``rank`` of ``gang``, alone. What it runs has no collectives, and the others take no part."""

    def __init__(self, gang: Gang, rank: int) -> None:
        self._gang, self._rank = gang, rank
        super().__init__(SingleRankDelivery(gang.delivery, rank), gang.config)
        self.turn = gang.turn
        gang.before_close(self.close)

    @property
    def epoch(self) -> int:
        """The gang's: a failure here makes all begin afresh."""
        return self._gang.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._gang.epoch = epoch or self._gang.epoch

    def new_id(self) -> int:
        """Return a number that nothing on the gang's replicas has."""
        return self._gang.new_id()

    def libraries(self) -> frozenset[str]:
        """Return the gang's: another replica may take this one's place."""
        return self._gang.libraries()

    def drain(self, left: int = 0) -> None:
        """Wait for what either has under way."""
        self._gang.drain()
        super().drain(left)

    def _mend(self) -> None:
        self._gang._mend()

    def _torn(self) -> None:
        """What either has under way ends here."""
        torn = KeyboardInterrupt("interrupted")
        self._gang._torn()
        assign(*((other, "failed", torn) for other in self.under_way), (self, "under_way", []))

    def _recover(self, lost: ReplicaLost) -> None:
        """The gang mends itself at its next step; what ran here is to be run again."""
        self._gang.ledger.stale.add(self._rank)
        for request in self.under_way:
            request.failed = lost
        self.under_way.clear()
        raise lost

    def load(
        self,
        program: ReplicaProgram | str,
        scope: int,
        options: RunOptions | None = None,
        functions: Sequence[int] = (),
    ) -> int:
        """Give a program to the replica, which does not wait for its peers."""
        options = replace(options or RunOptions.sequential(), alone=True)
        return super().load(program, scope, options, functions)
