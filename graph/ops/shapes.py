"""Shape rules as one line: operands with their sizes, and results with sizes in the same words::

    Sized("X floats [N D], Label integers [N 1?], W as X [classes D] -> Loss [N 1], Path int64 [N classes]")

A word in brackets is a size, the same wherever it stands (see :func:`match`). Where an attribute has its name,
it is that attribute; ``sequences(X)`` is the number of X's sequences. An operand without brackets has any
shape. The word behind a slot is its element type: ``floats``, ``integers``, ``numbers`` (either), a type, or
that of another slot (``as X``); for a result also an attribute or a word that names a type (below zero: the
operand's), or ``statistic`` (see :func:`statistic`). A result has the type of the first operand, or of that
which it is ``as``; without brackets it has the shape of that operand, too, and there is no such result where
the operand is left out. All variables of a slot that takes several must fit; ``Out*count`` are so many results.

Conditions, with the text of the error, and definitions of words follow the line. They are expressions
(``sizes.py``) of words, attributes, and slots, which are shapes (None: not in use)::

    Sized(
        "X, Scale [channels] -> Y as X, Rows [*rest]",
        "channels = X[axis]",
        "rest = X[:axis] + X[axis + 1:]",  # several sizes
        "channels % groups == 0; channels do not split in groups",
    )

A condition is passed over where it depends on a size that is not known, or on an operand that is not in use
and that it does not compare with None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ...strategies.bounded_dict import BoundedDict
from ...strategies.types import VarType, to_var_type
from .operands import Operands
from .registry import Inference, ShapeRule, Spec, Specs
from .rules import (
    hold_floats,
    hold_integers,
    hold_numbers,
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
from .sizes import UNKNOWN, Undecided, as_size, expression, plain

Sizes = Mapping[str, Any]  # by word: a number, or several
Check = Callable[[Inference], Sizes | None]  # sizes by word, if it tells any
_MOST_KNOWN = 1 << 10  # results of a line
_HOLD = {"floats": hold_floats, "integers": hold_integers, "numbers": hold_numbers}


class Clause(NamedTuple):
    """A slot, the type of its elements, the slot whose type that is, and its sizes (None: not told)."""

    slot: str
    dtype: str
    like: str
    sizes: str | None
    times: str = ""  # how many results there are, where it is told


def _clause(text: str) -> Clause:
    head, bracket, sizes = text.strip().rstrip("]").partition("[")
    slot, *words = head.split()
    slot, _, count = slot.partition("*")
    like = words[1] if words[:1] == ["as"] else ""
    dtype = words[0] if words and not like else ""
    return Clause(slot, dtype, like, sizes if bracket else None, count)


class _Scope:
    """What names stand for in the expressions of one op; ``sizes`` has words, and whole attributes."""

    def __init__(self, op: Inference, names: Iterable[str]) -> None:
        self.op, self.words = op, dict[str, Any]()  # of statements
        self.sizes = {name: op.attrs[name] for name in names if name in op.attrs}

    def __call__(self, name: str) -> Any:
        op = self.op
        if name in self.words:
            return self.words[name]
        if name in op.attrs:
            return op.attrs[name]
        if name in self.sizes:
            size = self.sizes[name]
            return as_size(size) if isinstance(size, int) else tuple(map(as_size, size))
        if name.startswith("sequences_"):
            slot = name.removeprefix("sequences_")
            return as_size(op.sequences(slot)) if op.has(slot) else None
        shapes = [tuple(map(as_size, spec.shape)) for spec in op.specs(name)]
        return (shapes if name in op.op.several else shapes[0]) if shapes else None


class Statement:
    """A condition, with what an error says (``problem``), or what ``words`` stand for."""

    def __init__(self, text: str) -> None:
        definition = re.match(r"(\w+(?:, \w+)*) = ", text)
        self.words = definition[1].split(", ") if definition else []
        said, _, problem = text[definition.end() if definition else 0 :].partition("; ")
        self.expression, self._asks = expression(said), " None" in said
        self.problem = problem or f"{self.expression.text} must hold"

    def __call__(self, scope: _Scope) -> None:
        """Note the word, or refuse the operands.

        Raises:
            ShapeError: the condition does not hold.
        """
        values = [scope(name) for name in self.expression.names]
        value: Any = UNKNOWN
        try:
            if self._asks or all(each is not None for each in values):
                value = self.expression.value(*values)
            holds = bool(self.words or value)
        except Undecided:
            value, holds = UNKNOWN, True
        if not holds:
            scope.op.fail(f"{self.problem}: {self.expression.explained(scope)}")
        if len(self.words) < 2 or value is UNKNOWN:
            value = [value] * len(self.words)
        words = dict(zip(self.words, value, strict=True))
        scope.words.update(words)
        scope.sizes.update((word, plain(size)) for word, size in words.items())


def numbers(count: int, least: int, *attributes: str) -> list[str]:
    """Return the conditions that attributes are so many numbers, from ``least`` on."""
    return [
        f"len({name}) == {count} and min({name}) >= {least}; "
        f"{name} must be {count} numbers from {least} on"
        for name in attributes
    ]


def by_use(slot: str, rule: ShapeRule, other: ShapeRule) -> ShapeRule:
    """Return the rule that chooses between two rules: where an input slot is in use, and where it is not."""
    return lambda op: (rule if op.has(slot) else other)(op)


class Sized:
    """The shape rule that a line describes (see above).

    ``rules`` are conditions, what words stand for, and checks, which may refuse what fits the line, too, and
    return sizes that results have. Those that need no sizes of the line come before operands are held to it.
    """

    def __init__(self, line: str, *rules: str | Check) -> None:
        self.line, self.rules = line, rules
        self.operands, self.results = (
            [_clause(text) for text in side.split(",") if text.strip()] for side in line.split("->")
        )
        self.forms = {
            clause.slot: clause.sizes for clause in self.operands if clause.sizes is not None
        }
        self._counted = re.findall(r"sequences\((\w+)\)", line)
        self._checks = [rule for rule in rules if not isinstance(rule, str)]
        self._known: BoundedDict[Hashable, Mapping[str, Specs]] = BoundedDict(_MOST_KNOWN)
        # input slots whose elements tell sizes
        self.counted_from = [
            slot.name
            for check in self._checks
            if isinstance(check, counted)
            for slot in check.record.declared().read(check.reads)
        ]

    # Processes import all lines and use few of them.
    @cached_property
    def statements(self) -> list[Statement]:
        """The conditions, and what words stand for."""
        return [Statement(rule) for rule in self.rules if isinstance(rule, str)]

    @cached_property
    def _names(self) -> set[str]:
        """What results depend on besides shapes."""
        names = {name for statement in self.statements for name in statement.expression.names}
        return names.union(re.findall(r"[a-zA-Z]\w*", self.line))

    @cached_property
    def _steady(self) -> bool:
        """Whether results follow from shapes and attributes alone: these are not computed again."""
        return not self._checks and not any("sequences" in name for name in self._names)

    @cached_property
    def _in_order(self) -> tuple[list[Statement], list[Statement]]:
        """The statements that come before operands are held to the line, and those that need its sizes."""
        defined = {word for statement in self.statements for word in statement.words}
        late = set(re.findall(r"[a-zA-Z]\w*", " ".join(self.forms.values()))) - defined
        first, then = list[Statement](), list[Statement]()
        for statement in self.statements:
            waits = not late.isdisjoint(statement.expression.names)
            late.update(statement.words if waits else ())
            (then if waits else first).append(statement)
        return first, then

    def extended(self, line: str, *rules: str | Check) -> Sized:
        """Return the rule with more operands, results and rules, of which the new ones come first."""
        sides = zip(self.line.split("->"), line.split("->"), strict=True)
        both = (", ".join(filter(str.strip, side)) for side in sides)
        return Sized("->".join(both), *rules, *self.rules)

    def __call__(self, op: Inference) -> Mapping[str, Specs]:
        """Return the specs of the results."""
        key = op.key(self._names) if self._steady else None
        if key is None:
            return self._infer(op)
        try:
            results = self._known.get(key)
        except TypeError:  # an attribute cannot be hashed
            return self._infer(op)
        if results is None:
            results = self._known[key] = self._infer(op)
        return results

    def _infer(self, op: Inference) -> Mapping[str, Specs]:
        for operand in self.operands:
            if operand.slot in op.op.needed:
                op.spec(operand.slot)
        for operand in self.operands:
            if operand.dtype or operand.like:
                _check_type(op, operand)
        scope, (first, then) = _Scope(op, self._names), self._in_order
        for statement in first:
            statement(scope)
        sizes = scope.sizes | {f"sequences({slot})": op.sequences(slot) for slot in self._counted}
        scope.sizes = sizes = match(op, sizes, **self.forms)
        for statement in then:
            statement(scope)
        for check in self._checks:
            sizes |= check(op) or {}
        there = (result for result in self.results if not result.like or op.has(result.like))
        return {result.slot: self._result(op, result, sizes) for result in there}

    def _result(self, op: Inference, result: Clause, sizes: Sizes) -> Specs:
        like = result.like or (self.operands[0].slot if self.operands else "")
        if not result.dtype and result.sizes is None:
            return op.specs(like)
        dtype = _type_of(op, result.dtype, like, sizes)
        if result.sizes is None:
            return Spec(op.shape(like), dtype)
        words = spread_words(result.sizes.split(), sizes)
        spec = Spec(tuple(max(size_of(word, sizes), -1) for word in words), dtype)
        if not result.times:
            return spec
        count = size_of(result.times, sizes)
        op.require(count >= 0, f"the number of results {result.slot} must be known")
        return [spec] * count


def _type_of(op: Inference, dtype: str, like: str, sizes: Sizes) -> VarType:
    """Return the element type of a result: that of the line, or of the operand that it is like."""
    if dtype == "statistic":
        return statistic(op.spec(like).dtype)
    if dtype not in sizes:
        return to_var_type(dtype) if dtype else op.spec(like).dtype
    number = sizes[dtype]
    return op.spec(like).dtype if like and number < 0 else VarType(number)


def _check_type(op: Inference, operand: Clause) -> None:
    """Refuse elements of another type than the line says, where the operand is in use."""
    slot, dtype = operand.slot, operand.dtype
    if operand.like:
        one_dtype(op, operand.like, slot)
    elif dtype in _HOLD:
        _HOLD[dtype](op, slot)
    elif dtype and op.has(slot):
        holds = all(spec.dtype == to_var_type(dtype) for spec in op.specs(slot))
        op.require(holds, f"{slot} must hold {dtype}")


def in_sequences(*slots: str) -> Check:
    """Return the check that inputs hold sequences, of one level."""

    def check(op: Inference) -> None:
        for slot in slots:
            op.sequences(slot)
            one_level(op, slot)

    return check


def equally_many(*slots: str) -> Check:
    """Return the check that inputs hold equally many sequences, of one level."""

    def check(op: Inference) -> None:
        in_sequences(*slots)(op)
        counts = {op.sequences(slot) for slot in slots} - {-1}
        names = f"{', '.join(slots[:-1])} and {slots[-1]}"
        op.require(len(counts) <= 1, f"{names} must have equally many sequences")

    return check


def rows_of_result(word: str) -> Check:
    """Return the check that tells how many rows the sequences of Out have, once that is known."""

    def check(op: Inference) -> Sizes:
        ends = op.value("Out@LOD") if op.has("Out@LOD") else None
        return {} if ends is None else {word: int(ends[-1])}

    return check


def rows_or_padded(op: Inference) -> None:
    """Refuse X unless it holds rows of sequences [N, D], of one level, or padded ones [B, T, D]."""
    rank = len(op.shape("X"))
    op.require(rank in (2, 3), "X must be rows [N, D] or padded sequences [B, T, D]")
    if rank == 2:
        in_sequences("X")(op)


def one_element(*slots: str) -> Check:
    """Return the check that inputs, of those in use, have one element."""

    def check(op: Inference) -> None:
        for slot in filter(op.has, slots):
            op.require(product(op.shape(slot)) in (1, -1), f"{slot} must have one element")

    return check


def names_dimensions(attr: str) -> Check:
    """Return the check that an attribute numbers a dimension of X, or several."""

    def check(op: Inference) -> None:
        axes = op.attr(attr)
        for axis in axes if isinstance(axes, Sequence) else [axes]:
            normal_axis(op, axis, len(op.shape("X")))

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
