"""``fluid.contrib.layers``."""

from ...graph.layers.binary import fused_elemwise_activation as fused_elemwise_activation
from ...graph.layers.detection import multiclass_nms2 as multiclass_nms2
from ...graph.layers.draws import shuffle_batch as shuffle_batch
from ...graph.layers.metric import ctr_metric_bundle as ctr_metric_bundle
from ...graph.layers.moves import partial_concat as partial_concat
from ...graph.layers.moves import partial_sum as partial_sum
from ...graph.layers.products import rank_attention as rank_attention
from ...graph.layers.pyramid_hash import search_pyramid_hash as search_pyramid_hash
from ...graph.layers.sequence import fused_embedding_seq_pool as fused_embedding_seq_pool
from ...graph.layers.sequence import match_matrix_tensor as match_matrix_tensor
from ...graph.layers.sequence import sequence_topk_avg_pooling as sequence_topk_avg_pooling
from ...graph.layers.sequence import var_conv_2d as var_conv_2d
from ...graph.layers.trees import tdm_child as tdm_child
from ...graph.layers.trees import tdm_sampler as tdm_sampler
from ...graph.layers.trees import tree_conv as tree_conv
from ...names import publish_imports
from ...nn.layer.basic_units import BasicGRUUnit as BasicGRUUnit
from ...nn.layer.basic_units import BasicLSTMUnit as BasicLSTMUnit
from ...nn.layer.basic_units import basic_gru as basic_gru
from ...nn.layer.basic_units import basic_lstm as basic_lstm

publish_imports(__name__)
