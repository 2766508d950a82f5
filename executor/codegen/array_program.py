"""A formula's terms as calls: loops of whatever is computed element by element, array calls for the rest.

``term_schedule.py`` cuts terms into these. Views cost nothing: their elements are read, or written, where they
lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, compress, pairwise
from typing import Any

import numpy as np

from ...graph.ops import expr as e
from ...graph.ops.formula import Term, outside, slices
from ...strategies.bounded_dict import BoundedDict
from ...strategies.errors import InvalidValue, SequenceError
from ..device.device import Device
from .dimensions import view_has
from .factors import factors
from .term_schedule import NOT_COMPUTED, Loop, TermSchedule, source_of

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


def bind_terms(
    dev: Device, op: str, roots: Sequence[tuple[Term, Any]], arrays: Mapping[str, Any], means: Means
) -> list[Step]:
    """Return the calls that compute terms into arrays, from the operands by name; ``op`` is named in errors."""
    return _Program(dev, op, roots, arrays, means).steps


_SCHEDULES_KEPT = 1024
_schedules: BoundedDict[tuple[Any, ...], TermSchedule] = BoundedDict(_SCHEDULES_KEPT)


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
                if source_of(term) in self.values or source_of(term) not in schedule.stored:
                    self._array(term)
            if isinstance(part, Loop):
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
        return source_of(term).fn == "arg" and not self._has_operand(out)

    def _schedule(self, roots: Sequence[Term]) -> TermSchedule:
        """Return the schedule, which an earlier program of the same terms may have made."""
        how = self.targets.keys(), [term for term, _ in self.copies], self.means.one_pass
        key = (*roots, None, *how[0], None, *how[1], how[2])
        schedule = _schedules.get(key)
        if schedule is None:
            schedule = _schedules[key] = TermSchedule(roots, *how)
        return schedule

    def _aim(self, term: Term, out: Any) -> None:
        """Let a term be computed where a result lies, and what it is a view of, too."""
        while term not in self.targets:
            if term.fn == "reshape" and out.flags.c_contiguous:
                out = out.reshape(term.args[0].shape)
            elif term.fn == "transpose":
                out = out.transpose([term.options.index(i) for i in range(term.ndim)])
            elif term.fn in NOT_COMPUTED:
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
        match term.fn:
            case "transpose":
                return source.transpose(term.options)
            case "broadcast":
                return self.dev.xp.broadcast_to(source, term.shape)
            case "slice":
                return source[slices(term.options)]
            case "constant":
                return source
            case "checked":
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
        """Compute a term that is no part of a loop."""
        out = self._place(term)
        args = [self._array(arg) for arg in term.args]
        if out.size:
            self.steps += self._calls(term, args, out)

    def _calls(self, term: Term, args: list[Any], out: Any) -> Sequence[Step]:
        dev, means, options = self.dev, self.means, term.options
        x, y = args[0], args[-1]
        match term.fn:
            case "cast":
                return [partial(dev.xp.copyto, out, x, casting="unsafe")]
            case "max" | "min":
                return means.extreme(dev, term.fn, x, options, out)
            case "place":
                parts = [out[slices(cuts)] for cuts in options]
                whole = sum(part.size for part in parts) == out.size
                return [*([] if whole else [partial(out.fill, 0)]), *self._fill(parts, args)]
            case "concat":
                ends = list(accumulate(array.shape[options] for array in args))
                cuts = [slice(*pair) for pair in pairwise([0, *ends])]
                return self._fill([out[(slice(None),) * options + (cut,)] for cut in cuts], args)
            case "matmul":
                return means.matmul(dev, x, y, out)
            case "inverse" | "cholesky":
                return [partial(_factor, dev, self.op, term.fn, x, out)]
            case "offsets":
                return means.offsets(dev, x, out)
            case "segments":
                return means.sequence_of(dev, self.op, options, x, out)
            case "segment_argmax":
                return means.row_of_largest(dev, x, y, out)
            case "argmax":
                return means.first_largest(dev, x, options, out)
            case "rows":
                return means.rows(dev, x, y, out)
        return means.row_sums(dev, x, y, out)

    def _fill(self, parts: Iterable[Any], arrays: Iterable[Any]) -> list[Step]:
        """Return the calls that copy an array into each part of a result."""
        pairs = zip(parts, arrays, strict=True)
        return [step for pair in pairs for step in self.means.copy(self.dev, *pair)]


@lru_cache
def _constant(content: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array that nothing writes: plans share it."""
    return np.frombuffer(content, dtype).reshape(shape)


def _factor(dev: Device, op: str, fn: str, matrices: Any, out: Any) -> None:
    compute = dev.xp.linalg.inv if fn == "inverse" else dev.xp.linalg.cholesky
    dev.xp.copyto(out, factors(dev, op, fn, lambda: compute(matrices)))
