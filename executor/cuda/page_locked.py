"""Page-locked memory of a tensor, which a GPU copies from while the host goes on."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from .runtime import Runtime


class _Lease:
    """A block in use: every array that lies in it refers to this."""

    def __init__(self, block: np.ndarray) -> None:
        self.__array_interface__ = block.__array_interface__
        self.block = block


class PageLockedBlocks:
    """Blocks of which each is written again once no array that lies in it is left.

    So a value that is on its way to a GPU keeps its block, and the next value goes to another.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._blocks: list[tuple[np.ndarray, weakref.ref[_Lease]]] = []

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an uninitialised array in a block that nothing else uses.

        Raises:
            Exception: there is no such memory left; CUDA has an error class of its own.
        """
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        free = [entry for entry in self._blocks if entry[1]() is None]
        entry = next((entry for entry in free if entry[0].nbytes == nbytes), None)
        block = self._runtime.pinned(nbytes) if entry is None else entry[0]
        lease = _Lease(block)
        in_use = [entry for entry in self._blocks if entry[1]() is not None]
        self._blocks = [*in_use, (block, weakref.ref(lease))]
        return np.asarray(lease).view(dtype).reshape(shape)


def page_locked(array: np.ndarray) -> bool:
    """Tell whether an array lies in a block that is not written again while the array is referred to."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, _Lease)
