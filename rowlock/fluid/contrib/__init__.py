"""``fluid.contrib``: mixed precision, and what a program will take."""

from ...graph.counts import memory_usage, op_freq_statistic
from ...names import listing, missing
from . import mixed_precision, model_stat

__all__ = ["memory_usage", "mixed_precision", "model_stat", "op_freq_statistic"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
