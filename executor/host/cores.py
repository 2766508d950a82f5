"""Limit the threads of the libraries under the kernels."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_BLAS = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def set_threads(count: int) -> None:
    """Have the libraries of this process use so many threads.

    NumPy's own BLAS is loaded already; OpenMP reads its variable when it is loaded, and XLA when it is started.
    """
    os.environ["OMP_NUM_THREADS"] = os.environ["NPROC"] = str(count)
    for library in openblas():
        name = next((name for name in _BLAS if hasattr(library, name)), None)
        if name is not None:
            getattr(library, name)(count)


def openblas() -> Sequence[Any]:
    """Return the libraries that NumPy's wheel has brought to multiply by (none: NumPy was built otherwise)."""
    paths = glob.glob(str(Path(np.__file__).parents[1] / "numpy.libs" / "*openblas*"))
    return [ctypes.CDLL(path) for path in paths]


@contextlib.contextmanager
def openmp_threads(count: int) -> Iterator[None]:
    """Have OpenMP start so many threads (0: as many as before) for the calling thread inside the block."""
    library = _openmp() if count else None
    if library is None:
        yield
        return
    old_count = library.omp_get_max_threads()
    library.omp_set_num_threads(count)
    try:
        yield
    finally:
        library.omp_set_num_threads(old_count)


def working_threads() -> int:
    """Return how many threads a kernel of the calling thread can keep busy: OpenMP's, on as many cores."""
    cores, library = len(os.sched_getaffinity(0)), _openmp()
    return cores if library is None else min(cores, library.omp_get_max_threads())


@cache
def _openmp() -> Any:
    """Return the OpenMP library that oneDNN uses; None: another one, or none."""
    try:
        return ctypes.CDLL("libgomp.so.1")
    except OSError:
        return None
