"""``fluid.layers.ops``: functions of one tensor."""

from ...graph.layers.activations import hard_shrink, softshrink, tanh_shrink, thresholded_relu
from ...graph.layers.tensors import cumsum
from ...graph.layers.unary import (
    abs,
    acos,
    asin,
    atan,
    ceil,
    cos,
    erf,
    exp,
    floor,
    gelu,
    logsigmoid,
    reciprocal,
    round,
    rsqrt,
    sigmoid,
    sin,
    softplus,
    softsign,
    sqrt,
    square,
    tanh,
)
from ...names import listing, missing

__all__ = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cumsum",
    "erf",
    "exp",
    "floor",
    "gelu",
    "hard_shrink",
    "logsigmoid",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "softplus",
    "softshrink",
    "softsign",
    "sqrt",
    "square",
    "tanh",
    "tanh_shrink",
    "thresholded_relu",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
