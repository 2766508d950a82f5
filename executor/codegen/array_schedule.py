"""Order the array calls of several expressions, so that they need little scratch memory.

A result is written in place of the operand that it updates, behind all that reads this operand; until then its
memory serves as scratch where it is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ...graph.ops.expr import Expr

COPY = "positive"
TRUTHS = frozenset((
    "greater", "greater_equal", "less", "less_equal", "equal", "not_equal",
    "logical_and", "logical_or", "logical_not", "logical_xor", "isfinite",
))  # fmt: skip


class ArrayCall(NamedTuple):
    """A function by its NumPy name; arrays by their names, numbers as they are."""

    fn: str
    operands: tuple[Any, ...]
    out: str


class ArraySchedule(NamedTuple):
    """The calls for a set of arrays: ``once``, then ``each`` for every block of them, then ``last``.

    ``numbers`` are the arrays of one element that these need beside operands and results, ``scratch`` those
    like a block.
    """

    once: list[ArrayCall]
    each: list[ArrayCall]
    last: list[ArrayCall]
    numbers: tuple[str, ...]
    scratch: tuple[str, ...]


def schedule(results: Mapping[str, Expr], scalars: Collection[str]) -> ArraySchedule:
    """Return the calls that compute ``results`` (``param_out`` in place of ``param``).

    Operands in ``scalars``, and results in their place, have one element: what depends on these alone is
    computed once, and such results are written last.
    """
    whole = {n: r for n, r in results.items() if n.removesuffix("_out") not in scalars}
    numbers = dict.fromkeys(part for result in whole.values() for part in _steady(result, scalars))
    steady = {part: f"number{k}" for k, part in enumerate(numbers)}
    once = Order({name: part for part, name in steady.items()}, "part")
    each = Order(whole, "scratch", steady)
    last = Order({n: r for n, r in results.items() if n not in whole}, "part")
    calls = once.calls(), each.calls(), last.calls()
    parts = max(once.scratch, last.scratch, key=len)
    return ArraySchedule(*calls, (*steady.values(), *parts), tuple(each.scratch))


def _steady(node: Expr, scalars: Collection[str]) -> Iterator[Expr]:
    """Yield the largest parts of an expression that depend on scalars alone."""
    if not node.args:
        return
    if _varies(node, scalars):
        for arg in node.args:
            yield from _steady(arg, scalars)
    else:
        yield node


def _varies(node: Expr, scalars: Collection[str]) -> bool:
    if node.fn == "arg":
        return node.value not in scalars
    return any(_varies(arg, scalars) for arg in node.args)


class Order:
    """Orders the calls for results; scratch is used again as soon as its last reader has it.

    ``prefix`` begins the names of scratch, ``names`` are those of parts that are computed already. ``updated``
    are the operands in whose memory results lie: by result, the one that it is named after unless told.
    ``truths`` are functions whose results lie apart, in :attr:`flags`, and no other part in theirs.
    """

    def __init__(
        self,
        results: Mapping[str, Expr],
        prefix: str,
        names: Mapping[Expr, str] | None = None,
        updated: Mapping[str, Iterable[str]] | None = None,
        truths: Collection[str] = (),
    ) -> None:
        self.scratch: list[str] = []
        self.flags: list[str] = []
        self._names: dict[Expr, Any] = dict(names or {})
        self._prefix, self._truths = prefix, truths
        if updated is None:
            updated = {name: (name.removesuffix("_out"),) for name in results}
        self._updated = updated
        self._targets: dict[Expr, str] = {}  # a result -> its array; no two are one expression
        for name, result in results.items():
            moved = not result.args or result in self._targets
            self._targets[Expr(COPY, (result,)) if moved else result] = name
        self._readers: dict[Expr | str, int] = {}  # of parts, and of operands by name
        self._spare: dict[bool, list[str]] = {True: [], False: []}
        self._calls: list[ArrayCall] = []

    def calls(self) -> list[ArrayCall]:
        for result in self._targets:
            self._count(result)
        late = []
        for result, name in self._targets.items():
            array = self._value(result)
            if array != name:  # its place was still to be read
                late.append(ArrayCall(COPY, (array,), name))
        return self._calls + late

    def _count(self, node: Expr) -> None:
        part = _part(node)
        self._readers[part] = self._readers.get(part, 0) + 1
        if self._readers[part] == 1 and node not in self._names:
            for arg in node.args:
                self._count(arg)

    def _value(self, node: Expr, place: str = "") -> Any:
        """Return the array of a part, or a number; ``place``: where it may lie if that is read no more."""
        if not node.args:
            return node.value
        if node not in self._names:
            place = self._targets.get(node, place)
            truth = self._is_truth(node)
            alone = (arg for arg in node.args if arg.args and self._readers[arg] == 1)
            first = next((arg for arg in alone if self._is_truth(arg) == truth), None)
            for arg in node.args:
                if arg is not first:
                    self._value(arg)
            if first is not None:  # into the place itself, which the other parts read no more
                self._value(first, place)
            operands = [self._value(arg) for arg in node.args]
            for arg in node.args:
                self._release(arg)
            free = place and self._free(place)
            self._names[node] = place if free else self._take(truth)
            self._calls.append(ArrayCall(node.fn, tuple(operands), self._names[node]))
        return self._names[node]

    def _is_truth(self, node: Expr) -> bool:
        return node.fn in self._truths

    def _free(self, place: str) -> bool:
        """Tell whether the operands that lie in a result's place have been read by all their readers."""
        return not any(self._readers.get(name) for name in self._updated[place])

    def _take(self, truth: bool) -> str:
        if self._spare[truth]:
            return self._spare[truth].pop()
        own = self.flags if truth else self.scratch
        own.append(f"{'flag' if truth else self._prefix}{len(own)}")
        return own[-1]

    def _release(self, node: Expr) -> None:
        part = _part(node)
        self._readers[part] -= 1
        name = self._names.get(node)
        if not self._readers[part] and (name in self.scratch or name in self.flags):
            self._spare[name in self.flags].append(name)


def _part(node: Expr) -> Expr | str:
    return str(node.value) if node.fn == "arg" else node
