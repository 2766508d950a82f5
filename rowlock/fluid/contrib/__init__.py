"""``fluid.contrib``: mixed precision, decoders, and estimates of a program's memory and FLOPs."""

from ...graph.report.counts import memory_usage as memory_usage
from ...graph.report.counts import op_freq_statistic as op_freq_statistic
from ...graph.training import optimizer as _optimizer
from ...names import publish_imports
from . import decoder as decoder
from . import layers as layers
from . import mixed_precision as mixed_precision
from . import model_stat as model_stat
from .decoder import *
from .layers import *

extend_with_decoupled_weight_decay = _optimizer.extend_with_decoupled_weight_decay

publish_imports(__name__, decoder, layers, mixed_precision, model_stat)
