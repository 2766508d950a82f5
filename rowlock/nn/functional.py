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
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    alpha_dropout,
    avg_pool1d,
    avg_pool2d,
    batch_norm,
    conv1d,
    conv2d,
    cosine_similarity,
    dropout,
    dropout2d,
    dropout3d,
    embedding,
    layer_norm,
    linear,
    max_pool1d,
    max_pool2d,
    normalize,
    one_hot,
    pad,
    pixel_shuffle,
    temporal_shift,
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
from .norms import bilinear, instance_norm, local_response_norm

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "alpha_dropout", "avg_pool1d", "avg_pool2d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "conv1d", "conv2d", "cosine_similarity", "cross_entropy",
    "dice_loss", "dropout", "dropout2d", "dropout3d", "elu", "elu_", "embedding", "gelu", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "instance_norm", "kl_div", "l1_loss", "label_smooth",
    "layer_norm", "leaky_relu", "linear", "local_response_norm", "log_loss", "log_sigmoid", "log_softmax",
    "margin_ranking_loss", "max_pool1d", "max_pool2d", "maxout", "mse_loss", "nll_loss", "normalize",
    "npair_loss", "one_hot", "pad", "pixel_shuffle", "prelu", "relu", "relu6", "relu_", "selu", "sigmoid",
    "sigmoid_focal_loss", "smooth_l1_loss", "softmax", "softmax_", "softmax_with_cross_entropy", "softplus",
    "softshrink", "softsign", "square_error_cost", "swish", "tanh", "tanhshrink", "temporal_shift",
    "thresholded_relu",
]  # fmt: skip
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
