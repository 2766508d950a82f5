"""One replica of a gang as a gang of its own: for programs that run on one place of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...strategies.errors import InvalidState, NotInitialized
from ..replica.message import Message
from .assign import assign
from .delivery import VALUES_GONE, Delivery, GangChanged, Request
from .gang import Gang
from .recovery import Recovery

if TYPE_CHECKING:
    from ...strategies.errors import ReplicaLost
    from ..device.place import Place


class SingleRankDelivery(Delivery):
    """Delivers to one replica of a gang, which is rank 0 here, whatever its rank there becomes."""

    size = 1

    def __init__(self, delivery: Delivery, rank: int) -> None:
        self._all = delivery
        self._first_rank = rank  # it changes where the gang goes on with fewer
        self.replica = delivery.where[rank]

    @property
    def rank(self) -> int | None:
        """The replica's rank in the gang; None: it was lost, and another may have its place."""
        where = self._all.where
        return next((rank for rank in self._all.alive if where[rank] is self.replica), None)

    @property
    def successor(self) -> Mapping[str, Any] | None:
        """What tells the replica that stands where this one stood in a gang that replaces the lost; or None."""
        there = self._all.where[self._first_rank]
        return None if there is self.replica else there

    @property
    def broken(self) -> bool:
        return self._all.broken or self.rank is None

    @property
    def where(self) -> Sequence[Mapping[str, Any]]:
        return [self.replica]

    def reserve(self) -> int:
        return self._all.reserve()

    def knows(self, number: int) -> bool:
        return self._all.knows(number)

    def start(
        self, messages: Mapping[int, Message], ahead: bool = False, number: int | None = None
    ) -> int:
        rank = self.rank
        if rank is None:
            raise InvalidState(VALUES_GONE)
        return self._all.start({rank: messages[0]}, ahead, number)

    def finish(self, number: int) -> dict[int, Message]:
        (answer,) = self._all.finish(number).values()
        return {0: answer}

    def poll(self, number: int) -> bool:
        return self._all.poll(number)

    def give_up(self, number: int) -> None:
        self._all.give_up(number)

    @property
    def alive(self) -> list[int]:
        return [] if self.rank is None else [0]

    def calls(self) -> bool:
        return self._all.calls()

    def drain(self) -> None:
        self._all.drain()

    def close(self) -> None:
        """Do nothing: the gang goes on."""


class SingleReplicaGang(Gang):
    """Replica ``rank`` of ``gang``, alone. What it runs has no collectives, and the others take no part.

    If another takes the replica's place, ``shrunk`` grows: programs go on there with the values that the driver
    has, for no other replica has these.
    """

    heals = False
    alone = True

    def __init__(self, gang: Gang, rank: int) -> None:
        self._gang = gang
        self._single = SingleRankDelivery(gang.delivery, rank)
        super().__init__(self._single, gang.config)
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
        return self._gang.new_id()

    def libraries(self) -> frozenset[str]:
        """Return the gang's: another replica may take this one's place."""
        return self._gang.libraries()

    def drain(self, left: int = 0) -> None:
        """Wait for what either has under way."""
        self._gang.drain()
        super().drain(left)

    def mend(self) -> None:
        self._gang.mend()

    def _torn(self) -> None:
        """End what either has under way."""
        self._gang._torn()
        self.fail(KeyboardInterrupt("interrupted"))

    @property
    def _goes_on(self) -> bool:
        """Whether what ran on a lost replica is sent to the one in its place."""
        return self.config.on_failure != "shrink" and not self.meets_trainers

    def _recover(self, lost: ReplicaLost) -> None:
        """Mend the gang; raise if the replica is gone and not replaced: what it ran is to be run again."""
        Recovery(self._gang).after(lost)
        if self.delivery.broken:
            lost.args = (f"{lost} It ran this program alone: run it again.",)
            raise lost

    def _finish(self, request: Request) -> None:
        super()._finish(request)
        if request.fetched is not None:
            self._gang.ledger.failures = 0  # a step was done since the last loss

    def settle(self, lost: ReplicaLost) -> None:
        """Finish the steps that the replica has answered; fail those that nobody will be sent.

        The gang calls this once the living have answered everything; what is left then is sent anew.
        """
        self.under_way = [request for request in self.under_way if not request.settled]
        broken = self.delivery.broken
        while not broken and self.under_way and self.delivery.knows(self.under_way[0].number):
            self._finish(self.under_way[0])
        ended = broken and not self._goes_on
        failed = [request for request in self.under_way if ended or not request.begun]
        left = [request for request in self.under_way if request not in failed]
        assign(*((request, "failed", lost) for request in failed), (self, "under_way", left))

    def follow(self) -> None:
        """Go on with the replica that took this one's place: values are sent to it before steps are, anew."""
        successor = self._single.successor if self._goes_on else None
        if successor is None:
            return
        assign(
            (self._single, "replica", successor),
            (self, "shrunk", [*self.shrunk, [0]]),
            *self.voiding(),
        )

    def read(self, scope: int, name: str, rank: int = 0) -> np.ndarray:
        """Return a persistable from the replica's device scope.

        Raises:
            GangChanged: the replica was lost; the one in its place does not have the value.
        """
        with self.turn:
            changes = len(self.shrunk)
            try:
                return super().read(scope, name, rank)
            except NotInitialized:
                if len(self.shrunk) > changes:
                    raise GangChanged from None
                raise


def single_at(gang: Gang, places: Sequence[Place], place: Place) -> Gang | None:
    """Return the replica on ``place`` of a gang that was started on ``places``; None: it was lost."""
    single = gang.singles.get(place)
    if single is not None and not single.delivery.broken:
        return single
    with gang.turn:
        gang.mend()  # else the new one would begin with a replica that is lost
        left = gang.left_of(places)
        if place not in left:
            return None
        single = gang.singles.get(place)  # it may have gone on
        if single is None or single.delivery.broken:
            single = gang.singles[place] = SingleReplicaGang(gang, left.index(place))
        return single
