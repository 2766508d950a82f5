"""Sequences step by step: rows of one step of all sequences that last so long lie behind each other.

Sequences stand longest first, so those of a step are the first of those of the step before: its work
is one product for all of them, which shrinks as sequences end.
"""

from __future__ import annotations

from collections.abc import Callable
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
        order = np.argsort(-lengths, kind="stable")
        begins, lengths = begins[order], lengths[order]
        step = np.arange(lengths.max(initial=0))[:, None]
        inside = step < lengths
        last = lengths - 1 - step if is_reverse else step
        counts = inside.sum(1)
        starts = np.concatenate([[0], np.cumsum(counts)])
        rank = np.broadcast_to(np.arange(len(order)), inside.shape)
        self.spans: list[tuple[int, int]] = list(pairwise(starts.tolist()))
        self.rows = xp.asarray((begins + last * stride)[inside])
        self.order = xp.asarray(order)
        self.before = xp.asarray(
            (np.concatenate([[0], starts[:-2]])[:, None] + rank)[1:][inside[1:]]
        )
        self.sequence = xp.asarray(order[rank[inside]])
        filled = int(counts[0]) if len(counts) else 0
        self.filled = self.order[:filled]
        self.final = xp.asarray(starts[lengths[:filled] - 1] + np.arange(filled))


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
            steps = known[key] = TimeSteps(xp, ends[:-1], np.diff(ends), 1, is_reverse)
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
