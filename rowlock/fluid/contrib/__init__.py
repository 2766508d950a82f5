"""``fluid.contrib``: mixed precision, decoders, and estimates of a program's memory and FLOPs."""

from ...names import publish_imports
from . import decoder as decoder
from . import extend_optimizer as extend_optimizer
from . import layers as layers
from . import memory_usage_calc as memory_usage_calc
from . import mixed_precision as mixed_precision
from . import model_stat as model_stat
from . import op_frequence as op_frequence
from . import reader as reader
from .decoder import *
from .extend_optimizer import (
    extend_with_decoupled_weight_decay as extend_with_decoupled_weight_decay,
)
from .layers import *
from .memory_usage_calc import memory_usage as memory_usage
from .op_frequence import op_freq_statistic as op_freq_statistic
from .reader import distributed_batch_reader as distributed_batch_reader

publish_imports(
    __name__,
    decoder,
    extend_optimizer,
    layers,
    memory_usage_calc,
    mixed_precision,
    model_stat,
    op_frequence,
    reader,
)
