"""``fluid.parallel_executor``."""

from ..executor.parallel_executor import ParallelExecutor as ParallelExecutor
from ..names import publish_imports

publish_imports(__name__)
