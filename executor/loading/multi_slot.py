"""MultiSlot text: a line a sample, which has for each slot a count and as many numbers.

Lines are read by slot, not one by one: a token's number follows from the counts before it.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph.program.variable import Variable
from ...strategies.errors import DamagedFile, FeedError, InvalidType, InvalidValue
from ...strategies.types import VarType
from ..device.tensor import Tensor
from ..feed.reader import Batch
from .words import LONGEST, Words

Array = np.ndarray[Any, Any]
TYPES: dict[VarType, tuple[str, np.dtype[Any]]] = {
    VarType.FP32: ("float", np.dtype(np.float32)),
    VarType.INT64: ("uint64", np.dtype(np.int64)),
}


@dataclass(frozen=True)
class Slot:
    """One variable's place in a line. ``shape``: that of a dense variable, None for sequences."""

    name: str
    type: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, variable: Variable) -> Slot:
        """Return the slot of a variable.

        Raises:
            InvalidType: this is no variable.
            InvalidValue: a text cannot hold its values.
        """
        if not isinstance(variable, Variable):
            raise InvalidType(
                f"set_use_var takes variables of a program, got {type(variable).__name__}."
            )
        kind = TYPES.get(variable.dtype) if variable.dtype is not None else None
        if kind is None:
            raise InvalidValue(
                f"set_use_var: {variable.name!r} is {variable.dtype!r}; a dataset's files hold float32 and "
                f"int64. Declare one of these, and cast in the program."
            )
        if variable.lod_level > 1:
            raise InvalidValue(
                f"set_use_var: {variable.name!r} has lod_level {variable.lod_level}; a line of a dataset's "
                f"file holds one sequence a slot."
            )
        shape = None if variable.lod_level else tuple(variable.shape or ())
        if shape is not None and sum(size < 0 for size in shape) > 1:
            raise InvalidValue(
                f"set_use_var: the shape {list(shape)} of {variable.name!r} leaves several sizes open; the "
                f"numbers of a line do not tell them. Declare all but the first."
            )
        return cls(variable.name, kind[0], kind[1], shape)

    @property
    def width(self) -> int:
        """How many numbers each sample has; 0 where that may differ."""
        if self.shape is None or self.shape[:1] != (-1,):
            return 0
        return math.prod(self.shape[1:])

    def feed(self, column: Column) -> Any:
        """Return the values of a batch as they are fed.

        Raises:
            FeedError: they do not fill the declared shape.
        """
        if self.shape is None:
            tensor = Tensor.of(column.values.reshape(-1, 1))
            tensor.set_lod([column.offsets.tolist()])
            return tensor
        try:
            return column.values.reshape(self.shape)
        except ValueError:
            raise FeedError(
                f"slot {self.name!r} has {len(column.values)} numbers in a batch of {len(column.offsets) - 1}, "
                f"which do not fill its declared shape {list(self.shape)}."
            ) from None


@dataclass(frozen=True)
class Column:
    """One slot of some samples: their values behind each other, and the offsets at which each begins."""

    values: Array
    offsets: Array

    @classmethod
    def of(cls, values: Array, counts: Array) -> Column:
        """Return the column of samples that have so many values each."""
        return cls(
            values, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
        )

    @property
    def counts(self) -> Array:
        """How many values each sample has."""
        return np.diff(self.offsets)

    def part(self, first: int, last: int) -> Column:
        """Return the samples from ``first`` up to ``last``."""
        offsets = self.offsets[first : last + 1]
        return Column(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def without_padding(self) -> Column:
        """Return the samples without their values 0 (floats: below 1e-6); of nothing else one 0 stays."""
        padding = np.abs(self.values, dtype=np.float64) < 1e-6
        if not padding.any():
            return self
        begins = self.offsets[:-1]
        alone = begins[np.logical_and.reduceat(padding, begins)]
        values = np.where(padding, 0, self.values).astype(self.values.dtype)
        stay = ~padding
        stay[alone] = True
        return Column.of(values[stay], np.add.reduceat(stay, begins, dtype=np.int64))

    def take(self, order: Array) -> Column:
        """Return the samples of these numbers, in this order."""
        counts = self.counts[order]
        return Column.of(self.values[spans(self.offsets[order], counts)], counts)


def spans(begins: Array, counts: Array) -> Array:
    """Return the numbers from each of ``begins`` on, ``counts`` of them, behind each other."""
    ahead = np.cumsum(counts) - counts
    return np.repeat(begins - ahead, counts) + np.arange(int(counts.sum()))


@dataclass(frozen=True)
class Records:
    """Samples: a column a slot, and the names of the samples where lines bear them."""

    columns: tuple[Column, ...]
    ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns[0].offsets) - 1

    def part(self, first: int, last: int) -> Records:
        """Return the samples from ``first`` up to ``last``."""
        return Records(tuple(c.part(first, last) for c in self.columns), self.ids[first:last])

    def take(self, order: Array) -> Records:
        """Return the samples of these numbers, in this order."""
        ids = tuple(self.ids[i] for i in order) if self.ids else ()
        return Records(tuple(c.take(order) for c in self.columns), ids)

    def without_padding(self, slots: Sequence[Slot]) -> Records:
        """Return the samples with what pads their sequences left out."""
        pairs = zip(slots, self.columns, strict=True)
        return Records(
            tuple(c.without_padding() if s.shape is None else c for s, c in pairs), self.ids
        )

    def feed(self, slots: Sequence[Slot]) -> Batch:
        """Return the samples as one batch, by the names of variables."""
        pairs = zip(slots, self.columns, strict=True)
        return {slot.name: slot.feed(column) for slot, column in pairs}


def joined(parts: Sequence[Records], slots: Sequence[Slot]) -> Records:
    """Return samples behind each other as one; there may be none."""
    if len(parts) == 1:
        return parts[0]
    columns = []
    for number, slot in enumerate(slots):
        values = [np.zeros(0, slot.dtype), *(part.columns[number].values for part in parts)]
        counts = [np.zeros(0, np.int64), *(part.columns[number].counts for part in parts)]
        columns.append(Column.of(np.concatenate(values), np.concatenate(counts)))
    return Records(tuple(columns), tuple(name for part in parts for name in part.ids))


def packed(records: Records) -> Array:
    """Return samples as bytes; see :func:`unpacked`."""
    stream = io.BytesIO()
    for column in records.columns:
        np.save(stream, column.values, allow_pickle=False)
        np.save(stream, column.offsets, allow_pickle=False)
    head = json.dumps({"columns": len(records.columns), "ids": records.ids}).encode()
    return np.frombuffer(len(head).to_bytes(8, "little") + head + stream.getvalue(), np.uint8)


def unpacked(array: Array) -> Records:
    """Return the samples that :func:`packed` made bytes of."""
    stream = io.BytesIO(array.tobytes())
    head = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    columns = [
        Column(np.load(stream, allow_pickle=False), np.load(stream, allow_pickle=False))
        for _ in range(head["columns"])
    ]
    return Records(tuple(columns), tuple(head["ids"]))


def batches_of(
    parts: Iterator[Records], slots: Sequence[Slot], size: int, least: int
) -> Iterator[Records]:
    """Yield batches of ``size`` samples across parts; a rest of less than ``least`` joins the batch before."""
    rest = joined([], slots)
    for part in parts:
        rest = joined([rest, part], slots) if len(rest) else part
        whole = max(0, (len(rest) - least) // size)  # as many as a rest needs stay behind
        for number in range(whole):
            yield rest.part(number * size, (number + 1) * size)
        rest = rest.part(whole * size, len(rest))
    while len(rest):
        end = size if len(rest) - size >= least else len(rest)
        yield rest.part(0, end)
        rest = rest.part(end, len(rest))


class Parser:
    """Reads lines as records. ``heads``: how many words with a count of 1 stand before the slots.

    The first of these names the sample.
    """

    def __init__(self, slots: Sequence[Slot], heads: int = 0) -> None:
        self.slots = tuple(slots)
        self.heads = heads

    def records(self, text: bytes, file: str, first_line: int) -> Records:
        """Return the samples of whole lines; blank ones hold none.

        Raises:
            DamagedFile: a line is no sample of these slots; names file and line.
        """
        try:
            return self._parsed(Words(text))
        except (ValueError, IndexError, ArithmeticError):
            for number, line in enumerate(text.split(b"\n"), first_line):
                if reason := self._wrong(line.split()):
                    raise DamagedFile(
                        f"{file}, line {number}: {reason} A line has for each slot a count and as many "
                        f"numbers: {self._form()}."
                    ) from None
            raise

    def _parsed(self, words: Words) -> Records:
        ends = np.cumsum(words.counts)
        at = ends - words.counts
        ids: tuple[str, ...] = ()
        for head in range(self.heads):
            if (words.integers(at) != 1).any():
                raise ValueError("a name has no count of 1")
            ids = ids if head else tuple(words.word(i + 1).decode() for i in at)
            at = at + 2
        columns = []
        for slot in self.slots:
            counts = words.integers(at)
            if (counts < 1).any() or (slot.width and (counts != slot.width).any()):
                raise ValueError("a count is wrong")
            if (at + counts >= ends).any():
                raise ValueError("a line is too short")
            parse = words.floats if slot.dtype.kind == "f" else words.integers
            columns.append(Column.of(parse(spans(at + 1, counts)), counts))
            at = at + 1 + counts
        if (at != ends).any():
            raise ValueError("a line is too long")
        return Records(tuple(columns), ids)

    def _wrong(self, words: Sequence[bytes]) -> str:
        """Return what is wrong with one line, or nothing."""
        at = 0
        for _ in range(self.heads if words else 0):
            if words[at : at + 1] != [b"1"] or len(words) < at + 2:
                return f"the name of the sample, a 1 and a word, is expected at word {at + 1}."
            at += 2
        for slot in self.slots if words else ():
            if reason := _wrong_values(slot, words[at:]):
                return reason
            at += 1 + int(words[at])
        if at < len(words):
            return f"{len(words) - at} word(s) follow the last slot, the first of them {_shown(words[at])}."
        return ""

    def _form(self) -> str:
        head = ["1 name", "1 content"][: self.heads]
        return " ".join(
            [*head, *(f"[{slot.name}: {slot.width or 'n'} {slot.type}]" for slot in self.slots)]
        )


def _wrong_values(slot: Slot, words: Sequence[bytes]) -> str:
    """Return what is wrong with a slot's part of a line, with which ``words`` begin, or nothing."""
    if not words:
        return f"the line ends before slot {slot.name!r}."
    if not words[0].isdigit():
        return f"slot {slot.name!r} begins with {_shown(words[0])} where its count is expected."
    count = int(words[0])
    if not count:
        return f"slot {slot.name!r} has the count 0; write a padding value instead."
    if slot.width and count != slot.width:
        shape = list(slot.shape or ())
        return f"slot {slot.name!r} has {count} numbers; its shape {shape} needs {slot.width}."
    values = words[1 : 1 + count]
    if len(values) < count:
        return f"slot {slot.name!r} has the count {count}, and the line ends after {len(values)}."
    for value in values:
        if not _is_number(value, slot.dtype):
            return f"{_shown(value)} in slot {slot.name!r} is no {slot.type} number."
    return ""


def _is_number(word: bytes, dtype: np.dtype[Any]) -> bool:
    words = Words(word)
    try:
        (words.floats if dtype.kind == "f" else words.integers)(np.zeros(1, np.int64))
    except (ValueError, ArithmeticError):
        return False
    return True


def _shown(word: bytes) -> str:
    return repr(word[:LONGEST].decode(errors="backslashreplace"))


def whole_lines(blocks: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of bytes cut behind line ends, each with the number of its first line, from 1."""
    rest, line = b"", 1
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            text = rest + block[:end]
            yield text, line
            line += text.count(b"\n")
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest, line
