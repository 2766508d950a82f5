"""``fluid.contrib.op_frequence``: how often ops follow each other."""

from ...graph.report.counts import op_freq_statistic as op_freq_statistic
from ...names import publish_imports

publish_imports(__name__)
