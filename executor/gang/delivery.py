"""How messages reach replicas, what is asked of them, and what a gang remembers of it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...strategies.errors import ReplicaLost
from ..replica.message import Message, Stacked, StackedMessages, StepHead
from ..replica.orders import Load, pack_step, step_head
from .assign import Change
from .place_values import PlaceValues

VALUES_GONE = (
    "the replicas that held the newest values are gone. Set the parameters again (run the startup program, or "
    "load them); the next run starts a new gang."
)


class Outcome(NamedTuple):
    """What came from one replica for a message: what it posted, and its answer.

    ``own_values`` are those that it alone has after steps before the last: arrays by the number of steps done.
    """

    posted: Message | None
    answer: Message | None
    own_values: Mapping[int, Sequence[np.ndarray]] = {}


class Delivery(Protocol):
    """How messages reach replicas: one message each, an answer from each."""

    @property
    def size(self) -> int:
        """Number of replicas."""
        ...

    @property
    def broken(self) -> bool:
        """Whether it was closed, or no replica is left: the next run starts a new gang."""
        ...

    @property
    def where(self) -> Sequence[Mapping[str, Any]]:
        """By rank: process and host of a replica ({}: this process), the same object as long as it is there."""
        ...

    def reserve(self) -> int:
        """Return a number for messages, so that it can be noted before they are sent."""
        ...

    def knows(self, number: int) -> bool:
        """Tell whether messages were sent under a number, or will be, and were not given up."""
        ...

    def start(
        self, messages: Mapping[int, Message], ahead: bool = False, number: int | None = None
    ) -> int:
        """Send messages by rank; return the number to ask for the answers with.

        ``ahead``: the answers are not asked for at once. With a ``number`` that was reserved they can be asked
        for until they are given up, else once. An interrupt may come at any bytecode: either the number is not
        known then, and nothing was sent, or all is sent sooner or later.
        """
        ...

    def finish(self, number: int) -> Mapping[int, Message]:
        """Return the answers by rank. May be left by any exception, a KeyboardInterrupt too.

        Raises:
            ReplicaLost: a replica ended, froze, or was late.
            Torn: an interrupt struck a replica, which cannot go on from there.
        """
        ...

    def poll(self, number: int) -> bool:
        """Tell, without waiting, whether the answers are there, or never will be."""
        ...

    def give_up(self, number: int) -> None:
        """Throw the answers away when they come."""
        ...

    @property
    def alive(self) -> list[int]:
        """Ranks that were not lost."""
        ...

    def calls(self) -> bool:
        """Tell whether a replica at work has called the caller: it answers nothing until that returns."""
        ...

    def drain(self) -> None:
        """Wait until the living have answered everything, and stand at one step if an interrupt struck one."""
        ...

    def close(self) -> None:
        """End the replicas."""
        ...


class Mendable(Delivery, Protocol):
    """A delivery that can go on when it lost a replica (see ``recovery.py``)."""

    def outcome(self, number: int, rank: int) -> Outcome:
        """Return what came from a replica, lost ones too, for a message."""
        ...

    def replace(self) -> list[int]:
        """Put others in the places of the lost; return their ranks. All are to join a group next."""
        ...

    def refuse(self, unfit: Mapping[int, str]) -> ReplicaLost:
        """End replicas that came in and are not fit, by rank why; return what tells that they are lost.

        Others that take their places are not to run where they did.
        """
        ...

    def shrink(self, *changes: Change) -> None:
        """Number the living anew, as :meth:`alive` has them; they are to join (:meth:`regroup`) next.

        What else changes with the numbers is set at the same moment, as :func:`assign` does.
        """
        ...

    def regroup(self) -> None:
        """Have all join a new collective group. None has a program loaded then."""
        ...


class Share(NamedTuple):
    """What one place computes: the arrays of one step, or of several behind each other.

    Per set of arrays: ``rows`` the global index of the place's first row, ``parts`` its part of all rows,
    ``idle`` whether it has none.
    """

    arrays: list[np.ndarray]
    rows: list[int]
    parts: list[float]
    idle: list[bool]

    def rest(self, done: int) -> Share:
        """Return what is left after ``done`` steps."""
        if len(self.rows) == 1:  # fed once for all steps
            return self
        width = len(self.arrays) // len(self.rows)
        return Share(
            self.arrays[done * width :], self.rows[done:], self.parts[done:], self.idle[done:]
        )


class StackedShares(Sequence[Share]):
    """What places compute that are fed equally many rows; ``where`` has the rest of each :class:`Share`."""

    def __init__(self, arrays: Stacked, where: Sequence[tuple[Any, ...]]) -> None:
        self.arrays, self._where = arrays, where

    def __len__(self) -> int:
        return len(self._where)

    def __getitem__(self, place: Any) -> Any:
        return Share(self.arrays[place], *self._where[place])


class StepHeads:
    """The heads of steps that are fed arrays of the same types and shapes: the same objects each time."""

    def __init__(self) -> None:
        self._about: tuple[Any, ...] = ()
        self._heads: list[StepHead] = []

    def of(self, request: Request, epoch: int) -> list[StepHead]:
        """Return a head for each rank."""
        about = (request.program, request.iterations, request.drop, epoch)
        if about != self._about:
            number, iterations, drop, _ = about
            self._heads = [step_head(number, iterations, s, drop, epoch) for s in request.shares]
            self._about = about
        return self._heads


class Results(NamedTuple):
    """What a program's steps return: for each whether all replicas have it ``alike``.

    The last ones are persistables of ``scope`` that differ by place, by name in ``own_names``.
    """

    alike: Sequence[bool] = ()
    scope: int = 0
    own_names: Sequence[str] = ()

    def is_alike(self, position: int) -> bool:
        """Tell whether one replica's value stands for another's."""
        return position < len(self.alike) and self.alike[position]


NO_RESULTS = Results()


class Owner(Protocol):
    """What requests come from."""

    def go_on(self, request: Request) -> None:
        """Split over the places that are left what has not happened of a void request, and send it."""
        ...


@dataclass(eq=False)
class Request:
    """Steps to run everywhere, the first of them being number ``step``; ``shares[i]`` is for replica i.

    ``drop`` names the loaded programs whose temporaries end their life with the last. ``done`` of the
    ``iterations`` have happened; ``fetched`` (by rank) is there when all have; ``failed`` says why they never
    will. ``void``: the number of replicas changed, the rest has to be split anew. ``votes``: the steps
    happen on all replicas or on none, and are counted; the others write nothing. ``base``: so many counted
    steps come before them. ``begun``: they were sent, once or more often; ``ahead``: they may
    wait for others. ``owner``: what splits them anew. ``heads``: those of steps that are fed alike.
    """

    program: int
    shares: Sequence[Share]
    step: int
    iterations: int
    drop: Sequence[int]
    votes: bool = True
    results: Results = NO_RESULTS
    number: int = -1
    base: int = 0
    begun: bool = False
    ahead: bool = False
    owner: weakref.ref[Owner] | None = None
    heads: StepHeads | None = None
    done: int = 0
    fetched: Sequence[Sequence[np.ndarray]] | None = None
    failed: BaseException | None = None
    void: bool = False

    @property
    def settled(self) -> bool:
        """Whether nothing more is to come."""
        return self.fetched is not None or self.failed is not None or self.void

    def end(self, base: int) -> int:
        """Return how many steps are counted once these are done, ``base`` before."""
        return base + (self.iterations if self.votes else 0)

    def passed(self, counted: int) -> int:
        """Return how many of the steps have happened when so many are counted in all."""
        return min(max(counted - self.base, 0), self.iterations) if self.votes else self.done

    def messages(self, epoch: int) -> Mapping[int, Message]:
        """Return what is to be sent for the steps that have not happened, by rank."""
        messages: dict[int, Message] = {}
        if self.heads is not None and not self.done:
            heads = self.heads.of(self, epoch)
            if isinstance(self.shares, StackedShares):
                return StackedMessages("step", heads, self.shares.arrays, self.step)
            for rank, head in enumerate(heads):
                messages[rank] = Message("step", head, self.shares[rank].arrays, self.step)
            return messages
        for rank, share in enumerate(self.shares):
            left = share.rest(self.done) if self.done else share
            iterations, step = self.iterations - self.done, self.step + self.done
            messages[rank] = pack_step(self.program, iterations, left, self.drop, epoch, step)
        return messages

    def keep(
        self, ledger: Ledger, returned: Sequence[Sequence[np.ndarray]]
    ) -> Sequence[Sequence[np.ndarray]]:
        """Keep what was returned of each place's own values, and return what the user fetches."""
        count = len(self.results.own_names)
        own = [arrays[-count:] for arrays in returned]
        ledger.place_values.note(self.results.scope, self.program, self.results.own_names, own)
        return [arrays[:-count] for arrays in returned]


class Torn(Exception):
    """An interrupt struck a replica of this process in the middle of its work: replicas must be settled."""


class GangChanged(Exception):
    """The gang goes on with fewer replicas: programs are to be compiled, and feeds split, anew."""


@dataclass
class Ledger:
    """What a gang must know to bring others in.

    Programs as they were loaded, versions of libraries that all have alike (None: not asked yet), ranks that
    hold a persistable alone (by scope and name), steps whose writes were made, ranks whose values are not those
    of the gang, and what each place has for itself. Since a replica was lost, ``uneven``: it is not known where
    the living stand; ``torn``: replicas have yet to join a group and to load the programs.
    """

    programs: dict[int, Load] = field(default_factory=dict)
    libraries: dict[str, str] | None = None
    owners: dict[int, dict[str, int]] = field(default_factory=dict)
    done: int = 0
    stale: set[int] = field(default_factory=set)
    uneven: bool = False
    torn: bool = False
    failures: int = 0
    place_values: PlaceValues = field(default_factory=PlaceValues)
