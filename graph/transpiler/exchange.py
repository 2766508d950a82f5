"""Separate a trainer's program into the computation of a step and its messages to and from parameter servers.

A plan sends no messages. Rows of tables that a step asks servers for become feeds, values that it sends become
fetches, and the parameters that servers return are written to the scope behind the step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...strategies.errors import Unsupported
from ..program.block import Block
from ..program.clone import copy_program
from ..program.operator import Operator
from ..program.program import Program
from ..program.seeds import keep_seed
from .plan import Distribution
from .sparse_sends import GRADIENTS, ROWS, send_as_rows

_SENDS = ("send", "send_barrier")
_RECEIVES = ("recv", "fetch_barrier")
_LOOKUPS = ("distributed_lookup_table",)
_SPLITS = ("split_byref", "split_selected_rows", "split_ids")
_PREFETCHES = ("prefetch", "merge_ids")
_SAVES = "checkpoint_notify"
EXCHANGES = frozenset({*_SENDS, *_RECEIVES, *_LOOKUPS, *_SPLITS, *_PREFETCHES, _SAVES, "fake_init"})
_NEVER_READ = "param_init"  # tells Paddle's communicator that parameters are there


@dataclass(frozen=True)
class Piece:
    """Rows ``first`` to ``end`` (None: all) of a variable, under the name that a server has for them.

    With a ``stride`` these are every so many rows, from ``first`` on.
    """

    endpoint: str
    name: str
    first: int = 0
    end: int | None = None
    stride: int = 1

    def of(self, array: Any) -> Any:
        """Return these rows of an array; a view."""
        return array if self.end is None else array[self.first : self.end]

    def holds(self, rows: Any) -> Any:
        """Tell of numbers of rows which are in it."""
        if self.stride > 1:
            return rows % self.stride == self.first
        return (rows >= self.first) & (rows < self.end) if self.end is not None else rows >= 0

    def own(self, rows: Any) -> Any:
        """Return the numbers that the server has for rows that are in it."""
        return rows // self.stride if self.stride > 1 else rows - self.first

    def height(self, rows: int) -> int:
        """Return how many of a table's rows are in it."""
        if self.stride > 1:
            return -(-rows // self.stride)
        return rows if self.end is None else self.end - self.first


@dataclass(frozen=True)
class Sent:
    """A variable that is pushed. ``height``: that of a table, whose rows it is (0: it is a tensor).

    ``counts``: it is no gradient, but adds to a counter of the server.
    """

    variable: str
    pieces: tuple[Piece, ...]
    height: int = 0
    counts: bool = False


@dataclass(frozen=True)
class Received:
    """A variable that is pulled."""

    variable: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class TableLookup:
    """Rows of a table on servers for ``ids``, fed as ``out``: in the ids' shape, and as wide as rows."""

    ids: str
    out: str
    pieces: tuple[Piece, ...]
    height: int
    padding_idx: int
    drops_last: bool  # ids [..., 1] stand for one row each, without that dimension


@dataclass(frozen=True)
class Saved:
    """A table of which a server writes its part into a folder that its host sees."""

    endpoint: str
    folder: str
    table: str


@dataclass(frozen=True)
class Changes:
    """In geo-SGD: what a trainer's own updates change of ``parameters`` is pushed every ``every`` steps.

    ``rows``: the names of those of which changed rows are.
    """

    every: int
    parameters: tuple[Received, ...]
    rows: frozenset[str]


@dataclass(frozen=True)
class Exchange:
    """What a program exchanges. ``compute`` is the program without that; it fetches ``fetches`` beside others.

    ``sync``: steps end when all trainers' gradients are applied. ``remote``: tables that servers alone hold.
    """

    compute: Program
    trainer: int
    endpoints: tuple[str, ...]
    sent: tuple[Sent, ...] = ()
    received: tuple[Received, ...] = ()
    lookups: tuple[TableLookup, ...] = ()
    changes: Changes | None = None
    sync: bool = False
    merged_rows: bool = False
    trainers: int = 0  # 0: not known
    saved: tuple[Saved, ...] = ()
    remote: tuple[str, ...] = ()

    @property
    def fetches(self) -> tuple[str, ...]:
        """Names of what the computed step must fetch to send it."""
        names = []
        for push in self.sent:
            if not push.counts:
                names += [push.variable, push.variable + ROWS] if push.height else [push.variable]
        return tuple(names)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """By endpoint, a hash of what is pulled from a server, by which it knows its own trainers."""
        block = self.compute.global_block()
        pulled: dict[str, list[tuple[str, tuple[int, ...]]]] = {e: [] for e in self.endpoints}
        for received in self.received:
            tail = _tail(block, received.variable)
            for piece in received.pieces:
                shape = (_rows(block, received.variable, piece), *tail)
                if piece.endpoint in pulled:
                    pulled[piece.endpoint].append((piece.name, shape))
        return {endpoint: digest(shapes) for endpoint, shapes in pulled.items()}


def digest(shapes: Any) -> str:
    """Return a hash of names and shapes (empty: of none)."""
    pairs = sorted({(name, tuple(int(size) for size in shape)) for name, shape in shapes})
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16] if pairs else ""


def _rows(block: Block, name: str, piece: Piece) -> int:
    shape = block.var(name).shape or (1,)
    return shape[0] if piece.end is None else piece.end - piece.first


def _tail(block: Block, name: str) -> tuple[int, ...]:
    return tuple(block.var(name).shape or (1,))[1:]


@dataclass(frozen=True)
class Part:
    """A variable's part, from a row to another (None: the end), or every so many rows. ``rows``: of a table."""

    source: str
    first: int = 0
    end: int | None = None
    rows: bool = False
    stride: int = 1


def exchanges(program: Program) -> bool:
    """Tell whether a program is a trainer's, which sends to servers or receives from them."""
    return any(op.type in EXCHANGES for op in program.global_block().ops)


def exchange_of(program: Program) -> Exchange:
    """Return what a trainer's program exchanges.

    Raises:
        Unsupported: an op reads what was received in the same step, or a part of what is sent.
    """
    return _Reader(program).read()


class _Reader:
    """Follows the ops of a trainer's program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ops = program.global_block().ops
        self.parts: dict[str, Part] = {}
        self.prefetched: dict[str, Piece] = {}  # by what holds the rows
        self.received: dict[str, Piece] = {}
        self.joined: dict[str, list[str]] = {}
        self.distribution: Distribution | None = program.distribution
        self.trainer = 0
        self.endpoints: dict[str, None] = {}
        self.sends: list[Operator] = []
        self.lookups: list[TableLookup] = []
        self.saves: list[Saved] = []
        self.remote: list[str] = []
        self.sync = False

    def read(self) -> Exchange:
        """Return the exchange."""
        rest: list[int] = []
        if self.distribution is not None:
            self.endpoints = dict.fromkeys(self.distribution.topology.endpoints)
        for number, op in enumerate(self.ops):
            if op.type in EXCHANGES or self._joins(op):
                self._note(op)
                self._take(op)
            else:
                self._refuse_early(op)
                rest.append(number)
        changes = self._changes(self.sends)
        sends = self.sends if changes is None else []
        compute = _only(self.program, rest, self.lookups)
        received = list(self._all_received())
        if changes is not None and not changes.every:
            received += [r for r in changes.parameters if r.variable in changes.rows]
            changes = None
        pushes = tuple(self._sent(sends))
        tables = {s.variable: s.height for s in pushes if s.height}
        merged_rows = send_as_rows(compute, tables)
        distribution = self.distribution
        return Exchange(
            compute,
            self.trainer,
            tuple(sorted(self.endpoints)),
            pushes,
            tuple(received),
            tuple(self.lookups),
            changes,
            self.sync,
            merged_rows=merged_rows,
            trainers=0 if distribution is None else distribution.topology.trainers,
            saved=tuple(self.saves),
            remote=tuple(self.remote),
        )

    def _take(self, op: Operator) -> None:
        """Note what an op of the exchange sends, receives, looks up or saves."""
        if op.type in _SPLITS:
            self._split(op)
        elif op.type == "send":
            self.sends.append(op)
        elif op.type == "send_barrier":
            self.sync = not op.attrs.get("half_async")  # that one waits for servers alone
        elif op.type == "recv":
            self._receive(op)
        elif op.type in _LOOKUPS:
            self.lookups += _table_lookups(op)
        elif op.type == _SAVES:
            self.saves += _saved(op)
        elif op.type == "prefetch":
            self._prefetch(op)
        elif op.type == "merge_ids":
            self.lookups += self._merged_lookups(op)
        elif op.type == "fake_init":
            self.remote += op.output("Out")

    def _note(self, op: Operator) -> None:
        # Some operators are written without it, which reads as trainer 0.
        self.trainer = max(self.trainer, int(op.attrs.get("trainer_id", 0)))
        if self.distribution is None:  # it was loaded: its operators tell all that is known
            for endpoint in (*op.attrs.get("epmap", ()), *op.attrs.get("endpoints", ())):
                self.endpoints[endpoint] = None

    def _split(self, op: Operator) -> None:
        if op.type == "split_ids":
            count = len(op.outputs["Out"])
            for number, name in enumerate(op.outputs["Out"]):
                self.parts[name] = Part(op.inputs["Ids"][0], number, None, True, count)
            return
        (source,), first = op.inputs["X"], 0
        rows = op.type == "split_selected_rows"
        sizes = op.attrs["height_sections"] if rows else op.attrs["sections"]
        for name, size in zip(op.outputs["Out"], sizes, strict=True):
            self.parts[name] = Part(source, first, first + size, rows)
            first += size

    def _sent(self, sends: Sequence[Operator]) -> Iterator[Sent]:
        for op in sends:
            names, endpoints = op.inputs.get("X", []), list(op.attrs["epmap"])
            if not names or names == [_NEVER_READ]:
                continue
            if not op.attrs.get("use_send_handler", True):  # a counter, which every server has
                pieces = tuple(Piece(endpoint, names[0]) for endpoint in endpoints)
                yield Sent(names[0], pieces, counts=True)
                continue
            if op.attrs.get("sections"):  # the send itself cuts
                pieces = tuple(_cut(endpoints, op.attrs["send_varnames"], op.attrs["sections"]))
                yield Sent(names[0], pieces, self._height(names[0]))
                continue
            parts = [self.parts.get(name, Part(name)) for name in names]
            pieces = tuple(
                Piece(endpoint, name, part.first, part.end, part.stride)
                for endpoint, name, part in zip(endpoints, names, parts, strict=False)
            )
            yield Sent(parts[0].source, pieces, self._height(parts[0].source, parts[0].rows))

    def _prefetch(self, op: Operator) -> None:
        count = len(op.attrs["epmap"])
        pairs = zip(op.attrs["epmap"], op.inputs["X"], op.outputs["Out"], strict=True)
        for number, (endpoint, ids, rows) in enumerate(pairs):
            self.prefetched[rows] = Piece(endpoint, ids, number, None, count)

    def _merged_lookups(self, op: Operator) -> Iterator[TableLookup]:
        """Yield the lookups of a table that is cut row by row; its gradient tells its height and padding."""
        pieces = tuple(self.prefetched[name] for name in op.inputs["X"])
        block, ids = self.program.global_block(), op.inputs["Ids"]
        like = [o for o in self.ops if o.type in GRADIENTS and o.inputs["Ids"][0] in ids]
        if not like:
            raise Unsupported(
                f"merge_ids: no op has the gradient of the table that it looks up, which tells its height. "
                f"{op.where}"
            )
        height = (block.var(like[0].inputs["W"][0]).shape or (0,))[0]
        padding = int(like[0].attrs["padding_idx"])
        for name, out in zip(ids, op.outputs["Out"], strict=True):
            drops = len(block.var(name).shape or ()) == len(block.var(out).shape or ())
            yield TableLookup(name, out, pieces, height, padding, drops)

    def _height(self, name: str, rows: bool = False) -> int:
        """Return how many rows the table has whose rows a gradient is (0: the gradient is dense)."""
        variable = self.program.global_block().var(name)
        sparse = rows or (variable.type is not None and variable.type.name == "SELECTED_ROWS")
        shape = variable.shape or (0,)
        if sparse and shape[0] < 0:
            raise Unsupported(f"send: {name!r} has rows of a table whose height is not known.")
        return shape[0] if sparse else 0

    def _receive(self, op: Operator) -> None:
        if op.attrs.get("do_not_run"):
            return
        (*names,) = op.outputs["Out"]
        blocks = list(op.attrs.get("recv_varnames") or ())
        if blocks:
            (name,) = names
            sizes = [(self.program.global_block().var(block).shape or (1,))[0] for block in blocks]
            for k, piece in enumerate(_cut(op.attrs["epmap"], blocks, sizes)):
                self.received[f"{name}#{k}"] = piece
            self.joined[name] = [f"{name}#{k}" for k in range(len(blocks))]
            return
        for name, endpoint in zip(names, op.attrs["epmap"], strict=True):
            self.received[name] = Piece(endpoint, name)

    def _joins(self, op: Operator) -> bool:
        """Tell whether an op joins what was received, and note it."""
        names = op.inputs.get("X", [])
        if op.type != "concat" or not names or not all(name in self.received for name in names):
            return False
        self.joined[op.outputs["Out"][0]] = names
        return True

    def _all_received(self) -> Iterator[Received]:
        parts = {part for names in self.joined.values() for part in names}
        block = self.program.global_block()
        for name, piece in self.received.items():
            if name not in parts:
                yield Received(name, (piece,))
        for name, names in self.joined.items():
            first, pieces = 0, []
            for part in names:
                piece = self.received[part]
                end = piece.end
                if end is None:
                    first, end = first, first + (block.var(part).shape or (1,))[0]
                    pieces.append(Piece(piece.endpoint, piece.name, first, end))
                else:
                    pieces.append(piece)
                first = end
            yield Received(name, tuple(pieces))

    def _refuse_early(self, op: Operator) -> None:
        for name in op.input_arg_names:
            if name in self.received or name in self.joined or name in self.parts:
                what = "received" if name in self.received or name in self.joined else "sent"
                raise Unsupported(
                    f"{op.type} reads {name!r}, which is {what} in the same step: what servers exchange is "
                    f"there when the step is over. Use it in a program of its own. {op.where}"
                )

    def _changes(self, sends: Sequence[Operator]) -> Changes | None:
        """Return what is sent of a trainer's own updates; its startup program receives tables, too."""
        distribution = self.distribution
        if distribution is None or not distribution.topology.push_every:
            return None
        parameters = tuple(
            Received(
                name,
                tuple(Piece(s.endpoint, s.parameter, s.begin, s.begin + s.rows) for s in shards),
            )
            for name, shards in distribution.shards.items()
        )
        every = distribution.topology.push_every
        if any(op.inputs.get("X") == [_NEVER_READ] for op in sends):
            every = 0
        return Changes(every, parameters, distribution.rows)


def _cut(endpoints: Sequence[str], names: Sequence[str], sizes: Sequence[int]) -> Iterator[Piece]:
    first = 0
    for endpoint, name, size in zip(endpoints, names, sizes, strict=True):
        yield Piece(endpoint, name, first, first + size)
        first += size


def _saved(op: Operator) -> Iterator[Saved]:
    table = op.attrs["lookup_table"]
    for number, endpoint in enumerate(op.attrs["epmap"]):
        yield Saved(endpoint, f"{op.attrs['dir']}/{table}_{number}", table)


def _table_lookups(op: Operator) -> Iterator[TableLookup]:
    pieces = tuple(
        _cut(op.attrs["endpoints"], op.attrs["table_names"], op.attrs["height_sections"])
    )
    for ids, out in zip(op.inputs["Ids"], op.outputs["Outputs"], strict=True):
        drops = op.attrs.get("lookup_table_version", "lookup_table") == "lookup_table"
        height = sum(op.attrs["height_sections"])
        yield TableLookup(ids, out, pieces, height, int(op.attrs.get("padding_idx", -1)), drops)


def _only(program: Program, numbers: Sequence[int], lookups: Sequence[TableLookup]) -> Program:
    """Return a copy with these ops of block 0, fed what the lookups give."""
    compute = copy_program(program)
    keep_seed(program, compute)
    block = compute.global_block()
    block.ops = [block.ops[number] for number in numbers]
    for lookup in lookups:
        block.var(lookup.out).is_data = True
    compute.touch()
    return compute
