"""AffineMap: fit affine functions of sizes exactly to known points, and evaluate them at others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

_HALF = 1 << 63  # of the range of int64
_CONFIRMATIONS = 3  # points that were predicted rightly before any prediction is used


class AffineMap:
    """Integer functions of integer sizes, learned exactly from points at which they were computed.

    Differences of known points are the steps of a lattice. At its points affine functions are known exactly,
    without division; at others nothing is predicted: where all known sizes are multiples of 16, nothing is said
    of 17. A product of two sizes looks affine as long as one of them stays: steps are combined, or repeated,
    only as they were at a point where the prediction was confirmed. Outside the known range of a size its
    functions may be others: :meth:`at` returns the sizes that are beyond.
    """

    def __init__(self, sizes: np.ndarray, values: np.ndarray) -> None:
        self._sizes, self._values = sizes, values
        self._least, self._most = sizes, sizes
        # In echelon form: the first size that a step changes, the step, and how it changes the values
        self._steps: list[tuple[int, np.ndarray, np.ndarray]] = []
        # By step, as bits: the steps with which it was confirmed, and itself where it was repeated
        self._confirmed: list[int] = []
        self._known = {sizes.tobytes()}  # points, until the functions are relied on
        self._confirmations = 0

    @cached_property
    def _solver(self) -> _Solver:
        """The functions as they are known now."""
        firsts = [first for first, _, _ in self._steps]
        whole = np.stack([np.concatenate(both) for _, *both in self._steps])
        steps = whole[:, : len(self._sizes)]
        ranges = np.stack([self._least, self._most])
        # A size that is a multiple of another one is in its range where that is.
        both = np.concatenate([steps, ranges - self._sizes])
        both //= np.maximum(np.gcd.reduce(both, 0), 1)
        _, which, groups = np.unique(both, axis=1, return_index=True, return_inverse=True)
        alike = [0] * len(which)
        for k, group in enumerate(groups.ravel().tolist()):
            alike[group] |= 1 << k
        least, most = ranges[:, which].tolist()
        confirmed = all(others == (1 << len(steps)) - 1 for others in self._confirmed)
        if confirmed:  # then others do as well: such that each changes few of the firsts
            for k in reversed(range(len(steps))):
                whole[:k] -= np.outer(whole[:k, firsts[k]] // whole[k, firsts[k]], whole[k])
        pivots = steps[:, firsts].tolist()
        varying = np.flatnonzero(np.any(whole, 0))
        begin = np.concatenate([self._sizes, self._values])
        return _Solver(
            list(zip(firsts, self._sizes[firsts].tolist(), strict=True)),
            [
                (row[k], [(j, row[j]) for j in range(k + 1, len(row)) if row[j]])
                for k, row in enumerate(pivots)
            ],
            list(zip(which.tolist(), least, most, alike, strict=True)),
            begin,
            varying,
            np.concatenate([begin[None], whole])[:, varying],
            confirmed,
        )

    @property
    def functions(self) -> np.ndarray:
        """Each value at one point, and its change by each step: int64 [1 + steps, values]."""
        return np.stack([self._values, *(change for _, _, change in self._steps)])

    def learn(self, sizes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Learn from a point; return the numbers of the values that are not affine functions."""
        if self._confirmations < _CONFIRMATIONS:
            if sizes.tobytes() in self._known:
                return np.zeros(0, np.int64)
            self._known.add(sizes.tobytes())
        self.__dict__.pop("_solver", None)
        self._least, self._most = np.minimum(self._least, sizes), np.maximum(self._most, sizes)
        step, change = sizes - self._sizes, values - self._values
        counts = [0] * len(self._steps)
        for k, (first, known, known_change) in enumerate(self._steps):
            while step[first]:  # Euclid's algorithm
                counts[k] = times = int(step[first] // known[first])
                step, change = step - times * known, change - times * known_change
                if step[first]:
                    step, change, known, known_change = known, known_change, step, change
            if known is not self._steps[k][1]:
                counts[k], self._confirmed[k] = 0, 0
                self._confirmed = [others & ~(1 << k) for others in self._confirmed]
            self._steps[k] = first, known, known_change
        (rest,) = step.nonzero()
        if rest.size:
            self._steps.append((int(rest[0]), step, change))
            self._confirmed.append(0)
            return rest[:0]
        self._confirmations += 1
        for k, others in _combined(counts, least=2):
            self._confirmed[k] |= others
        return change.nonzero()[0]

    def moved(self, sizes: np.ndarray, values: np.ndarray) -> AffineMap:
        """Return functions that differ from these by constants, given one point of them."""
        other = AffineMap(sizes, values)
        other._least, other._most = np.minimum(self._least, sizes), np.maximum(self._most, sizes)
        other._steps, other._confirmed = list(self._steps), list(self._confirmed)
        return other

    def covers(self, sizes: np.ndarray) -> bool:
        """Tell whether a point lies between those that are known."""
        return bool((self._least <= sizes).all() and (sizes <= self._most).all())

    def widen(self, sizes: np.ndarray, but: int = 0) -> None:
        """Widen the known range up to this point, ``but`` for some sizes (numbers, as bits)."""
        solver, point = self._solver, sizes.tolist()
        for number, (k, least, most, alike) in enumerate(solver.ranges):
            if alike & but:
                but |= alike
            else:
                solver.ranges[number] = k, min(least, point[k]), max(most, point[k]), alike
        wider = np.array([not but >> k & 1 for k in range(len(point))], bool)
        self._least = np.where(wider, np.minimum(self._least, sizes), self._least)
        self._most = np.where(wider, np.maximum(self._most, sizes), self._most)

    def at(self, sizes: bytes) -> tuple[np.ndarray, int] | None:
        """Return the values at a point, a new array, and the sizes outside the known range (numbers, as bits).

        ``sizes`` are those of an int64 array, whose numbers are looked at one by one: few tell the others.

        None: the point is not on the lattice, or combines steps that were not confirmed together.
        """
        if self._confirmations < _CONFIRMATIONS:
            return None
        solver, point, beyond = self._solver, memoryview(sizes).cast("q"), 0
        for k, least, most, alike in solver.ranges:
            if not least <= point[k] <= most:
                beyond |= alike
        left, counts = [point[k] - begin for k, begin in solver.firsts], [1]
        for size, (pivot, others) in zip(left, solver.pivots, strict=True):
            if not -_HALF <= size < _HALF:  # it overflows: the result is right modulo 2^64
                size = (size + _HALF) % (2 * _HALF) - _HALF
            counts.append(count := size // pivot)  # it comes to other sizes where there is a rest
            for k, change in others:
                left[k] -= count * change
        if not solver.confirmed and any(
            others & ~self._confirmed[k] for k, others in _combined(counts[1:])
        ):
            return None
        known = solver.begin.copy()
        known[solver.varying] = np.array(counts, np.int64).dot(solver.changes)
        if known[: len(point)].tobytes() != sizes:
            return None
        return known[len(point) :], beyond


def _combined(counts: Sequence[int], least: int = -1) -> Iterator[tuple[int, int]]:
    """Return the steps that a point takes, each with those that it takes as well, as bits.

    A step is among these itself if it is repeated: not taken once, and at ``least`` so often, in either way.
    """
    together = sum(1 << k for k, count in enumerate(counts) if count)
    for k, count in enumerate(counts):
        if count:
            repeated = count != 1 and abs(count) >= least
            yield k, together if repeated else together & ~(1 << k)


class _Solver(NamedTuple):
    """The functions of an :class:`AffineMap`, in the form in which they are evaluated.

    ``firsts``: the first size that each step changes, and what it is at one point; ``pivots``, by step, how it
    changes that, and those of later steps. ``ranges``: numbers of sizes, the least and the most of each, and
    the sizes that are in their ranges where it is, as bits.
    ``begin`` are the sizes of that point and, behind them, its values; those ``varying`` differ elsewhere:
    ``changes`` has them there, and what each step changes. ``confirmed``: steps may be combined, and repeated,
    in any way.
    """

    firsts: list[tuple[int, int]]
    pivots: list[tuple[int, list[tuple[int, int]]]]
    ranges: list[tuple[int, int, int, int]]
    begin: np.ndarray
    varying: np.ndarray
    changes: np.ndarray
    confirmed: bool
