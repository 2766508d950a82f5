"""Time the kernels that can compute a node, on its shapes; results are kept on disk for this processor.

What is timed is the work of a step, on memory that was touched before: by the thread's time on the
processor where a replica has one core, so that what else runs on that core does not count, else by what a
clock shows. Of a node that takes long, so few rows of the batch are computed that a call makes a hundred
million multiply-adds; but not so few that what is no part of the batch (filters) takes most of the memory, for
then time does not follow rows.

The thread's time on the processor is the limit for all questions, too, or on a busy host most would stay
unknown. Compiling does not count: it is done once on a machine, and would be all that a first start does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math as numbers
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...graph.ir.capabilities import ROUNDED, ROUNDED_LAST
from ...graph.lowering.memory import ALIGNMENT
from ...strategies.errors import RowlockError
from ...strategies.garbage import gc_paused
from ...strategies.types import BFLOAT16, VarType, is_float, to_numpy
from ..codegen.native import compiling_s, cpu
from ..device.device import Device
from ..host.arena import Memory, aligned_bytes, shaped
from ..host.disk_cache import disk_cache
from .capabilities import installed
from .registry import bind

_WORK = 1.2e8  # multiply-adds: rows are left out until a call has no more of them
_PER_BYTE = 8  # multiply-adds in the time that a byte takes: of 50 and 6 billion a second
_ASKED, _EACH = 5e8, 3  # what measuring takes: multiply-adds for a question, and calls of a kernel
_MOST_BYTES = 32 << 20  # of a node's operands and results; else fewer rows
# Each kernel is called for a thousandth of a second, but not more often than so; and twice, for the first call
# touches new memory (which was measured to take six times as long); but not where that took many times as long
# as the fastest kernel, and longer than all that only a first call does. Those that then took less than so
# many times as long as the fastest are called again, and of these in turns those that still do: well beyond
# 1 / _WORTH, or a few slow calls decide.
_FIRST_S, _FIRST_CALLS, _HOPELESS, _NEW_S = 0.001, 3, 12.0, 0.05
_NEAR = 2.0, 1.4
_CALLS, _REPEATS_S = 20, 0.015  # at most, of each kernel and for all
_BEGIN = 0.85  # of the limit: later no question is begun, for it is to end within it
_WORTH = 0.85  # a kernel is clearly faster that takes no more of another one's time than this
_FORM = 8  # of what is kept on disk, and of how it is measured

_known: dict[str, dict[str, float]] = {}  # what this process measured or read

# Shape, element type, layout, whether rows are the batch's
Operand = tuple[Sequence[int], int, str, bool]
Slots = Mapping[str, Sequence[Operand | None]]
Clock = Callable[[], float]  # seconds


class Question(NamedTuple):
    """A node as plain data: op, attributes, operands and results by slot, and the kernels to time."""

    op: str
    attrs: Mapping[str, Any]
    inputs: Slots
    outputs: Slots
    kernels: Sequence[str]

    @property
    def operands(self) -> list[Operand]:
        """All operands and results."""
        slots = (*self.inputs.values(), *self.outputs.values())
        return [operand for slot in slots for operand in slot if operand is not None]

    @property
    def rows(self) -> int:
        """How many rows of the batch it has; 1 if they cannot be told."""
        counts = {shape[0] for shape, _, _, varies in self.operands if varies}
        return max(counts.pop() if len(counts) == 1 else 1, 1)

    @property
    def multiply_adds(self) -> float:
        """How many its products have; 0 if it has none."""
        first = {
            slot: numbers.prod(many[0][0])
            for slot, many in {**self.inputs, **self.outputs}.items()
            if many and many[0] is not None
        }
        if "Filter" in first:  # each place of the smaller image meets all taps of its channel
            small = "Input" if "transpose" in self.op else "Output"
            (filters,) = self.inputs["Filter"]
            assert filters is not None
            return first.get(small, first.get(f"{small}@GRAD", 0)) * numbers.prod(filters[0][1:])
        if "Y" not in first:
            return 0
        result = first.get("Out", first.get("Out@GRAD", 0))
        products = sum(slot in first for slot in ("X@GRAD", "Y@GRAD"))
        batch = 1
        if self.op.startswith("matmul"):  # of stacks; one matrix may meet each of a stack
            stacks = [numbers.prod(m[0][:-2]) for slot in "XY" for m in self.inputs[slot] if m]
            batch = max(min(stacks), 1)
        return max(products, 1) * numbers.sqrt(first["X"] * first["Y"] * result / batch)

    @property
    def work(self) -> float:
        """About how long it takes, told as multiply-adds: computed, or while its memory moves."""
        return max(self.multiply_adds, _PER_BYTE * sum(map(_nbytes, self.operands)))

    @property
    def sample(self) -> int:
        """How many rows are computed to time it."""
        rows, products = self.rows, self.multiply_adds
        batch, others = (
            sum(_nbytes(operand) for operand in self.operands if operand[3] == varies)
            for varies in (True, False)
        )
        sample = rows
        if products > _WORK:
            sample = max(int(rows * _WORK / products), rows * others // max(batch, 1))
        if batch + others > _MOST_BYTES:
            sample = min(sample, rows * _MOST_BYTES // (batch + others))
        return min(max(sample, 1), rows)

    @property
    def cost(self) -> float:
        """About how long measuring takes, told as multiply-adds."""
        calls = len(self.kernels) * _EACH
        return _ASKED + calls * self.work * self.sample / self.rows


class Limit:
    """What measuring may take: so many seconds of this thread on the processor, and so many of a clock.

    ``compiled`` are those of the thread that went to compiling, and count for the clock alone.
    """

    def __init__(self, within: float, until: float) -> None:
        self._within, self._ends = within, time.monotonic() + until
        self._began, self._compiled = time.thread_time(), compiling_s()

    @property
    def compiled(self) -> float:
        """Seconds of this thread that went to compiling."""
        return compiling_s() - self._compiled

    @property
    def worked(self) -> float:
        """Seconds of this thread without those of compiling."""
        return time.thread_time() - self._began - self.compiled

    def allows(self, share: float) -> bool:
        """Tell whether less than this share of the thread's seconds is used up, and the clock's are not."""
        return self.worked < share * self._within and time.monotonic() < self._ends


class Timings(NamedTuple):
    """Seconds by kernel for each question, none where time ran out; ``measured`` were not known before.

    ``worked`` are seconds of the thread on the processor, ``compiled`` those that went to compiling.
    """

    seconds: list[dict[str, float]]
    measured: int
    worked: float
    compiled: float


def measure(questions: Sequence[Sequence[Any]], math: str, threads: int, limit: Limit) -> Timings:
    """Time the kernels of each question that is not known, in this order, while the limit allows it.

    ``threads`` is how many a kernel can keep busy. The first question is answered even where that takes all the
    seconds of the thread: so each start knows more than the one before.
    """
    cache, memory = disk_cache(), Memory()
    here = {**installed(), "numpy": np.__version__, "processor": cpu(), "threads": str(threads)}
    answers: list[dict[str, float]] = []
    count = 0
    for question in map(Question._make, questions):
        name = _name(question, math, here)
        if name not in _known:
            stored = cache.read(name)
            if stored is None and limit.allows(_BEGIN):
                allowed = partial(limit.allows, 1.0 if count else numbers.inf)
                seconds = _times(question, math, allowed, memory, _clock(threads))
                if seconds:
                    count += 1
                    stored = cache.write(name, json.dumps(seconds).encode(), first=True)
            if stored is not None:
                _known[name] = json.loads(stored)
        answers.append(_known.get(name, {}))
    return Timings(answers, count, limit.worked, limit.compiled)


def fastest(kernels: Sequence[str], seconds: Mapping[str, float]) -> str:
    """Return the first kernel than which no other is clearly faster.

    So two that take about as long are not told apart by chance. The first of all stays if it was not timed.
    """
    if kernels[0] not in seconds:
        return kernels[0]
    most = min(seconds.values()) / _WORTH
    return next(name for name in kernels if seconds.get(name, numbers.inf) <= most)


def _name(question: Question, math: str, here: Mapping[str, str]) -> str:
    """Return the name under which an answer is kept: it holds for these versions and this processor."""
    text = json.dumps([_FORM, question, math, here], sort_keys=True)
    return f"times-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _clock(threads: int) -> Clock:
    """Return what times kernels: with several threads that share the work, only time that passes will do."""
    return time.thread_time if threads == 1 else time.perf_counter


def _times(
    question: Question, math: str, allowed: Callable[[], bool], memory: Memory, clock: Clock
) -> dict[str, float]:
    """Return the seconds that each kernel takes for the whole batch; nothing if it is not allowed to end."""
    rows, sample = question.rows, question.sample
    trial = _Trial(question, sample, math, memory, clock)
    for name in question.kernels:
        if not allowed():
            return {}
        trial.begin(name)
    return {name: seconds * rows / sample for name, seconds in trial.repeated().items()}


def _nbytes(operand: Operand) -> int:
    return numbers.prod(operand[0]) * _dtype(operand).itemsize


def _dtype(operand: Operand) -> np.dtype:
    """Return the type in which the elements lie in memory."""
    _, number, layout, _ = operand
    return BFLOAT16 if layout in (ROUNDED, ROUNDED_LAST) else to_numpy(VarType(number))


class _Trial:
    """A node on memory of its own, with so many rows of its batch; ``memory`` is for scratch."""

    def __init__(
        self, question: Question, rows: int, math: str, memory: Memory, clock: Clock
    ) -> None:
        self._question, self._math, self._memory, self._clock = question, math, memory, clock
        self._calls: dict[str, Sequence[Callable[[], Any]]] = {}
        self.shortest: dict[str, float] = {}  # call of each kernel, in seconds
        self._inputs, self._outputs = (
            {name: [_array(o, rows, question.rows) for o in slot] for name, slot in slots.items()}
            for slots in (question.inputs, question.outputs)
        )

    def begin(self, kernel: str) -> None:
        """Call a kernel for the first time; not, if it cannot compute this after all."""
        dev, op = Device(math=self._math, memory=self._memory), self._question.op
        with contextlib.suppress(RowlockError, ValueError, MemoryError):
            calls = bind(op, self._inputs, self._outputs, self._question.attrs, dev, kernel)
            began, best = self._clock(), min(self.shortest.values(), default=numbers.inf)
            for number in range(_FIRST_CALLS):
                self._run(kernel, calls)
                hopeless = self.shortest[kernel] > max(_HOPELESS * best, _NEW_S)
                if hopeless or (number and self._clock() - began > _FIRST_S):
                    break
            self._calls[kernel] = calls

    def repeated(self) -> dict[str, float]:
        """Return the seconds of each kernel's shortest call, when it is clear which is to be chosen."""
        began, shortest = self._clock(), self.shortest
        for number in range(_CALLS):
            best = min(shortest.values(), default=0.0)
            most = _NEAR[min(number, 1)] * best
            near = [kernel for kernel in self._calls if shortest[kernel] <= most]
            clear = len(near) < 2 or (number > 0 and shortest[near[0]] == best)
            if clear or self._clock() - began > _REPEATS_S:
                break
            for kernel in near:
                self._run(kernel, self._calls[kernel])
        return shortest

    def _run(self, kernel: str, calls: Sequence[Callable[[], Any]]) -> None:
        with gc_paused():  # after compiling, a search for garbage takes longer than most calls
            began = self._clock()
            for call in calls:
                call()
            seconds = self._clock() - began
        self.shortest[kernel] = min(self.shortest.get(kernel, seconds), seconds)


def _array(operand: Operand | None, rows: int, whole: int) -> Any:
    """Return memory for an operand, with numbers in it, and so many of its ``whole`` rows."""
    if operand is None:
        return None
    shape, _, layout, varies = operand
    shape = (rows, *shape[1:]) if varies and rows < whole else tuple(shape)
    dtype = _dtype(operand)
    count = numbers.prod(shape)
    flat = aligned_bytes(np, max(count * dtype.itemsize, ALIGNMENT))[: count * dtype.itemsize]
    flat = flat.view(dtype)
    flat[...] = np.resize(_SOME, count) if is_float(dtype) else 0
    return shaped(flat, shape, layout)


_SOME = np.random.default_rng(1).random(4099).astype(np.float32)  # no zeros, nothing out of range
