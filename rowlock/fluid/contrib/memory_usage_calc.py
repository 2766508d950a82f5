"""``fluid.contrib.memory_usage_calc``: an estimate of a program's memory."""

from ...graph.report.counts import memory_usage as memory_usage
from ...names import publish_imports

publish_imports(__name__)
