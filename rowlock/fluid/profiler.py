"""``fluid.profiler``: which op took how long, as a table and as a timeline."""

from ..executor.driver.profiler import cuda_profiler as cuda_profiler
from ..executor.driver.profiler import profiler as profiler
from ..executor.driver.profiler import reset_profiler as reset_profiler
from ..executor.driver.profiler import start_profiler as start_profiler
from ..executor.driver.profiler import stop_profiler as stop_profiler
from ..names import publish_imports

publish_imports(__name__)
