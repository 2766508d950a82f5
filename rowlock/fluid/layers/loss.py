"""``fluid.layers.loss``: losses."""

from ...graph.layers.chains import warpctc
from ...graph.layers.label_loss import (
    bpr_loss,
    center_loss,
    kldiv_loss,
    margin_rank_loss,
    rank_loss,
    teacher_student_sigmoid_loss,
)
from ...graph.layers.loss import (
    cross_entropy,
    huber_loss,
    mse_loss,
    sigmoid_cross_entropy_with_logits,
    softmax_with_cross_entropy,
    square_error_cost,
)
from ...graph.layers.sampled_classes import nce, sampled_softmax_with_cross_entropy
from ...graph.layers.sequence_metric import (
    edit_distance,
)
from ...graph.layers.trees import hsigmoid
from ...names import listing, missing
from .composed import npair_loss

__all__ = [
    "bpr_loss",
    "center_loss",
    "cross_entropy",
    "edit_distance",
    "hsigmoid",
    "huber_loss",
    "kldiv_loss",
    "margin_rank_loss",
    "mse_loss",
    "nce",
    "npair_loss",
    "rank_loss",
    "sampled_softmax_with_cross_entropy",
    "sigmoid_cross_entropy_with_logits",
    "softmax_with_cross_entropy",
    "square_error_cost",
    "teacher_student_sigmoid_loss",
    "warpctc",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
