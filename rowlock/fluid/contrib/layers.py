"""``fluid.contrib.layers``."""

from ...graph.layers.binary import fused_elemwise_activation
from ...graph.layers.draws import shuffle_batch
from ...graph.layers.metric import ctr_metric_bundle
from ...graph.layers.moves import partial_concat, partial_sum
from ...graph.layers.products import rank_attention
from ...graph.layers.pyramid_hash import search_pyramid_hash
from ...graph.layers.sequence import (
    fused_embedding_seq_pool,
    match_matrix_tensor,
    sequence_topk_avg_pooling,
    var_conv_2d,
)
from ...graph.layers.trees import tdm_child, tdm_sampler, tree_conv
from ...names import listing, missing
from ...nn.layer.basic_units import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm

__all__ = [
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "basic_gru",
    "basic_lstm",
    "ctr_metric_bundle",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
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
