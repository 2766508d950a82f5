"""``fluid.layers.loss``: losses."""

from ...graph.layers.chains import warpctc as warpctc
from ...graph.layers.label_loss import bpr_loss as bpr_loss
from ...graph.layers.label_loss import center_loss as center_loss
from ...graph.layers.label_loss import kldiv_loss as kldiv_loss
from ...graph.layers.label_loss import margin_rank_loss as margin_rank_loss
from ...graph.layers.label_loss import rank_loss as rank_loss
from ...graph.layers.label_loss import teacher_student_sigmoid_loss as teacher_student_sigmoid_loss
from ...graph.layers.loss import cross_entropy as cross_entropy
from ...graph.layers.loss import huber_loss as huber_loss
from ...graph.layers.loss import mse_loss as mse_loss
from ...graph.layers.loss import (
    sigmoid_cross_entropy_with_logits as sigmoid_cross_entropy_with_logits,
)
from ...graph.layers.loss import softmax_with_cross_entropy as softmax_with_cross_entropy
from ...graph.layers.loss import square_error_cost as square_error_cost
from ...graph.layers.sampled_classes import nce as nce
from ...graph.layers.sampled_classes import (
    sampled_softmax_with_cross_entropy as sampled_softmax_with_cross_entropy,
)
from ...graph.layers.sequence_metric import edit_distance as edit_distance
from ...graph.layers.trees import hsigmoid as hsigmoid
from ...names import publish_imports
from .composed import npair_loss as npair_loss

publish_imports(__name__)
