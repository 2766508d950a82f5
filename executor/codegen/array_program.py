"""A formula's terms as calls: loops of whatever is computed element by element, array calls for the rest.

Terms of one shape that depend on nothing between them make one loop, sums included. What several loops would
compute again is stored, if that costs more than reading it. Views cost nothing: their elements are read, or
written, where they lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from ...graph.ops import expr as e
from ...graph.ops.formula import Term, in_order, outside, slices
from ...graph.ops.operands import Operands
from ...graph.ops.registry import Op
from ...strategies.errors import InvalidValue, SequenceError
from ..device.device import Device
from ..host.bounded_dict import BoundedDict
from .dimensions import view_has
from .factors import factors

Step = Callable[[], Any]
Outputs = Sequence[tuple[e.Expr, Any]]


def _copied(dev: Device, target: Any, source: Any) -> list[Step]:
    return [partial(dev.xp.copyto, target, source)]


def look_at(dev: Device, index: Any, limit: int, problem: str) -> list[Step]:
    """Return the call that refuses an index outside 0 .. ``limit`` - 1; it fills the ``{}`` of ``problem``."""

    def check() -> None:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= limit:
            raise InvalidValue(problem.format(low if low < 0 else high))

    return [check] if index.size else []


def _sequence_of(dev: Device, op: str, what: str, offsets: Any, out: Any) -> list[Step]:
    xp = dev.xp

    def number() -> None:
        if dev.runtime is not None:  # the host does not see offsets on a GPU
            out[...] = xp.searchsorted(offsets[1:], xp.arange(out.size), side="right")
            return
        if offsets[-1] != out.size:
            raise SequenceError(
                f"{op}: the sequences of {what} end at row {offsets[-1]}, and it has {out.size} rows"
            )
        out[...] = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))

    return [number]


def _running_sums(dev: Device, lengths: Any, out: Any) -> list[Step]:
    def add_up() -> None:
        out[0] = 0
        dev.xp.cumsum(lengths, out=out[1:])

    return [add_up]


def _multiplied(dev: Device, x: Any, y: Any, out: Any) -> list[Step]:
    return [partial(dev.xp.matmul, x, y, out)]


def _extreme(dev: Device, name: str, x: Any, axes: tuple[int, ...], out: Any) -> list[Step]:
    return [partial(dev.reducer(f"{name}imum"), x, axes, None, out, True)]


def _first_largest(dev: Device, x: Any, axis: int, out: Any) -> list[Step]:
    return [lambda: dev.xp.copyto(out, x.argmax(axis))]


@dataclass(frozen=True)
class Means:
    """How a back end computes the parts of a formula.

    ``loops`` evaluates expressions into outputs, which may be sums; ``rows`` copies rows of a source by number;
    ``row_sums`` adds up rows by number, always in one order; ``copy`` copies an array into another.
    ``row_of_largest`` writes the first row of the largest element, by sequence and column.
    ``offsets`` writes a zero and running sums of whole numbers, ``sequence_of`` the number of each row's
    sequence, ``matmul`` a product of (stacks of) matrices.
    ``extreme`` writes the largest ("max") or least ("min") along axes, which keep size 1.
    ``first_largest`` writes the position of the first of the largest along an axis.
    ``inside`` refuses numbers that are not from 0 to a limit, with a sentence that has ``{}`` for the number.
    ``one_pass``: loops compute what their outputs have in common once.
    """

    loops: Callable[[Device, Outputs, Mapping[str, Any]], list[Step]]
    rows: Callable[[Device, Any, Any, Any], list[Step]]
    row_sums: Callable[[Device, Any, Any, Any], list[Step]]
    row_of_largest: Callable[[Device, Any, Any, Any], list[Step]]
    one_pass: bool = True
    copy: Callable[[Device, Any, Any], list[Step]] = _copied
    inside: Callable[[Device, Any, int, str], list[Step]] = look_at
    offsets: Callable[[Device, Any, Any], list[Step]] = _running_sums
    sequence_of: Callable[[Device, str, str, Any, Any], list[Step]] = _sequence_of
    matmul: Callable[[Device, Any, Any, Any], list[Step]] = _multiplied
    extreme: Callable[[Device, str, Any, tuple[int, ...], Any], list[Step]] = _extreme
    first_largest: Callable[[Device, Any, int, Any], list[Step]] = _first_largest


_VIEWS = {"reshape", "transpose", "broadcast", "slice", "constant", "checked"}
_KNOWN = {"arg", "number", "table", "unread"}
_APART = {
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
_NO_FUNCTION = frozenset({*_VIEWS, *_KNOWN, *_APART, "sum"})
_NOT_COMPUTED = frozenset({*_VIEWS, *_KNOWN})
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


Place = tuple[str, int]  # a slot, and the position there
_TRACED_KEPT = 1024
_TABLE_BYTES = 1 << 16  # of tables in what is kept: larger ones are made again
_traced: BoundedDict[tuple[Any, ...], list[tuple[Term, str, Place]]] = BoundedDict(_TRACED_KEPT)


def traced(op: Op, a: Operands) -> tuple[list[tuple[Term, Any, Place]], dict[str, Any]]:
    """Return an op's results as terms, each with where it goes (slot and position), and operands by name.

    ``a`` is the op's record of whatever has a shape and a dtype; results that are None there are left out.
    What was traced for the same shapes and attributes before is not traced again.
    """
    fields, arrays = vars(a), dict[str, Any]()
    slots = [slot for side in op.parameters for slot in side]
    for _, name, several in slots:
        value = fields[name]
        many = enumerate(value) if several else ()
        arrays |= {f"{name}{k}": x for k, x in many} if several else {name: value}
    own = {name for _, name, _ in slots}
    settings = [(name, value) for name, value in fields.items() if name not in own]
    sizes = [(name, x if x is None else (x.shape, x.dtype)) for name, x in arrays.items()]
    key = (op.formula, repr(settings), tuple(sizes))
    results = _traced.get(key)
    if results is None:
        results = _trace(op, a, arrays)
        tables = (t.options for t in in_order(r for r, _, _ in results) if t.fn == "table")
        if sum(table.nbytes for table in tables) <= _TABLE_BYTES:
            _traced[key] = results
    used = {name: x for name, x in arrays.items() if x is not None}
    return [(root, used[name], place) for root, name, place in results], used


def _trace(op: Op, a: Operands, arrays: Mapping[str, Any]) -> list[tuple[Term, str, Place]]:
    """Return an op's results as terms, each with the name of its array and where that stands."""
    fields: dict[str, Any] = dict(vars(a))

    def term(name: str, fn: str) -> Term | None:
        array = arrays[name]
        return None if array is None else Term(fn, (), array.shape, array.dtype, name)

    for slots, fn in zip(op.parameters, ("arg", "result"), strict=True):
        for _, name, several in slots:
            count = range(len(fields[name])) if several else ()
            fields[name] = [term(f"{name}{k}", fn) for k in count] if several else term(name, fn)
    assert op.formula is not None
    results = op.formula(a.of(fields))
    roots = []
    for slot, name, several in op.parameters[1]:
        names = [f"{name}{k}" for k in range(len(fields[name]))] if several else [name]
        terms = results.get(name) if several else [results.get(name)]
        pairs = enumerate(zip(terms or [None] * len(names), names, strict=True))
        roots += [(root, at, (slot, k)) for k, (root, at) in pairs if arrays[at] is not None]
    merged = _merged([root for root, _, _ in roots])
    return [(root, at, place) for root, (_, at, place) in zip(merged, roots, strict=True)]


def bind_terms(
    dev: Device, op: str, roots: Sequence[tuple[Term, Any]], arrays: Mapping[str, Any], means: Means
) -> list[Step]:
    """Return the calls that compute terms into arrays, from the operands by name; ``op`` is named in errors."""
    return _Program(dev, op, roots, arrays, means).steps


def _merged(roots: Sequence[Term]) -> list[Term]:
    """Return the roots with one term in place of all that are the same function of the same terms."""
    same: dict[tuple[Any, ...], Term] = {}
    merged: dict[Term, Term] = {}
    for term in in_order(roots):
        args = tuple([merged[arg] for arg in term.args])
        options = term.options
        if isinstance(options, np.ndarray):
            options = id(options)
        elif isinstance(options, float):
            options = repr(options)  # -0.0 is not 0.0
        key = (term.fn, args, term.shape, term.dtype, type(options), options)
        known = same.get(key)
        if known is None:
            own = args == term.args
            known = term if own else Term(term.fn, args, term.shape, term.dtype, term.options)
            same[key] = known
        merged[term] = known
    return [merged[root] for root in roots]


def _source(term: Term) -> Term:
    """Return the term that a view is of."""
    while term.fn in _VIEWS:
        term = term.args[0]
    return term


class _Loop(NamedTuple):
    """Terms that are computed in one pass, as expressions of ``operands``, which these name t0, t1, ..."""

    outputs: list[tuple[e.Expr, Term]]
    operands: list[Term]


class _Schedule:
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
            if not isinstance(part, _Loop):
                continue
            views = {_source(term) for term in part.operands if term.fn in _VIEWS}
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
            for term in part.operands if isinstance(part, _Loop) else part.args:
                last[_source(term)] = k
        ends: list[list[Term]] = [[] for _ in self.parts]
        read = set(map(_source, copied))
        for term, k in last.items():
            if term in self.stored and term not in read:
                ends[k].append(term)
        return ends

    def _stored(self, targets: Collection[Term], copied: Collection[Term]) -> set[Term]:
        """Return which terms lie in memory of their own."""
        stored = set(targets) | {t for t in self.order if t.fn in _APART or t.fn == "sum"}
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

    def _parts(self) -> Iterator[Term | _Loop]:
        stages: dict[int, list[Term]] = {}
        for term in self.order:
            if term in self.stored:
                stages.setdefault(self.stages[term], []).append(term)
        for stage in sorted(stages):
            loops: dict[tuple[Any, ...], list[Term]] = {}
            for term in stages[stage]:
                if term.fn in _APART:
                    yield term
                else:
                    shape = term.args[0].shape if term.fn == "sum" else term.shape
                    loops.setdefault((shape, _type(term)), []).append(term)
            yield from map(self._loop, loops.values())

    def _loop(self, terms: Sequence[Term]) -> _Loop:
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
        return _Loop(outputs, operands)


_SCHEDULES_KEPT = 1024
_schedules: BoundedDict[tuple[Any, ...], _Schedule] = BoundedDict(_SCHEDULES_KEPT)


class _Program:
    """Binds the parts of a schedule to memory, and makes their calls."""

    def __init__(
        self,
        dev: Device,
        op: str,
        roots: Sequence[tuple[Term, Any]],
        arrays: Mapping[str, Any],
        means: Means,
    ) -> None:
        self.dev, self.op, self.means = dev, op, means
        self.steps: list[Step] = []
        self.values: dict[Term, Any] = {}
        self.targets: dict[Term, Any] = {}
        self.spare: dict[Any, list[Any]] = {}
        self.arrays = arrays
        self.copies: list[tuple[Term, Any]] = []
        for root, out in roots:
            self._aim(root, out)
        self.schedule = schedule = self._schedule([root for root, _ in roots])
        checks = [term for term in schedule.order if term.fn == "checked"]
        # A result may lie where an operand does that another result is a copy of.
        early = [self._copies_early(term, out) for term, out in self.copies]
        self._copy(early)
        for part, ends in zip(schedule.parts, schedule.ends, strict=True):
            for term in checks:  # what may be wrong is looked at before others are computed
                if _source(term) in self.values or _source(term) not in schedule.stored:
                    self._array(term)
            if isinstance(part, _Loop):
                operands = {f"t{k}": self._array(term) for k, term in enumerate(part.operands)}
                outputs = [(root, self._place(term)) for root, term in part.outputs]
                with dev.in_turn():
                    self.steps += means.loops(dev, outputs, operands)
            else:
                self._apart(part)
            for term in ends:
                if term not in self.targets and term not in schedule.lent:
                    array = self.values[term]
                    self.spare.setdefault((array.shape, array.dtype), []).append(array)
        self._copy([not first for first in early])

    def _copy(self, which: Sequence[bool]) -> None:
        """Copy what results are views of, or such as are computed nowhere."""
        for term, out in compress(self.copies, which):
            self.steps += self.means.copy(self.dev, out, self._array(term))

    def _copies_early(self, term: Term, out: Any) -> bool:
        """Tell whether a result is an operand's copy, in memory that no operand has."""
        return _source(term).fn == "arg" and not self._has_operand(out)

    def _schedule(self, roots: Sequence[Term]) -> _Schedule:
        """Return the schedule, which an earlier program of the same terms may have made."""
        how = self.targets.keys(), [term for term, _ in self.copies], self.means.one_pass
        key = (*roots, None, *how[0], None, *how[1], how[2])
        schedule = _schedules.get(key)
        if schedule is None:
            schedule = _schedules[key] = _Schedule(roots, *how)
        return schedule

    def _aim(self, term: Term, out: Any) -> None:
        """Let a term be computed where a result lies, and what it is a view of, too."""
        while term not in self.targets:
            if term.fn == "reshape" and out.flags.c_contiguous:
                out = out.reshape(term.args[0].shape)
            elif term.fn == "transpose":
                out = out.transpose([term.options.index(i) for i in range(term.ndim)])
            elif term.fn in _NOT_COMPUTED:
                break
            else:
                self.targets[term] = out
                return
            term = term.args[0]
        self.copies.append((term, out))

    def _place(self, term: Term) -> Any:
        """Return the memory of a stored term."""
        if term in self.values:
            return self.values[term]
        array = self.targets.get(term)
        if array is None and term in self.schedule.lent:
            array = self._vacant(self.targets[self.schedule.lent[term]])
        if array is None:
            spare = self.spare.get((term.shape, term.dtype))
            array = spare.pop() if spare else self.dev.scratch(term.shape, term.dtype)
        self.values[term] = array
        return array

    def _vacant(self, out: Any) -> Any:
        """Return the memory of a result, unless an operand may lie there."""
        return out if out.flags.c_contiguous and not self._has_operand(out) else None

    def _has_operand(self, out: Any) -> bool:
        """Tell whether an operand that is read lies where a result does."""
        read = (self.arrays[term.options] for term in self.schedule.order if term.fn == "arg")
        return any(self.dev.xp.may_share_memory(out, array) for array in read)

    def _array(self, term: Term) -> Any:
        """Return a term that lies in memory, or a view of it."""
        if term not in self.values:
            self.values[term] = self._view(term)
        return self.values[term]

    def _view(self, term: Term) -> Any:
        if term.fn == "arg":
            return self.arrays[term.options]
        if term.fn == "number":
            number = np.array(term.options, term.dtype)
            on_host = self.dev.xp is np
            key = number.tobytes(), number.dtype, number.shape
            return _constant(*key) if on_host else self._kept(number)
        if term.fn == "table":
            return self._kept(term.options)
        assert term.fn != "unread", f"{self.op} computes with an operand that it does not read"
        source = self._array(term.args[0])
        if term.fn == "transpose":
            return source.transpose(term.options)
        if term.fn == "broadcast":
            return self.dev.xp.broadcast_to(source, term.shape)
        if term.fn == "slice":
            return source[slices(term.options)]
        if term.fn == "constant":
            return source
        if term.fn == "checked":
            limit, what, of, op = term.options
            problem = outside(op or self.op, limit, what, of)
            self.steps += self.means.inside(self.dev, source, limit, problem)
            return source
        if source.flags.c_contiguous or view_has(source, term.shape):
            return source.reshape(term.shape)
        copy = self.dev.scratch(term.shape, term.dtype)
        self.steps += self.means.copy(self.dev, copy.reshape(source.shape), source)
        return copy

    def _kept(self, values: np.ndarray[Any, Any]) -> Any:
        array = self.dev.keep(values.shape, values.dtype)
        array[...] = self.dev.xp.asarray(values)
        return array

    def _apart(self, term: Term) -> None:
        dev, xp, out = self.dev, self.dev.xp, self._place(term)
        args = [self._array(arg) for arg in term.args]
        if not out.size:
            return
        first = args[0]
        if term.fn == "cast":
            self.steps.append(partial(xp.copyto, out, first, casting="unsafe"))
        elif term.fn in ("max", "min"):
            self.steps += self.means.extreme(dev, term.fn, first, term.options, out)
        elif term.fn == "place":
            parts = [out[slices(cuts)] for cuts in term.options]
            if sum(part.size for part in parts) < out.size:
                self.steps.append(partial(out.fill, 0))
            for part, array in zip(parts, args, strict=True):
                self.steps += self.means.copy(dev, part, array)
        elif term.fn == "concat":
            start = 0
            for array in args:
                end = start + array.shape[term.options]
                part = out[(slice(None),) * term.options + (slice(start, end),)]
                self.steps += self.means.copy(dev, part, array)
                start = end
        elif term.fn == "matmul":
            self.steps += self.means.matmul(dev, first, args[1], out)
        elif term.fn in ("inverse", "cholesky"):
            self.steps.append(partial(_factor, dev, self.op, term.fn, first, out))
        elif term.fn == "offsets":
            self.steps += self.means.offsets(dev, first, out)
        elif term.fn == "segments":
            self.steps += self.means.sequence_of(dev, self.op, term.options, first, out)
        elif term.fn == "segment_argmax":
            self.steps += self.means.row_of_largest(dev, first, args[1], out)
        elif term.fn == "argmax":
            self.steps += self.means.first_largest(dev, first, term.options, out)
        else:
            which = self.means.rows if term.fn == "rows" else self.means.row_sums
            self.steps += which(dev, first, args[1], out)


@lru_cache
def _constant(content: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array that nothing writes: plans share it."""
    return np.frombuffer(content, dtype).reshape(shape)


def _factor(dev: Device, op: str, fn: str, matrices: Any, out: Any) -> None:
    compute = dev.xp.linalg.inv if fn == "inverse" else dev.xp.linalg.cholesky
    dev.xp.copyto(out, factors(dev, op, fn, lambda: compute(matrices)))
