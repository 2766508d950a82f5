"""Remember what a function of operands returned last: shapes and kernels of an op ask it for the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from .operands import Operands

R = TypeVar("R")


def latest(record: type[Operands]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Decorate a function of a record, and of arrays, that returns the same for the same and writes nothing.

    What the record has beyond ``record`` plays no part. On each thread the last call is remembered, with copies
    of its arrays: steps overwrite these.
    """
    declared = record.declared()

    def remembering(function: Callable[..., R]) -> Callable[..., R]:
        own = _LastCall()

        @wraps(function)
        def call(a: Any, *others: Any) -> R:
            arrays = [
                each for slot in declared.inputs for each in _each(getattr(a, slot.parameter))
            ]
            arrays += others
            arrays += [level for slot in declared.lods for level in getattr(a, slot.parameter)]
            attrs = [getattr(a, name) for name in declared.attrs]
            return own.recalled(attrs, arrays, lambda: function(a, *others))

        return call

    return remembering


def latest_of_arrays(function: Callable[..., R]) -> Callable[..., R]:
    """Decorate a function of arrays alone (None: none is there), as :func:`latest` does one of a record."""
    own = _LastCall()

    @wraps(function)
    def call(*arrays: Any) -> R:
        return own.recalled([], arrays, lambda: function(*arrays))

    return call


class _LastCall(threading.local):
    """The operands of a thread's last call, and its result."""

    known: tuple[list[Any], list[Any], Any] | None = None

    def recalled(self, attrs: list[Any], arrays: Sequence[Any], compute: Callable[[], R]) -> R:
        """Return the result for these operands."""
        known = self.known
        if known is None or known[0] != attrs or not _alike(known[1], arrays):
            self.known = None  # what it holds is not needed meanwhile
            known = self.known = attrs, _copied(arrays), compute()
        result: R = known[2]
        return result


def _each(operand: Any) -> Sequence[Any]:
    """Return the arrays of a slot, of which some take several."""
    return operand if isinstance(operand, list | tuple) else (operand,)


def _copied(arrays: Sequence[Any]) -> list[Any]:
    return [None if each is None else np.array(each) for each in arrays]


def _alike(known: Sequence[Any], arrays: Sequence[Any]) -> bool:
    return len(known) == len(arrays) and all(
        array is None if before is None else array is not None and _equal(before, np.asarray(array))
        for before, array in zip(known, arrays, strict=True)
    )


def _equal(before: Any, array: Any) -> bool:
    return bool(before.dtype == array.dtype and np.array_equal(before, array))
