"""``paddle.nn.functional`` for static programs."""

from __future__ import annotations

from ..graph.layers.unary import elu, relu, sigmoid, softsign, tanh
from ..names import listing, missing
from .activations import (
    elu_,
    gelu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    maxout,
    prelu,
    relu6,
    relu_,
    selu,
    softmax,
    softmax_,
    softplus,
    softshrink,
    swish,
    tanhshrink,
    thresholded_relu,
)
from .common import (
    alpha_dropout,
    batch_norm,
    cosine_similarity,
    dropout,
    dropout2d,
    dropout3d,
    embedding,
    layer_norm,
    linear,
    normalize,
    one_hot,
    pad,
    pixel_shuffle,
    temporal_shift,
)
from .convs import (
    conv1d,
    conv1d_transpose,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
)
from .losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    dice_loss,
    kl_div,
    l1_loss,
    label_smooth,
    log_loss,
    margin_ranking_loss,
    mse_loss,
    nll_loss,
    npair_loss,
    sigmoid_focal_loss,
    smooth_l1_loss,
    softmax_with_cross_entropy,
    square_error_cost,
)
from .pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "alpha_dropout", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits", "conv1d", "conv1d_transpose",
    "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "cosine_similarity", "cross_entropy",
    "dice_loss", "dropout", "dropout2d", "dropout3d", "elu", "elu_", "embedding", "gelu", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "kl_div", "l1_loss", "label_smooth", "layer_norm", "leaky_relu",
    "linear", "log_loss", "log_sigmoid", "log_softmax", "margin_ranking_loss", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "maxout", "mse_loss", "nll_loss",
    "normalize", "npair_loss", "one_hot", "pad", "pixel_shuffle", "prelu", "relu", "relu6", "relu_", "selu",
    "sigmoid", "sigmoid_focal_loss", "smooth_l1_loss", "softmax", "softmax_", "softmax_with_cross_entropy",
    "softplus", "softshrink", "softsign", "square_error_cost", "swish", "tanh", "tanhshrink", "temporal_shift",
    "thresholded_relu",
]  # fmt: skip
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
