"""``fluid.contrib.model_stat``: parameters and FLOPs of a program."""

from ...graph.report.counts import summary
from ...names import listing, missing

__all__ = ["summary"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
