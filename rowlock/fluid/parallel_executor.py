"""``fluid.parallel_executor``."""

from ..executor.parallel_executor import ParallelExecutor
from ..names import listing, missing

__all__ = ["ParallelExecutor"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
