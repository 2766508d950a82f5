"""PlanTemplate: make plans for new sizes without binding them.

Plans of one program on the same memory make the same calls; only numbers differ: addresses, shapes and strides
of arrays, words of compiled loops. Most of these numbers are affine functions of a few sizes. A template learns
the functions from a few plans that were bound (:class:`~.affine.AffineMap`), and evaluates them for other
sizes. Three kinds of nodes are still bound: those whose calls are of another kind for other sizes, those with
numbers that are not affine, and those that read a size outside the known range.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from functools import cached_property
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np

from ..host.numbered import NumberedCall
from ..host.writes import address
from .affine import AffineMap
from .instruction import CALL_BYTES, Instruction, SharedPart, with_parts
from .plan import Plan
from .remake import Buffer, Leaf, Maker, Pool, Unknown, maker_of, read

Call = Callable[[], Any]
_MISSES = 3  # so many more plans in which a node's calls are not those of the first than others
_SIZE = 1 << 32  # numbers above are addresses


class Sized(NamedTuple):
    """The parts of a plan that follow from sizes.

    ``scratch``: bytes of scratch memory that an instruction may use; ``slack``: numbers that are negative where
    values do not fit into their places in memory.
    """

    instructions: Sequence[Instruction]
    scratch: int
    inputs: Sequence[Any]
    fetched: Sequence[Any]
    slack: Sequence[int]


class _Part(NamedTuple):
    """The numbers of one instruction, or of all arrays that a plan is fed or fetches.

    Parts of equal ``form`` differ in ``numbers`` alone. Those of call k end at ``ends[k]``; slack follows them.
    ``form`` is None where the numbers cannot be read.
    """

    form: Hashable
    numbers: list[int]
    ends: list[int]


class Prediction(NamedTuple):
    """The numbers of a plan for some sizes; those of ``parts`` are not known, and must be bound.

    A part is the number of an instruction; the number behind the last stands for all arrays that are fed or
    fetched. ``beyond``: the parts that read a size outside the known range, where their functions may go on.
    """

    values: np.ndarray
    parts: Set[int]
    beyond: Sequence[int]


class PlanTemplate:
    """Learns from bound plans how they differ, and makes others.

    ``sizes`` are those of the first ``plan``; ``read`` has the sizes from which each part follows, as bits.
    Arrays that differ lie in ``buffers``. Plans of the template share the instructions of the first one:
    compiled calls read their numbers from ``words``, other calls are made again. Instructions ``apart`` are
    bound anew for other sizes: the given ones, and those whose numbers cannot be predicted. ``elsewhere``: a
    template of the program on other memory, whose functions are taken over if its calls are alike.
    """

    def __init__(
        self,
        sizes: np.ndarray,
        read: Sequence[int],
        plan: Sized,
        buffers: Sequence[np.ndarray],
        apart: Collection[int] = (),
        elsewhere: PlanTemplate | None = None,
    ) -> None:
        self._plan, self._buffers = plan, [(address(b), b.nbytes, b) for b in buffers]
        self._read, self.arrays = read, len(plan.instructions)
        self._parts = _parts(plan, self._buffers)
        counts = [len(part.numbers) for part in self._parts]
        self._begins = [0, *np.cumsum(counts).tolist()]
        self._owners = np.repeat(np.arange(len(counts)), counts)
        self._first = np.array([n for part in self._parts for n in part.numbers], np.int64)
        self.words = self._first.copy()
        self._map = AffineMap(sizes, self._first)
        self._learned = False
        self._matches = [0] * len(counts)
        self._misses = [0] * len(counts)
        self.apart = {k for k, part in enumerate(self._parts) if part.form is None or k in apart}
        if elsewhere is not None and elsewhere._learned and self._is_like(elsewhere):
            self._map, self._learned = elsewhere._map.moved(sizes, self._first), True
            self.apart |= elsewhere.apart
        self._functions = self._map.functions
        self._slack = self._slack_of_all()
        self._instructions = tuple([self._sharing(k) for k in range(len(plan.instructions))])
        self._calls = [call for instruction in self._instructions for call in instruction.calls]
        self._starts = [
            0,
            *accumulate(len(instruction.calls) for instruction in self._instructions),
        ]
        self._variable: _Variable | None = None  # since it learned last what varies

    def learn(self, sizes: np.ndarray, plan: Sized) -> bool:
        """Learn from another plan; return whether this or an earlier one makes the calls of the first."""
        numbers, misses, apart = self._first.copy(), set[int](), len(self.apart)
        for k, part in enumerate(_parts(plan, self._buffers)):
            if k in self.apart:
                continue
            if part.form == self._parts[k].form:
                numbers[self._begins[k] : self._begins[k + 1]] = part.numbers
                self._matches[k] += 1
                continue
            misses.add(k)
            self._misses[k] += 1
            if self._map.covers(sizes) or self._misses[k] >= self._matches[k] + _MISSES:
                self.apart.add(k)
        if misses <= self.apart:
            self.apart.update(self._owners[self._map.learn(sizes, numbers)].tolist())
            self._learned = True
        functions = self._map.functions
        if len(self.apart) > apart or not np.array_equal(functions, self._functions):
            self._functions, self._variable = functions, None
            self._slack = self._slack_of_all()
        return self._learned

    def _slack_of_all(self) -> np.ndarray:
        """Return the places of the slack that varies: it must not be negative."""
        slack = np.zeros(len(self._first), bool)
        ends = zip(self._parts, self._begins, self._begins[1:], strict=False)
        for k, (part, begin, end) in enumerate(ends):
            if k not in self.apart:
                slack[begin + (part.ends or [0])[-1] : end] = True
        return (slack & self._functions[1:].any(0)).nonzero()[0]

    def _is_like(self, other: PlanTemplate) -> bool:
        """Tell whether numbers of another template are those of the same calls."""
        both = zip(self._parts, other._parts, strict=True)
        pairs = ((a, b) for k, (a, b) in enumerate(both) if k not in other.apart)
        return len(self._first) == len(other._first) and all(a.form == b.form for a, b in pairs)

    def predict(self, sizes: bytes) -> Prediction | None:
        """Return the numbers of a plan for these sizes (int64).

        None: they are unknown, or its values do not fit into memory.
        """
        prediction = self._map.at(sizes)
        if prediction is None:
            return None
        values, beyond = prediction
        if min(values[self._slack].tolist(), default=0) < 0:
            return None
        if not beyond:
            return Prediction(values, self.apart, ())
        parts = [k for k, read in enumerate(self._read) if read & beyond and k not in self.apart]
        return Prediction(values, self.apart.union(parts), parts)

    def widen(self, sizes: np.ndarray, prediction: Prediction, plan: Sized) -> None:
        """Widen the known range by a ``plan`` of bound parts, but for sizes that were predicted wrongly."""
        others = 0
        for k, part in zip(prediction.beyond, _parts(plan, self._buffers), strict=False):
            numbers = prediction.values[self._begins[k] : self._begins[k + 1]].tolist()
            if part.form != self._parts[k].form or part.numbers != numbers:
                others |= self._read[k]
        self._map.widen(sizes, but=others)

    @cached_property
    def nbytes(self) -> int:
        """The bytes that its plans have in common."""
        return sum(instruction.nbytes for instruction in self._instructions)

    @cached_property
    def parts(self) -> list[SharedPart]:
        """What its plans share: the template, and parts that its instructions share with others."""
        return [self, *with_parts(self._instructions)[len(self._instructions) :]]

    def plan(
        self,
        values: np.ndarray,
        bound: Mapping[int, Sequence[Instruction]],
        arrays: tuple[Sequence[Any], Sequence[Any]] | None = None,
        **others: Any,
    ) -> SizedPlan:
        """Return a plan with these numbers.

        ``bound`` has new instructions, by the number of the one they stand for; ``arrays``: new inputs and
        fetched arrays; ``others``: further arguments of :class:`Plan`.
        """
        variable = self._variable = self._variable or self._variable_now()
        numbers = values[variable.numbers].tolist()
        pool = [whole[: numbers[k]] for whole, k in variable.cuts]
        pool += variable.constants
        for place, make in variable.leaves:
            pool[place] = make(numbers)
        calls, instructions, parts = self._calls, self._instructions, self.parts
        if variable.calls or bound:
            calls = calls.copy()
        for place, make in variable.calls:
            calls[place] = make(pool)
        for k in sorted(bound, reverse=True) if bound else ():
            instructions = (*instructions[:k], *bound[k], *instructions[k + 1 :])
            calls[self._starts[k] : self._starts[k + 1]] = [
                c for instruction in bound[k] for c in instruction.calls
            ]
            parts = [*parts, *with_parts(bound[k])]
        inputs, fetched = arrays or variable.arrays(pool)
        plan = SizedPlan(instructions, inputs, fetched, calls=calls, parts=parts, **others)
        plan.words, plan.values = self.words, values
        plan.nbytes = values.nbytes + len(variable.calls) * CALL_BYTES
        return plan

    def _variable_now(self) -> _Variable:
        """Return the makers of calls and arrays that do not read their numbers from ``words``."""
        pool, makers = Pool(self._functions), []
        for k, (instruction, part) in enumerate(zip(self._instructions, self._parts, strict=False)):
            if k in self.apart:
                continue
            for number, (call, at) in enumerate(
                zip(instruction.calls, [0, *part.ends], strict=False)
            ):
                pool.at = self._begins[k] + at
                if not isinstance(call, NumberedCall):
                    make = maker_of(call, pool, self._buffers)
                    makers += [] if make is None else [(self._starts[k] + number, make)]
        pool.at = self._begins[-2]
        known = tuple(self._plan.inputs), tuple(self._plan.fetched)
        apart = self.arrays in self.apart
        arrays = None if apart else maker_of(known, pool, self._buffers)
        numbers = np.array(pool.picked, np.int64)
        return _Variable(
            numbers,
            pool.cuts,
            pool.constants[::-1],
            pool.leaves,
            makers,
            arrays or (lambda items: known),
        )

    def _sharing(self, k: int) -> Instruction:
        """Return an instruction of the first plan, whose compiled calls read their numbers from ``words``."""
        instruction, part, begin = self._plan.instructions[k], self._parts[k], self._begins[k]
        if part.form is None:
            return instruction
        ends = zip(instruction.calls, [0, *part.ends], part.ends, strict=False)
        calls = [
            call.reading(self.words[begin + at : begin + end])
            if isinstance(call, NumberedCall)
            else call
            for call, at, end in ends
        ]
        return instruction.with_calls(calls)


class SizedPlan(Plan):
    """A plan whose compiled calls read their numbers from ``words``, into which it puts its ``values``."""

    words: np.ndarray
    values: np.ndarray

    @property
    def instructions(self) -> Sequence[Instruction]:
        """Its instructions, in order."""
        calls = iter(self._calls)
        return [
            instruction.with_calls(list(islice(calls, len(instruction.calls))))
            for instruction in self._instructions
        ]

    def run(self, feeds: Sequence[np.ndarray], *, timed: bool = False) -> None:
        """Run one step (see :class:`Plan`)."""
        self.words[:] = self.values
        super().run(feeds, timed=timed)

    def apply(self) -> None:
        """Make the writes that follow the vote (see :class:`Plan`)."""
        self.words[:] = self.values
        super().apply()


class _Variable(NamedTuple):
    """Makers of ``calls``, by place, and of ``arrays``, from a pool of objects.

    The pool has ``cuts`` (the first rows of arrays: each array, and which of the picked ``numbers`` counts its
    rows), then ``constants``; ``leaves`` make the constants at some places anew.
    """

    numbers: np.ndarray
    cuts: Sequence[tuple[np.ndarray, int]]
    constants: Sequence[Any]
    leaves: Sequence[tuple[int, Leaf]]
    calls: Sequence[tuple[int, Maker]]
    arrays: Maker


def _parts(plan: Sized, buffers: Sequence[Buffer]) -> list[_Part]:
    """Return the part of each instruction of a plan, and behind them that of its arrays."""
    arrays = tuple(plan.inputs), tuple(plan.fetched)
    parts = [
        _part(instruction.calls, [plan.scratch - instruction.scratch], buffers)
        for instruction in plan.instructions
    ]
    return [*parts, _part([arrays], plan.slack, buffers)]


def _part(calls: Sequence[Any], slack: Sequence[int], buffers: Sequence[Buffer]) -> _Part:
    forms: list[Hashable] = []
    numbers: list[int] = []
    ends: list[int] = []
    try:
        for call in calls:
            forms.append(_read_call(call, numbers, buffers))
            ends.append(len(numbers))
    except Unknown:
        return _Part(None, [], [])
    return _Part(tuple(forms), [*numbers, *slack], ends)


def _read_call(call: Any, numbers: list[int], buffers: Sequence[Buffer]) -> Hashable:
    if not isinstance(call, NumberedCall):
        return read(call, numbers, buffers)
    own = call.numbers
    if own is None:
        raise Unknown
    numbers += own
    # Where an array of an instruction's own lies follows from no sizes, even if some plans look like it.
    places = [n for n in own if n > _SIZE]
    return call.form, *[n for n in places if not any(b <= n <= b + s for b, s, _ in buffers)]
