"""``fluid.profiler``: which op took how long, as a table and as a timeline."""

from ..executor.driver.profiler import (
    cuda_profiler,
    profiler,
    reset_profiler,
    start_profiler,
    stop_profiler,
)
from ..names import listing, missing

__all__ = ["cuda_profiler", "profiler", "reset_profiler", "start_profiler", "stop_profiler"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
