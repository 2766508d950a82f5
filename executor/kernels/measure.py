"""Time the kernels that can compute a node, on its shapes; results are kept on disk for this processor.

What is timed is the work of a step, on memory that was touched before: by the processor's time where a replica
has one core, so that what else runs on that core does not count, else by what a clock shows. Of a node that
takes long, so few rows of the batch are computed that one call takes about a hundredth of a second; but not so
few that what is no part of the batch (filters) takes most of the memory, for then time does not follow rows.
"""

from __future__ import annotations

import hashlib
import json
import math as numbers
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph.lowering.memory import ALIGNMENT
from ...strategies.errors import RowlockError
from ...strategies.types import VarType, to_numpy
from ..codegen.native import cpu
from ..device.device import Device
from ..host.arena import Memory, aligned_bytes, shaped
from ..host.disk_cache import disk_cache
from .capabilities import installed
from .registry import bind

_CALL_S = 0.015  # rows are left out until a call takes no longer
_PROBE, _PROBED = 16, 3e7  # of more work than this, a sixteenth of the rows is timed before
# A time is the shortest of so many calls, or of those in so many seconds.
_CALLS, _REPEATS_S = 5, 0.01
# So many times slower in its first call, or in two, a kernel is not timed further.
_HOPELESS = 4.0, 1.5
_BEGIN = 0.85  # of the time: later no kernel is begun, for it is to end in time
_MOST_BYTES = 32 << 20  # of a node's operands and results; else fewer rows
_WORTH = 0.85  # a kernel is clearly faster that takes no more of another one's time than this
_FORM = 4  # of what is kept on disk, and of how it is measured

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
    def work(self) -> float:
        """About how much there is to compute: exact for products of matrices, up to a factor."""
        read = [operand for slot in self.inputs.values() for operand in slot if operand is not None]
        sizes = [numbers.prod(shape) for shape, *_ in (read if len(read) > 2 else self.operands)]
        return numbers.sqrt(numbers.prod(sizes[:3]))


def measure(
    questions: Sequence[Sequence[Any]], math: str, within: float, threads: int
) -> tuple[list[dict[str, float]], int]:
    """Return the seconds that each kernel takes, by question, and how many questions were measured now.

    Those with the most work come first. ``threads`` is how many a kernel can keep busy. When ``within`` seconds
    are over, the rest has no answer.
    """
    ends, cache = time.monotonic() + _BEGIN * within, disk_cache()
    asked = [Question(*question) for question in questions]
    answers: list[dict[str, float]] = [{} for _ in asked]
    here = {**installed(), "numpy": np.__version__, "processor": cpu(), "threads": str(threads)}
    count, memory = 0, Memory()
    for i in sorted(range(len(asked)), key=lambda i: -asked[i].work):
        name = _name(asked[i], math, here)
        if name not in _known:
            stored = cache.read(name)
            if stored is None:
                seconds = _times(asked[i], math, ends, memory, _clock(threads))
                if not seconds:
                    continue
                count += 1
                stored = cache.write(name, json.dumps(seconds).encode(), first=True)
            _known[name] = json.loads(stored)
        answers[i] = _known[name]
    return answers, count


def fastest(kernels: Sequence[str], seconds: Mapping[str, float]) -> str:
    """Return the fastest kernel: the first of them if no other is clearly faster, or if it was not timed."""
    rule = kernels[0]
    best = min(seconds, key=lambda name: seconds[name], default=rule)
    return best if rule in seconds and seconds[best] <= _WORTH * seconds[rule] else rule


def _name(question: Question, math: str, here: Mapping[str, str]) -> str:
    """Return the name under which an answer is kept: it holds for these versions and this processor."""
    text = json.dumps([_FORM, question, math, here], sort_keys=True)
    return f"times-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _clock(threads: int) -> Clock:
    """Return what times kernels: with several threads that share the work, only time that passes will do."""
    return time.process_time if threads == 1 else time.perf_counter


def _times(
    question: Question, math: str, ends: float, memory: Memory, clock: Clock
) -> dict[str, float]:
    """Return the seconds that each kernel takes for the whole batch; nothing if time runs out."""
    rows = most = question.rows
    batch, others = (
        sum(_nbytes(operand) for operand in question.operands if operand[3] == varies)
        for varies in (True, False)
    )
    if batch + others > _MOST_BYTES:
        most = max(rows * _MOST_BYTES // (batch + others), 1)
    sample = min(most, max(most // _PROBE, rows * others // max(batch, 1), 1))
    if question.work <= _PROBED:
        sample = most
    elif sample < most:
        probe = _Trial(question, sample, math, memory, clock).shortest(question.kernels[0]) or 0.0
        sample = max(sample, min(most, int(sample * _CALL_S / max(probe, 1e-9))))
    trial = _Trial(question, sample, math, memory, clock)
    times: dict[str, float] = {}
    for name in question.kernels:
        if time.monotonic() > ends:
            return {}
        seconds = trial.shortest(name, min(times.values(), default=numbers.inf))
        if seconds is not None:
            times[name] = seconds
    return {name: seconds * rows / sample for name, seconds in times.items()}


def _nbytes(operand: Operand) -> int:
    return numbers.prod(operand[0]) * int(to_numpy(VarType(operand[1])).itemsize)


class _Trial:
    """A node on memory of its own, with so many rows of its batch; ``memory`` is for scratch."""

    def __init__(
        self, question: Question, rows: int, math: str, memory: Memory, clock: Clock
    ) -> None:
        self._question, self._math, self._memory, self._clock = question, math, memory, clock
        self._inputs, self._outputs = (
            {name: [_array(o, rows, question.rows) for o in slot] for name, slot in slots.items()}
            for slots in (question.inputs, question.outputs)
        )

    def shortest(self, kernel: str, best: float = numbers.inf) -> float | None:
        """Return the seconds of the shortest call; None if the kernel cannot compute this after all.

        ``best``: the seconds of another kernel. One that takes far longer is not called again and again.
        """
        dev, op = Device(math=self._math, memory=self._memory), self._question.op
        shortest, spent = numbers.inf, 0.0
        try:
            calls = bind(op, self._inputs, self._outputs, self._question.attrs, dev, kernel)
            for number, seconds in enumerate(_timed(calls, self._clock)):
                shortest, spent = min(shortest, seconds), spent + seconds
                hopeless = shortest > _HOPELESS[min(number, 1)] * best
                if number + 1 >= _CALLS or spent > _REPEATS_S or hopeless:
                    return shortest
        except (RowlockError, ValueError, MemoryError):
            pass
        return None


def _timed(calls: Sequence[Callable[[], Any]], clock: Clock) -> Iterator[float]:
    """Yield the seconds of one run of the calls after the other."""
    while True:
        began = clock()
        for call in calls:
            call()
        yield clock() - began


def _array(operand: Operand | None, rows: int, whole: int) -> Any:
    """Return memory for an operand, with numbers in it, and so many of its ``whole`` rows."""
    if operand is None:
        return None
    shape, number, layout, varies = operand
    shape = (rows, *shape[1:]) if varies and rows < whole else tuple(shape)
    dtype = to_numpy(VarType(number))
    count = numbers.prod(shape)
    flat = aligned_bytes(np, max(count * dtype.itemsize, ALIGNMENT))[: count * dtype.itemsize]
    flat = flat.view(dtype)
    flat[...] = np.resize(_SOME, count) if dtype.kind == "f" else 0
    return shaped(flat, shape, layout)


_SOME = np.random.default_rng(1).random(4099).astype(np.float32)  # no zeros, nothing out of range
