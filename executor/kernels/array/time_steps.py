"""Sequences step by step: rows of one step of all sequences that last so long lie behind each other.

Sequences stand longest first, so those of a step are the first of those of the step before: its work
is one product for all of them, which shrinks as sequences end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ....graph.ops.operands import Array
from ....strategies.errors import SequenceError
from ...device.device import Device
from ...host.numbered import Fields


class TimeSteps:
    """The order of rows by time. N rows lie in sequences; B sequences; T steps.

    ``rows`` [N] are the sources of rows by time, ``sequence`` [N] the sequences that they belong to, ``before``
    the places by time of what precedes each row that is no first one. ``order`` [B] are the sequences, longest
    first, ``filled`` those of them that have rows, and ``final`` the places of their last rows. These belong to
    the device; ``spans`` are where each step begins and ends.
    """

    def __init__(self, xp: Any, begins: Any, lengths: Any, stride: int, is_reverse: bool) -> None:
        self._order = order = np.argsort(-lengths, kind="stable")
        begins, self._lengths = begins[order], lengths[order]
        step = np.arange(lengths.max(initial=0))[:, None]
        inside = step < self._lengths
        last = self._lengths - 1 - step if is_reverse else step
        self._counts = inside.sum(1)
        self._ends, self._inside = self._counts.cumsum(), inside
        self.spans: list[tuple[int, int]] = list(pairwise([0, *self._ends.tolist()]))
        self._xp, self.order = xp, xp.asarray(order)
        self.rows = xp.asarray((begins + last * stride)[inside])
        self.filled = self.order[: self.spans[0][1] if self.spans else 0]

    @property
    def nbytes(self) -> int:
        """What it takes once all is computed."""
        return int(4 * self.rows.nbytes + self._inside.nbytes)

    @cached_property
    def _rank(self) -> Any:
        """The place in ``order`` of the sequence of each row, on the host."""
        return self._inside.nonzero()[1]

    @cached_property
    def before(self) -> Any:
        first, counts = len(self.filled), self._counts
        starts = self._ends - counts
        return self._xp.asarray(np.repeat(starts[:-1], counts[1:]) + self._rank[first:])

    @cached_property
    def sequence(self) -> Any:
        return self._xp.asarray(self._order[self._rank])

    @cached_property
    def final(self) -> Any:
        filled = len(self.filled)
        starts = self._ends - self._counts
        return self._xp.asarray(starts[self._lengths[:filled] - 1] + np.arange(filled))


def on_host(array: Any) -> Any:
    """Return an array on the host."""
    return array if isinstance(array, np.ndarray) else array.get()


def by_offsets(
    dev: Device, op: str, slot: str, offsets: Array, rows: int, is_reverse: bool = False
) -> Callable[[], TimeSteps]:
    """Return what tells the order of rows that offsets cut, when a step runs.

    Equal ones are sorted once, of whichever instructions: backwards they are those of the way forwards.
    """
    xp, known = dev.xp, dev.memo

    def steps_now() -> TimeSteps:
        ends = on_host(offsets)
        if ends[-1] != rows:
            raise SequenceError(
                f"{op}: the sequences of {slot} end at row {ends[-1]}, and it has {rows} rows"
            )
        key = xp, is_reverse, ends.tobytes()
        steps: TimeSteps | None = known.get(key)
        if steps is None:
            steps = TimeSteps(xp, ends[:-1], np.diff(ends), 1, is_reverse)
            known.keep(key, steps, steps.nbytes)
        return steps

    return steps_now


def gather(xp: Any, source: Array, rows: Array, out: Array) -> None:
    """Write the rows of an array that numbers name."""
    if xp is np:
        np.take(source, rows, 0, out, mode="clip")  # "raise" goes through a copy
    else:
        out[...] = source[rows]


class Factor(Fields):
    """A matrix [K, M] that up to ``rows`` rows are multiplied by, step after step of a run.

    ``source`` returns the matrix as it is now: a view of any strides.
    """

    def __init__(
        self,
        dev: Device,
        source: Callable[[], Array],
        sizes: tuple[int, int],
        rows: int,
        dtype: Any,
    ) -> None:
        self.xp, self._source = dev.xp, source
        self.matrix = dev.scratch(sizes, dtype)
        self.result = dev.scratch((rows, sizes[1]), dtype)

    def renew(self) -> None:
        """Take the matrix as it is now: a run begins."""
        self.xp.copyto(self.matrix, self._source())

    def __call__(self, left: Array) -> Array:
        """Return ``left`` times the matrix, in memory that the next call overwrites."""
        out = self.result[: len(left)]
        self.xp.matmul(left, self.matrix, out=out)
        return out


Factors = Callable[[Device, Callable[[], Array], tuple[int, int], int, Any], Factor]


class Means(NamedTuple):
    """A library's products with one matrix, and its steps of cells."""

    factors: Factors
    cells: Callable[..., Callable[..., None]]  # of what :class:`CellSteps` is made of

    def factor(
        self,
        dev: Device,
        source: Callable[[], Array],
        sizes: tuple[int, int],
        rows: int,
        dtype: Any,
        turned: bool,
    ) -> Factor:
        """Return a matrix to multiply by (see :class:`Factor`), or its transpose."""
        if not turned:
            return self.factors(dev, source, sizes, rows, dtype)
        return self.factors(dev, lambda: source().T, sizes[::-1], rows, dtype)
