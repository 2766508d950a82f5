"""Order the array calls of several expressions, so that they need little scratch memory.

A result is written in place of the operand that it updates, behind all that reads this operand; until then its
memory serves as scratch where it is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ...graph.ops.expr import Expr

COPY = "positive"


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
    once = _Order({name: part for part, name in steady.items()}, {}, "part")
    each = _Order(whole, steady, "scratch")
    last = _Order({n: r for n, r in results.items() if n not in whole}, {}, "part")
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


class _Order:
    """Orders the calls for results; scratch is used again as soon as its last reader has it.

    ``names`` are those of parts that are computed already, ``prefix`` begins those of scratch.
    """

    def __init__(self, results: Mapping[str, Expr], names: Mapping[Expr, str], prefix: str) -> None:
        self.scratch: list[str] = []
        self._names: dict[Expr, Any] = dict(names)
        self._prefix = prefix
        self._targets: dict[Expr, str] = {}  # a result -> its array; no two are one expression
        for name, result in results.items():
            moved = result.fn == "arg" or result in self._targets
            self._targets[Expr(COPY, (result,)) if moved else result] = name
        self._readers: dict[Expr, int] = {}
        self._operands: dict[str, Expr] = {}
        self._spare: list[str] = []
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
        self._readers[node] = self._readers.get(node, 0) + 1
        if node.fn == "arg":
            self._operands[node.value] = node
        if self._readers[node] == 1 and node not in self._names:
            for arg in node.args:
                self._count(arg)

    def _value(self, node: Expr, place: str = "") -> Any:
        """Return the array of a part, or a number; ``place``: where it may lie if that is read no more."""
        if node.fn in ("arg", "const"):
            return node.value
        if node not in self._names:
            place = self._targets.get(node, place)
            first = next((arg for arg in node.args if self._readers[arg] == 1 and arg.args), None)
            for arg in node.args:
                if arg is not first:
                    self._value(arg)
            if first is not None:  # into the place itself, which the other parts read no more
                self._value(first, place)
            operands = [self._value(arg) for arg in node.args]
            for arg in node.args:
                self._release(arg)
            self._names[node] = place if place and self._free(place) else self._take()
            self._calls.append(ArrayCall(node.fn, tuple(operands), self._names[node]))
        return self._names[node]

    def _free(self, place: str) -> bool:
        """Tell whether the operand that lies in a result's place has been read by all its readers."""
        operand = self._operands.get(place.removesuffix("_out"))
        return operand is None or not self._readers[operand]

    def _take(self) -> str:
        if not self._spare:
            self.scratch.append(f"{self._prefix}{len(self.scratch)}")
            return self.scratch[-1]
        return self._spare.pop()

    def _release(self, node: Expr) -> None:
        self._readers[node] -= 1
        if not self._readers[node] and self._names.get(node) in self.scratch:
            self._spare.append(self._names[node])
