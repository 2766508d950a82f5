"""``fluid.contrib``: mixed precision, decoders, and estimates of a program's memory and FLOPs."""

from ...graph.report.counts import memory_usage, op_freq_statistic
from ...graph.training.optimizer import extend_with_decoupled_weight_decay
from ...names import listing, missing
from . import decoder, layers, mixed_precision, model_stat
from .decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from .layers import (
    BasicGRUUnit,
    BasicLSTMUnit,
    basic_gru,
    basic_lstm,
    ctr_metric_bundle,
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    match_matrix_tensor,
    partial_concat,
    partial_sum,
    rank_attention,
    search_pyramid_hash,
    sequence_topk_avg_pooling,
    shuffle_batch,
    tdm_child,
    tdm_sampler,
    tree_conv,
    var_conv_2d,
)

__all__ = [
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "BeamSearchDecoder",
    "InitState",
    "StateCell",
    "TrainingDecoder",
    "basic_gru",
    "basic_lstm",
    "ctr_metric_bundle",
    "decoder",
    "extend_with_decoupled_weight_decay",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "layers",
    "match_matrix_tensor",
    "memory_usage",
    "mixed_precision",
    "model_stat",
    "op_freq_statistic",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "search_pyramid_hash",
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
