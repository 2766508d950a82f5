"""``fluid.contrib.model_stat``: parameters and FLOPs of a program."""

from ...graph.report.counts import summary as summary
from ...names import publish_imports

publish_imports(__name__)
