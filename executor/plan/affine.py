"""Functions of sizes that are known at some points, and follow exactly at others."""

from __future__ import annotations

from functools import cached_property

import numpy as np

_CONFIRMATIONS = 3  # points at which a function was what those before told, until it is relied on


class AffineMap:
    """Integer functions of integer sizes, learned from points at which they were computed.

    Of a point that is an integer combination of known ones an affine function is known without any division.
    No more than that is relied on: points between multiples of something, of which alone points are known,
    are none of these combinations, and neither is anything beyond the least and the largest of each size.
    """

    def __init__(self, sizes: np.ndarray, values: np.ndarray) -> None:
        self._sizes, self._values = sizes, values
        self._least, self._most = sizes, sizes
        # In echelon form: the first size that a step changes, the step, and what changes of the values
        self._steps: list[tuple[int, np.ndarray, np.ndarray]] = []
        self._known = {sizes.tobytes()}  # points, until the functions are relied on
        self._confirmations = 0

    @cached_property
    def _matrices(self) -> tuple[list[int], np.ndarray, np.ndarray, np.ndarray]:
        """The first size of each step, the steps at these sizes, the steps, and the changes of the values."""
        firsts = [first for first, _, _ in self._steps]
        steps = np.array([step for _, step, _ in self._steps]).reshape(len(firsts), -1)
        changes = np.array([change for _, _, change in self._steps]).reshape(len(firsts), -1)
        return firsts, steps[:, firsts], steps, changes

    @property
    def varying(self) -> np.ndarray:
        """Which values are other ones at other points."""
        changes = [change != 0 for _, _, change in self._steps]
        return np.any([np.zeros(len(self._values), bool), *changes], axis=0)

    def learn(self, sizes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Take a point into account; return the numbers of the values that are no affine functions."""
        if self._confirmations < _CONFIRMATIONS:
            if sizes.tobytes() in self._known:
                return np.zeros(0, np.int64)
            self._known.add(sizes.tobytes())
        self.__dict__.pop("_matrices", None)
        self._least, self._most = np.minimum(self._least, sizes), np.maximum(self._most, sizes)
        step, change = sizes - self._sizes, values - self._values
        for k, (first, known, known_change) in enumerate(self._steps):
            while step[first]:  # Euclid's algorithm
                times = step[first] // known[first]
                step, change = step - times * known, change - times * known_change
                if step[first]:
                    step, change, known, known_change = known, known_change, step, change
            self._steps[k] = first, known, known_change
        (rest,) = step.nonzero()
        if rest.size:
            self._steps.append((int(rest[0]), step, change))
            return rest[:0]
        self._confirmations += 1
        return change.nonzero()[0]

    def moved(self, sizes: np.ndarray, values: np.ndarray) -> AffineMap:
        """Return what was learned of functions that differ from these by constants, given one point of them."""
        other = AffineMap(sizes, values)
        other._least, other._most = np.minimum(self._least, sizes), np.maximum(self._most, sizes)
        other._steps = list(self._steps)
        return other

    def covers(self, sizes: np.ndarray) -> bool:
        """Tell whether a point lies between those that are known."""
        return bool((self._least <= sizes).all() and (sizes <= self._most).all())

    def at(self, sizes: np.ndarray) -> np.ndarray | None:
        """Return the values at a point, a new array; None where they do not follow from those known."""
        if self._confirmations < _CONFIRMATIONS or not self.covers(sizes):
            return None
        if not self._steps:
            return self._values.copy() if (sizes == self._sizes).all() else None
        firsts, pivots, steps, changes = self._matrices
        step = sizes - self._sizes
        left, counts = step[firsts], np.zeros(len(firsts), np.int64)
        for k, pivot in enumerate(pivots):
            count, rest = divmod(int(left[k]), int(pivot[k]))
            if rest:
                return None
            if count:  # numbers of many sizes overflow on the way, and come back
                left, counts[k] = left - count * pivot, count
        return None if (counts @ steps != step).any() else self._values + counts @ changes
