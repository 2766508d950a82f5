"""Which terms of a formula lie in memory, and which are computed in one loop.

Terms of one shape that depend on nothing between them make one loop, sums included. What several loops would
compute again is stored, if that costs more than reading it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph.ops import expr as e
from ...graph.ops.formula import Term, in_order

VIEWS = {"reshape", "transpose", "broadcast", "slice", "constant", "checked"}
_KNOWN = {"arg", "number", "table", "unread"}
APART = {
    "cast",
    "max",
    "min",
    "place",
    "concat",
    "matmul",
    "inverse",
    "cholesky",
    "rows",
    "row_sums",
    "argmax",
    "offsets",
    "segments",
    "segment_argmax",
}
_NO_FUNCTION = frozenset({*VIEWS, *_KNOWN, *APART, "sum"})
NOT_COMPUTED = frozenset({*VIEWS, *_KNOWN})
_COSTS = {"exp", "expm1", "log", "log1p", "tanh", "erf", "sin", "cos", "power", "sqrt", "divide"}
_CHEAP = 4  # functions that are computed twice rather than written and read


def elementwise(term: Term) -> bool:
    """Tell whether a term is a function of single elements."""
    return term.fn not in _NO_FUNCTION


def _type(term: Term) -> Any:
    """Return the element type that a function is computed in: of a condition, that of what it compares."""
    if term.dtype != np.bool_ or not elementwise(term):
        return term.dtype
    types = [_type(arg) for arg in term.args if arg.fn != "number"]
    return next((t for t in types if t != np.bool_), np.dtype(bool))


def source_of(term: Term) -> Term:
    """Return the term that a view is of."""
    while term.fn in VIEWS:
        term = term.args[0]
    return term


class Loop(NamedTuple):
    """Terms that are computed in one pass, as expressions of ``operands``, which these name t0, t1, ..."""

    outputs: list[tuple[e.Expr, Term]]
    operands: list[Term]


class TermSchedule:
    """Which terms lie in memory, and in which order loops and other calls compute them: ``parts``.

    ``targets`` are the terms that are computed where results lie, ``copied`` those that are copied there.
    ``ends`` are, for each part, the terms whose memory is free behind it, ``lent`` what may lie in a result's.
    """

    def __init__(
        self,
        roots: Iterable[Term],
        targets: Collection[Term],
        copied: Collection[Term],
        one_pass: bool,
    ) -> None:
        self.one_pass = one_pass
        self.order = in_order(roots)
        self.stored = self._stored(targets, copied)
        self.stages = self._stages()
        self._share()
        self.parts = list(self._parts())
        self.ends = self._ends(copied)
        self.lent = self._lent(targets)

    def _lent(self, targets: Collection[Term]) -> dict[Term, Term]:
        """Return terms that can lie where a result will: the loop that computes it reads them there, last."""
        lent: dict[Term, Term] = {}
        for part, ends in zip(self.parts, self.ends, strict=True):
            if not isinstance(part, Loop):
                continue
            views = {source_of(term) for term in part.operands if term.fn in VIEWS}
            spare = [term for term in ends if term not in views and term not in targets]
            for _, result in part.outputs:
                if result in targets and elementwise(result):
                    form = result.shape, result.dtype
                    term = next((t for t in spare if (t.shape, t.dtype) == form), None)
                    if term is not None:
                        spare.remove(term)
                        lent[term] = result
        return lent

    def _ends(self, copied: Iterable[Term]) -> list[list[Term]]:
        """Return, for each part, the terms that no later one reads."""
        last: dict[Term, int] = {}
        for k, part in enumerate(self.parts):
            for term in part.operands if isinstance(part, Loop) else part.args:
                last[source_of(term)] = k
        ends: list[list[Term]] = [[] for _ in self.parts]
        read = set(map(source_of, copied))
        for term, k in last.items():
            if term in self.stored and term not in read:
                ends[k].append(term)
        return ends

    def _stored(self, targets: Collection[Term], copied: Collection[Term]) -> set[Term]:
        """Return which terms lie in memory of their own."""
        stored = set(targets) | {t for t in self.order if t.fn in APART or t.fn == "sum"}
        stored |= {term for term in copied if elementwise(term)}
        for term in self.order:
            inside = elementwise(term) or term.fn == "sum"
            for arg in term.args:
                if elementwise(arg) and not (inside and self._joins(arg, term)):
                    stored.add(arg)
        return stored

    def _joins(self, arg: Term, term: Term) -> bool:
        """Tell whether a loop that computes a term can compute its operand on the way."""
        if arg.shape != (term.args[0].shape if term.fn == "sum" else term.shape):
            return False
        types = {_type(arg), _type(term)}
        return len(types) == 1 or np.dtype(bool) in types

    def _stages(self) -> dict[Term, int]:
        """Return, for each term, how many passes come before its value is there."""
        stages: dict[Term, int] = {}
        for term in self.order:
            before = max((stages[arg] for arg in term.args), default=0)
            stages[term] = before + (term in self.stored)
        return stages

    def _share(self) -> None:
        """Store what loops of different passes would compute again at a price."""
        users: dict[Term, set[tuple[Any, ...]]] = {}
        costs: dict[Term, int] = {}
        for term in self.order:
            parts = [arg for arg in term.args if elementwise(arg) and arg not in self.stored]
            price = 4 if term.fn in _COSTS else 1
            costs[term] = price + sum(costs[part] for part in parts)
        for term in self.order:
            if term in self.stored and (elementwise(term) or term.fn == "sum"):
                shape = term.args[0].shape if term.fn == "sum" else term.shape
                for part in self._inside(term):
                    loop = (self.stages[term], shape) if self.one_pass else (term,)
                    users.setdefault(part, set()).add(loop)
        cheap = _CHEAP if self.one_pass else 0
        readers = Counter(arg for term in self.order for arg in set(term.args))
        # What one term alone reads is computed where that is: once, if that is stored.
        again = {
            term
            for term, loops in users.items()
            if len(loops) > 1 and costs[term] > cheap and readers[term] > 1
        }
        if again:
            self.stored |= again
            self.stages = self._stages()

    def _inside(self, root: Term) -> list[Term]:
        """Return the terms that the loop of a stored term computes on the way."""
        parts: dict[Term, Term] = {}
        waiting = list(root.args)
        while waiting:
            term = waiting.pop()
            if elementwise(term) and term not in self.stored and term not in parts:
                parts[term] = term
                waiting += term.args
        return list(parts.values())

    def _parts(self) -> Iterator[Term | Loop]:
        stages: dict[int, list[Term]] = {}
        for term in self.order:
            if term in self.stored:
                stages.setdefault(self.stages[term], []).append(term)
        for stage in sorted(stages):
            loops: dict[tuple[Any, ...], list[Term]] = {}
            for term in stages[stage]:
                if term.fn in APART:
                    yield term
                else:
                    shape = term.args[0].shape if term.fn == "sum" else term.shape
                    loops.setdefault((shape, _type(term)), []).append(term)
            yield from map(self._loop, loops.values())

    def _loop(self, terms: Sequence[Term]) -> Loop:
        operands: list[Term] = []
        known: dict[Term, e.Expr] = {}

        def expression(term: Term) -> e.Expr:
            if term not in known:
                while term.fn == "broadcast" and term.args[0].fn == "number":
                    term = term.args[0]
                if term.fn == "number":
                    known[term] = e.constant(term.options)
                elif elementwise(term) and term not in self.stored:
                    known[term] = e.Expr(term.fn, tuple(map(expression, term.args)))
                else:
                    known[term] = e.argument(f"t{len(operands)}")
                    operands.append(term)
            return known[term]

        outputs = []
        for term in terms:
            if term.fn == "sum":
                root = expression(term.args[0])
                root = e.copy(root) if root.fn in ("arg", "const") else root
            else:
                root = e.Expr(term.fn, tuple(map(expression, term.args)))
            outputs.append((root, term))
        return Loop(outputs, operands)
