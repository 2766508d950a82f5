"""Time calls that compute the same on a GPU, on memory like their operands', which stay untouched."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TypeVar

from .runtime import Runtime, Step

_RUNS = 5  # timed together, of each call
_HALF = 0x3C  # repeated, this byte gives small numbers of every type of float
_NAN = 0xFF  # repeated, this byte gives no number of any type of float
_WIDEST = 8  # bytes of an element, at most
_log = logging.getLogger("rowlock")
K = TypeVar("K")


class Bench:
    """Arrays of ``sizes`` bytes by name, and ``workspace`` bytes of scratch memory.

    Raises:
        MemoryError: there is no room for them.
    """

    def __init__(self, runtime: Runtime, sizes: Mapping[str, int], workspace: int) -> None:
        self._runtime = runtime
        self.arrays = {name: runtime.empty(nbytes) for name, nbytes in sizes.items()}
        self.workspace = runtime.empty(max(workspace, 1))
        self.addresses = {name: runtime.address(array) for name, array in self.arrays.items()}
        for array in self.arrays.values():
            array.fill(_HALF)

    def fastest(self, calls: Mapping[K, Step], relu: tuple[str, str] | None = None) -> K | None:
        """Return the key of the call that takes least time; None if none runs.

        ``relu`` names an operand and the result: only calls count that hand NaN on from one to the other.
        """
        times = {key: self._time(call) for key, call in calls.items()}
        ranked = sorted((key for key in calls if times[key] < math.inf), key=times.__getitem__)
        fit = (key for key in ranked if relu is None or self._hands_nan_on(calls[key], *relu))
        return next(fit, None)

    def _time(self, call: Step) -> float:
        """Return milliseconds of a run after the first one; infinity if the call fails."""
        cuda = self._runtime.xp.cuda
        begin, end = cuda.Event(), cuda.Event()
        try:
            call()
            begin.record(self._runtime.compute)
            for _ in range(_RUNS):
                call()
            end.record(self._runtime.compute)
            end.synchronize()
            return float(cuda.get_elapsed_time(begin, end)) / _RUNS
        except Exception as error:  # cuDNN's frontend raises many classes
            _log.info("a candidate fails while it is timed: %s", first_line(error))
            return math.inf

    def _hands_nan_on(self, call: Step, operand: str, result: str) -> bool:
        self.arrays[operand].fill(_NAN)
        self.arrays[result].fill(0)
        try:
            call()
        except Exception as error:
            _log.info("a candidate fails on NaN: %s", first_line(error))
            return False
        element = self._runtime.xp.asnumpy(self.arrays[result][:_WIDEST])
        return bool((element & 0x7F).any())


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or the name of its class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
