"""What a kernel may use while it is bound: the array module, scratch memory, the clock of random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

_METHODS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
ALIGNMENT = 64  # bytes; a cache line, and what vector units like best


@dataclass
class Clock:
    """Where in the training run a step stands; random kernels read it each time they run.

    ``step`` counts committed iterations; ``row`` is the global index of this replica's first sample;
    ``share`` its rows as a part of the whole batch.
    """

    step: int = 0
    row: int = 0
    share: float = 1.0


class Device:
    """Binds kernels to one array module. Scratch memory is shared by the instructions of a lane.

    ``seed`` is the program's seed, ``output`` the name of the variable the kernel being bound writes:
    together they key its random numbers.
    """

    def __init__(self, name: str = "numpy", xp: ModuleType = np, *, seed: int = 0) -> None:
        self.name = name
        self.xp = xp
        self.seed = seed
        self.clock = Clock()
        self.output = ""
        self._lane = 0
        self._free: dict[int, list[Any]] = {}
        self._lent: list[Any] = []

    def emptied(self) -> Device:
        """Return a device with the same seed and clock, and no scratch memory yet."""
        made = Device(self.name, self.xp, seed=self.seed)
        made.clock = self.clock
        return made

    def scratch(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised array that lives while the instruction being bound runs."""
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        block = self._take(max(nbytes, 1))
        return block[:nbytes].view(dtype).reshape(shape)

    def keep(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a zeroed array that belongs to the instruction being bound alone, run after run."""
        return self.xp.zeros(shape, dtype)

    def next_instruction(self, output: str, lane: int = 0) -> None:
        """Take back the scratch lent to the instruction before; ``output`` names the next one's result.

        Instructions of one ``lane`` run in turn.
        """
        self._free.setdefault(self._lane, []).extend(self._lent)
        self._lent = []
        self._lane, self.output = lane, output

    def reducer(self, name: str) -> Callable[..., Any]:
        """Return ``ufunc.reduce(array, axis, dtype, out, keepdims)``; CuPy's has only add and multiply."""
        if self.name == "numpy":
            return getattr(self.xp, name).reduce  # type: ignore[no-any-return]
        method = _METHODS[name]

        def reduce(array: Any, axis: Any, dtype: Any, out: Any, keepdims: bool = False) -> Any:
            return getattr(array, method)(axis=axis, out=out, keepdims=keepdims)

        return reduce

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory in use by the plan."""
        free = (block for blocks in self._free.values() for block in blocks)
        return sum(block.nbytes for block in (*free, *self._lent))

    def _take(self, nbytes: int) -> Any:
        free = self._free.setdefault(self._lane, [])
        fitting = [block for block in free if block.nbytes >= nbytes]
        if fitting:
            block = min(fitting, key=lambda b: b.nbytes)
            self._free[self._lane] = [b for b in free if b is not block]
        else:
            block = aligned_bytes(self.xp, nbytes)
        self._lent.append(block)
        return block


def aligned_bytes(xp: ModuleType, nbytes: int) -> Any:
    """Return ``nbytes`` uninitialised bytes (uint8) that begin on a cache line."""
    raw = xp.empty(nbytes + ALIGNMENT, np.uint8)
    address = raw.ctypes.data if xp is np else raw.data.ptr
    start = -address % ALIGNMENT
    return raw[start : start + nbytes]
