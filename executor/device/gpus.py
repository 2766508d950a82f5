"""Count the GPUs of this process, and open one."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache

from ...strategies.errors import Unsupported
from ..cuda.runtime import Runtime
from ..simulated.simulated import COUNT, SimulatedRuntime, simulated_gpus


def local_gpus() -> int:
    """Return how many GPUs this process can use."""
    return simulated_gpus() or _visible()[0]


def open_gpu(index: int = 0) -> Runtime:
    """Return GPU ``index`` of those that this process sees.

    Raises:
        Unsupported: there is no CuPy, or no such GPU; the message says which.
    """
    count = simulated_gpus()
    if count:
        if index >= count:
            raise Unsupported(f"there is no GPU {index}: {COUNT}={count} simulates {count}.")
        return SimulatedRuntime(index)
    count, problem = _visible()
    if problem:
        raise Unsupported(problem)
    if index >= count:
        raise Unsupported(f"there is no GPU {index}: this process sees {count}.")
    from ..cuda.cupy_runtime import CupyRuntime

    return CupyRuntime(index)


def page_locked_memory() -> Runtime | None:
    """Return a GPU of this process whose page-locked memory all GPUs copy from; None without one."""
    return _first(simulated_gpus()) if local_gpus() else None


@cache
def _first(simulated: int) -> Runtime:
    return open_gpu(0)


def _visible() -> tuple[int, str]:
    """Return how many GPUs CuPy sees, and why none if there is none."""
    if "cupy" not in sys.modules and importlib.util.find_spec("cupy") is None:
        return 0, "computing on a GPU needs CuPy: pip install '.[gpu]' in Rowlock's folder."
    try:
        cupy = importlib.import_module("cupy")
        # CUDA_VISIBLE_DEVICES acts in the CUDA runtime
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # no driver, or no device: CuPy has an error class for each
        return 0, f"there is no GPU that this process can use ({error})."
    return count, "" if count else "there is no GPU that this process can use."
