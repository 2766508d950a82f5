"""The orders that a driver sends to a replica, and the answers: a record for each, packed into a message.

A :class:`Message` has the kind of its record, the fields as a head of plain data, and arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, get_args

from ...graph.ir.replica_program import ReplicaProgram
from ..kernels.measure import Timings
from .message import Message, StepHead
from .options import RunOptions


class Load(NamedTuple):
    """Take in a program, to run on the device scope ``scope``; answered by :class:`ProgramMemory`.

    It travels as JSON. ``functions``: numbers of the Python functions that it calls, which are there before.
    """

    id: int
    program: ReplicaProgram | str
    scope: int
    options: RunOptions
    functions: Sequence[int] = ()
    epoch: int = 0


class Unload(NamedTuple):
    """Forget programs and device scopes."""

    programs: Sequence[int]
    scopes: Sequence[int]


class Step(NamedTuple):
    """Run steps of a program on the arrays that come along; answered with what the last one fetches.

    Per set of arrays: ``rows``, ``parts`` and ``idle`` of a :class:`Share`. ``drop``: programs whose
    temporaries end their life with the last step.
    """

    id: int
    iterations: int
    rows: Sequence[int]
    parts: Sequence[float]
    idle: Sequence[bool]
    drop: Sequence[int]
    epoch: int = 0


class Write(NamedTuple):
    """Write the arrays that come along to persistables of a device scope."""

    scope: int
    names: Sequence[str]


class Read(NamedTuple):
    """Return copies of persistables of a device scope."""

    scope: int
    names: Sequence[str]


class Names(NamedTuple):
    """Tell what the device scopes hold; answered by :class:`PersistableNames`."""


class Inventory(NamedTuple):
    """Tell how much is held and how many steps were done; answered by :class:`Stock`."""


class Libraries(NamedTuple):
    """Tell which libraries can compute here; answered by :class:`Versions`."""


class Measure(NamedTuple):
    """Time kernels; answered by :class:`Timings`.

    ``questions`` are those of ``executor/kernels/measure.py``, as plain data; ``math`` is the precision of
    single-precision products. ``within``: seconds of the thread on the processor; ``until``: of a clock.
    """

    questions: Sequence[Any]
    math: str
    within: float
    until: float


class RollForward(NamedTuple):
    """After a failure: finish a step that some replica finished, if that can be; answered by :class:`Stand`.

    ``upto`` steps were done there in all.
    """

    upto: int


class Regroup(NamedTuple):
    """Leave the group this replica is in, and join another as ``rank`` of ``size`` (none if it would be alone).

    ``backend`` is a name of ``ClusterConfig.collectives``; ``within`` so many seconds the others must be there.
    ``pin``: which of how many parts of its host's cores the replica is to keep to, and the gang's processes
    there (None: it may run on all).
    """

    group: str
    rank: int
    size: int
    backend: str
    within: float
    pin: tuple[int, int, Sequence[int]] | None = None


class Resume(NamedTuple):
    """Go on as a replica that has done this many steps: it was given the values of one that has."""

    done: int


class Drop(NamedTuple):
    """End the life of a program's temporaries and give their memory back."""

    id: int


class Temporaries(NamedTuple):
    """Tell how many temporaries of a program are alive; answered by :class:`Alive`."""

    id: int


class Trace(NamedTuple):
    """Keep times of a program's steps from now on, or no longer; answered by :class:`StepTraces`."""

    id: int
    on: bool


class Graphs(NamedTuple):
    """Tell of which graphs a program's last step on a GPU is made; answered by :class:`GraphTexts`."""

    id: int


class Clock(NamedTuple):
    """Tell what the clock of traced steps shows; answered by :class:`Now`."""


class JoinTrainers(NamedTuple):
    """Form the group ``name`` with replicas of other trainers, as one rank of ``size``."""

    name: str
    rank: int
    size: int
    within: float


class LeaveTrainers(NamedTuple):
    """Leave a group of trainers, and release those that wait there; ``reason`` says why, to them."""

    name: str
    reason: str = ""


class Spread(NamedTuple):
    """Copy persistables of a device scope from the rank ``root`` of a group of trainers to all its ranks."""

    group: str
    root: int
    scope: int
    names: Sequence[str]


class ProgramMemory(NamedTuple):
    """The bytes that a program may take of a replica's memory."""

    memory: int


class Stock(NamedTuple):
    """How many programs and device scopes a replica holds, and how many steps it has done."""

    programs: int
    scopes: int
    done: int


class Stand(NamedTuple):
    """How many steps a replica has done."""

    done: int


class Versions(NamedTuple):
    """The version of each library that can compute, and of NumPy."""

    versions: dict[str, str]


class PersistableNames(NamedTuple):
    """The names of persistables, by device scope."""

    scopes: Sequence[tuple[int, Sequence[str]]]


class Alive(NamedTuple):
    """How many temporaries are alive, and their bytes."""

    temporaries: int
    nbytes: int


class StepTraces(NamedTuple):
    """The last traced steps, and how many hand-overs between threads a step needs."""

    steps: Sequence[Any]
    signals: int


class GraphTexts(NamedTuple):
    """The lines that describe graphs."""

    graphs: Sequence[str]


class Now(NamedTuple):
    """Seconds on the clock of a replica."""

    now: float


class EarlyFetches(NamedTuple):
    """The places in the fetch list of what was posted before the vote."""

    which: Sequence[int]


class Failure(NamedTuple):
    """What went wrong on a replica: the name of the error and its text.

    ``collateral``: another replica's failure was the cause. ``done``: steps that this replica has done.
    """

    rank: int = 0
    type: str = ""
    text: str = ""
    collateral: bool = False
    done: int = 0


Order: TypeAlias = (
    Load | Unload | Step | Write | Read | Names | Inventory | Libraries | Measure
    | RollForward | Regroup | Resume | Drop | Temporaries | Trace | Graphs | Clock | JoinTrainers
    | LeaveTrainers | Spread
)  # fmt: skip
Answer: TypeAlias = (
    ProgramMemory | Stock | Stand | Versions | Timings | PersistableNames | Alive | StepTraces | GraphTexts
    | Now | EarlyFetches | Failure
)  # fmt: skip


def _kind(record: type[Any]) -> str:
    """Return the name of a record as a kind of message: ``RollForward`` is "roll_forward"."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in record.__name__)[1:]


ORDERS: dict[str, type[Any]] = {_kind(order): order for order in get_args(Order)}
_KINDS: dict[type[Any], str] = {record: _kind(record) for record in get_args(Order | Answer)}
_KINDS |= {ProgramMemory: "ok", EarlyFetches: "posted", Failure: "error"}


def pack(record: Order | Answer, arrays: Sequence[Any] = (), step: int = 0) -> Message:
    """Return the message of a record."""
    head = record._asdict()
    if type(record) is Load:
        head["options"] = record.options.to_plain()
        if not isinstance(record.program, str):
            head["program"] = record.program.to_json()
    return Message(_KINDS[type(record)], head, arrays, step)


def pack_step(
    number: int, iterations: int, share: Any, drop: Sequence[int], epoch: int, step: int
) -> Message:
    """Return the message of a :class:`Step`: the one that every step sends to every replica.

    ``share``: arrays, and of each set of them ``rows``, ``parts`` and ``idle``.
    """
    return Message("step", step_head(number, iterations, share, drop, epoch), share[0], step)


def step_head(
    number: int, iterations: int, share: Any, drop: Sequence[int], epoch: int
) -> StepHead:
    """Return the head of a :class:`Step`'s message."""
    _, rows, parts, idle = share
    return StepHead(
        id=number,
        iterations=iterations,
        rows=rows,
        parts=parts,
        idle=idle,
        drop=drop,
        epoch=epoch,
    )


def unpack(message: Message) -> Any:
    """Return the order that a message holds; the head of a message that is none of these as it is.

    Raises:
        TypeError: the head has other fields.
    """
    head = message.head
    if type(head) is StepHead and head.order is not None:
        return head.order
    order = ORDERS.get(message.kind)
    if order is None:
        return head
    if "epoch" in head and "epoch" not in order._fields:  # every message of a gang tells it
        head = {name: value for name, value in head.items() if name != "epoch"}
    record = order(**head)
    if order is Load:
        return record._replace(options=RunOptions.from_plain(head["options"]))
    if type(message.head) is StepHead:
        message.head.order = record
    return record


def failure_of(answer: Message) -> Failure:
    """Return what went wrong, as an ``error`` message tells it."""
    return Failure(**answer.head)


OK = Message("ok", {})
