"""Delivery: the protocol that carries messages to replicas. Request: steps to run. Ledger: a gang's memory."""

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
    """One replica's answer to a message, and the message that it posted before.

    ``own_values``: the replica's own persistables after steps before the last, by the number of steps done.
    """

    posted: Message | None = None
    answer: Message | None = None
    own_values: Mapping[int, Sequence[np.ndarray]] = {}


class Delivery(Protocol):
    """Carries messages to replicas: one to each, and an answer from each."""

    @property
    def size(self) -> int:
        """Number of replicas."""

    @property
    def broken(self) -> bool:
        """Whether it was closed, or has no replica left: the next run starts a new gang."""

    @property
    def where(self) -> Sequence[Mapping[str, Any]]:
        """By rank: process and host of a replica ({}: this process), the same object as long as it is there."""

    def reserve(self) -> int:
        """Return a number for messages that are to be sent, which the caller can note before."""

    def knows(self, number: int) -> bool:
        """Tell whether messages were started under a number, and not given up."""

    def start(
        self, messages: Mapping[int, Message], ahead: bool = False, number: int | None = None
    ) -> int:
        """Send messages by rank; return the number by which :meth:`finish` finds the answers.

        ``ahead``: the caller does not wait for the answers at once. With a ``number`` from :meth:`reserve`, the
        answers are kept until :meth:`give_up`, else until :meth:`finish`. An interrupt may come at any
        bytecode: either the number is not known after it, and nothing was sent, or all is sent in the end.

        Raises:
            InvalidState: it is broken.
            ReplicaLost: a replica died, or takes nothing in.
        """

    def finish(self, number: int) -> Mapping[int, Message]:
        """Wait for the answers, and return them by rank. Any exception may leave it, a KeyboardInterrupt too.

        Raises:
            ReplicaLost: a replica ended, froze, or was late.
            Torn: an interrupt struck a replica, which cannot go on from there.
        """

    def poll(self, number: int) -> bool:
        """Tell, without waiting, whether :meth:`finish` would return or raise at once."""

    def give_up(self, number: int) -> None:
        """Discard the answers, now or when they arrive."""

    @property
    def alive(self) -> list[int]:
        """Ranks that were not lost."""

    def calls(self) -> bool:
        """Tell whether a replica's step (py_func) called the caller: it answers only after that returns."""

    def drain(self) -> None:
        """Wait until the living have answered everything; bring them to one step if an interrupt struck."""

    def close(self) -> None:
        """End the replicas."""


class Mendable(Delivery, Protocol):
    """A delivery that can go on when it lost a replica (see ``recovery.py``)."""

    def outcome(self, number: int, rank: int) -> Outcome:
        """Return the outcome of a message at a replica, even at a lost one."""

    def replace(self) -> list[int]:
        """Replace the lost replicas; return their ranks. The caller has all join a group next."""

    def refuse(self, unfit: Mapping[int, str]) -> ReplicaLost:
        """End new replicas that are not fit, by rank why; return the error that reports them as lost.

        Replicas that take their places run on other nodes.
        """

    def shrink(self, *changes: Change) -> None:
        """Number the living replicas anew, in the order of :attr:`alive`; the caller regroups them next.

        ``changes`` that go with the new numbers are made at the same moment, see :func:`assign`.
        """

    def regroup(self) -> None:
        """Have all replicas join a new collective group. Afterwards none has a program loaded."""


class Share(NamedTuple):
    """The work of one place: the arrays of one step, or of several steps in a row.

    For each step: ``rows`` is the global index of the place's first row, ``parts`` the weight of its rows,
    ``idle`` whether it has no rows.
    """

    arrays: list[np.ndarray]
    rows: list[int]
    parts: list[float]
    idle: list[bool]

    def rest(self, done: int) -> Share:
        """Return the share of the steps after the first ``done``."""
        if len(self.rows) == 1:  # fed once for all steps
            return self
        width = len(self.arrays) // len(self.rows)
        return Share(
            self.arrays[done * width :], self.rows[done:], self.parts[done:], self.idle[done:]
        )


class StackedShares(Sequence[Share]):
    """Shares of places that are fed equally many rows; ``where`` has rows, parts and idleness of each."""

    def __init__(self, arrays: Stacked, where: Sequence[tuple[Any, ...]]) -> None:
        self.arrays, self._where = arrays, where

    def __len__(self) -> int:
        return len(self._where)

    def __getitem__(self, place: Any) -> Any:
        return Share(self.arrays[place], *self._where[place])


class StepHeads:
    """The message heads of steps whose feeds have the same types and shapes: the same objects each time."""

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
    """What a program's steps return; ``alike`` tells for each value whether all replicas have the same.

    The last values are the persistables of ``scope`` that differ by place, named in ``own_names``.
    """

    alike: Sequence[bool] = ()
    scope: int = 0
    own_names: Sequence[str] = ()

    def is_alike(self, position: int) -> bool:
        """Tell whether one replica's value stands for another's."""
        return position < len(self.alike) and self.alike[position]


NO_RESULTS = Results()


class Owner(Protocol):
    """The run that sent a request."""

    def go_on(self, request: Request) -> None:
        """Split the rest of a void request over the places that are left, and send it."""


@dataclass(eq=False)
class Request:
    """Steps that all replicas run, and how far they are.

    Args:
        program: the number of the loaded program.
        shares: what each replica computes, by rank.
        step: the number of the first step.
        iterations: how many steps there are.
        drop: loaded programs whose temporaries end their life with the last step.
        votes: the steps happen on all replicas or on none, and are counted; others write nothing.
        number: that of the messages.
        base: counted steps before these.
        begun: whether the messages were sent.
        ahead: whether steps may be in flight before these.
        owner: the run that splits the steps anew if the gang shrinks.
        heads: the message heads, where steps are fed alike.
        done: how many of the steps have happened.
        fetched: what the last step fetches, by rank, once all have happened.
        failed: why the rest will never happen.
        void: the number of replicas changed, so the rest has to be split anew.
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
        """Whether its outcome is known."""
        return self.fetched is not None or self.failed is not None or self.void

    def end(self, base: int) -> int:
        """Return how many steps are counted once these are done, after ``base`` others."""
        return base + (self.iterations if self.votes else 0)

    def passed(self, counted: int) -> int:
        """Return how many of these steps have happened when ``counted`` steps have in all."""
        return min(max(counted - self.base, 0), self.iterations) if self.votes else self.done

    def messages(self, epoch: int) -> Mapping[int, Message]:
        """Return the messages, by rank, for the steps that have not happened."""
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
        """Note the values of each place's own persistables; return the others, which the user fetches."""
        count = len(self.results.own_names)
        own = [arrays[-count:] for arrays in returned]
        ledger.place_values.note(self.results.scope, self.program, self.results.own_names, own)
        return [arrays[:-count] for arrays in returned]


class Torn(Exception):
    """An interrupt struck a replica of this process in a step: ``Delivery.drain`` brings all to one."""


class GangChanged(Exception):
    """The gang goes on with fewer replicas: programs are to be compiled, and feeds split, anew."""


@dataclass
class Ledger:
    """What a gang remembers, so that it can bring in another replica.

    ``programs``: the loaded programs by number; ``libraries``: versions that all replicas share (None: not
    asked yet); ``owners``: ranks that alone hold a persistable, by scope and name; ``done``: counted steps;
    ``stale``: ranks whose values are not the gang's; ``place_values``: persistables that differ by place.
    After a loss, ``uneven``: the steps that each living replica has done are not known; ``torn``: replicas have
    yet to join a group and load the programs; ``failures``: losses in a row; ``loss``: what the last was.
    """

    programs: dict[int, Load] = field(default_factory=dict)
    libraries: dict[str, str] | None = None
    owners: dict[int, dict[str, int]] = field(default_factory=dict)
    done: int = 0
    stale: set[int] = field(default_factory=set)
    uneven: bool = False
    torn: bool = False
    failures: int = 0
    loss: str = ""
    place_values: PlaceValues = field(default_factory=PlaceValues)
