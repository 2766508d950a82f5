"""Shape rules written as they read: operands with their sizes, and what results have of these::

    Sized("X floats [N D], Label integers [N 1?], W as X [classes D] -> Loss [N 1], Path int64 [N classes]")

A word in brackets is a size, the same wherever it stands (see :func:`match`). Where an attribute has its name,
it is that attribute; ``sequences(X)`` is the number of X's sequences. An operand without brackets has any
shape. Behind a slot stands what its elements are: ``floats``, ``integers``, a type, or those of another slot
(``as X``); of a result also an attribute that names a type, or ``statistic`` (see :func:`statistic`). Sizes of
results may be quotients, ``C/groups``, which are refused unless they are whole. Results are as the first
operand unless told; one without brackets is of one shape, too, with that which it is ``as``. Of what is ``as``
an operand that is left out there is no result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...strategies.types import VarType, to_var_type
from .operands import Operands
from .registry import Inference, Spec, Specs
from .rules import (
    hold_floats,
    hold_integers,
    known_operands,
    match,
    normal_axis,
    one_dtype,
    one_level,
    product,
    size_of,
    spread_words,
    statistic,
)

Sizes = Mapping[str, int]
Check = Callable[[Inference], Sizes | None]  # sizes by word, if it tells any
_HOLD = {"floats": hold_floats, "integers": hold_integers}


class Clause(NamedTuple):
    """A slot, the type of its elements, the slot whose type that is, and its sizes (None: not told)."""

    slot: str
    dtype: str
    like: str
    sizes: str | None


def _clause(text: str) -> Clause:
    head, bracket, sizes = text.strip().rstrip("]").partition("[")
    slot, *words = head.split()
    like = words[1] if words[:1] == ["as"] else ""
    dtype = words[0] if words and not like else ""
    return Clause(slot, dtype, like, sizes if bracket else None)


class Sized:
    """The shape rule that a line describes (see above).

    ``checks`` may refuse what fits the line, and return sizes that results have, by the line's words.
    """

    def __init__(self, line: str, *checks: Check) -> None:
        self.operands, self.results = (
            [_clause(text) for text in side.split(",") if text.strip()] for side in line.split("->")
        )
        self.forms = {
            clause.slot: clause.sizes for clause in self.operands if clause.sizes is not None
        }
        self._counted = re.findall(r"sequences\((\w+)\)", line)
        self._checks = checks
        # input slots whose elements tell sizes
        self.counted_from = [
            slot.name
            for check in checks
            if isinstance(check, counted)
            for slot in check.record.declared().read(check.reads)
        ]

    def __call__(self, op: Inference) -> Mapping[str, Specs]:
        """Return the specs of the results."""
        named = {operand.slot for operand in self.operands}
        for slot in op.op.input_slots:
            if slot.name in named and not slot.optional:
                op.spec(slot.name)
        for operand in self.operands:
            _check_type(op, operand)
        numbers = {name: value for name, value in op.attrs.items() if type(value) is int}
        numbers |= {f"sequences({slot})": op.sequences(slot) for slot in self._counted}
        sizes = match(op, numbers, **self.forms)
        for check in self._checks:
            sizes |= check(op) or {}
        there = (result for result in self.results if not result.like or op.has(result.like))
        return {result.slot: self._result(op, result, sizes) for result in there}

    def _result(self, op: Inference, result: Clause, sizes: Mapping[str, int]) -> Spec:
        like = result.like or (self.operands[0].slot if self.operands else "")
        dtype = _type_of(op, result.dtype, like)
        if result.sizes is None:
            return Spec(op.shape(like), dtype)
        words = spread_words(result.sizes.split(), sizes)
        return Spec(tuple(_quotient(op, word, sizes) for word in words), dtype)


def _quotient(op: Inference, word: str, sizes: Sizes) -> int:
    """Return the size of a word such as ``C/groups``; refuse one that is no whole number."""
    whole, *divisors = word.split("/")
    size, by = size_of(whole, sizes), product(tuple(size_of(word, sizes) for word in divisors))
    fits = size < 0 or (by > 0 and size % by == 0)
    op.require(fits, f"{whole} = {size} does not divide by {'*'.join(divisors)} = {by}")
    return -1 if size < 0 else size // by


def _type_of(op: Inference, dtype: str, like: str) -> VarType:
    """Return the element type of a result: the type that is told, or that of the operand that it is like."""
    if dtype == "statistic":
        return statistic(op.spec(like).dtype)
    if dtype:
        return VarType(op.attrs[dtype]) if dtype in op.attrs else to_var_type(dtype)
    return op.spec(like).dtype


def _check_type(op: Inference, operand: Clause) -> None:
    """Refuse elements of another type than the line says, where the operand is in use."""
    slot, dtype = operand.slot, operand.dtype
    if operand.like:
        one_dtype(op, operand.like, slot)
    elif dtype in _HOLD:
        _HOLD[dtype](op, slot)
    elif dtype and op.has(slot):
        op.require(op.spec(slot).dtype == to_var_type(dtype), f"{slot} must hold {dtype}")


def in_sequences(*slots: str) -> Check:
    """Return the check that inputs hold sequences, of one level."""

    def check(op: Inference) -> None:
        for slot in slots:
            op.sequences(slot)
            one_level(op, slot)

    return check


def one_element(*slots: str) -> Check:
    """Return the check that inputs, of those in use, have one element."""

    def check(op: Inference) -> None:
        for slot in filter(op.has, slots):
            op.require(product(op.shape(slot)) in (1, -1), f"{slot} must have one element")

    return check


def names_dimensions(attr: str, slot: str = "X") -> Check:
    """Return the check that an attribute numbers a dimension of an operand, or several."""

    def check(op: Inference) -> None:
        axes = op.attr(attr)
        for axis in axes if isinstance(axes, Sequence) else [axes]:
            normal_axis(op, axis, len(op.shape(slot)))

    return check


@dataclass(frozen=True)
class counted:
    """The check that tells sizes by a function of operands that are known before a step begins.

    They are unknown until then; ``reads``: see :func:`known_operands`.
    """

    record: type[Operands]
    sizes: Callable[[Any], Sizes]
    reads: str = ""

    def __call__(self, op: Inference) -> Sizes:
        operands = known_operands(op, self.record, self.reads)
        return {} if operands is None else dict(self.sizes(operands))
