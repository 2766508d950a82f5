"""Copy arrays into shared memory, large ones by several threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import numpy as np

_MUCH = 8 << 20  # bytes, which a core takes about a millisecond to write
_CORES = 4  # with fewer, threads that write take turns with replicas that compute
_MOST = 8  # threads: more wait for memory


def is_much(nbytes: int) -> bool:
    """Tell whether so many bytes are copied faster by several threads."""
    return nbytes > _MUCH and len(os.sched_getaffinity(0)) >= _CORES


def write_all(
    places: Sequence[np.ndarray], arrays: Sequence[np.ndarray], threads: bool = False
) -> None:
    """Copy each array to its place, by several ``threads`` or by this one."""
    if not threads:
        for place, array in zip(places, arrays, strict=True):
            place[...] = array
        return
    pairs = zip(places, arrays, strict=True)
    writing = [_writers().submit(np.copyto, place, array) for place, array in pairs]
    try:
        for future in writing:
            future.result()
    finally:  # whatever happens, no thread writes into a slot that is used again
        wait(writing)


@cache
def _writers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST), "rowlock-feeds")
