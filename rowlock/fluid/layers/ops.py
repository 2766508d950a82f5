"""``fluid.layers.ops``: functions of one tensor."""

from ...graph.layers.tensors import cumsum
from ...graph.layers.unary import (
    abs,
    ceil,
    cos,
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
from .composed import hard_shrink, softshrink, tanh_shrink, thresholded_relu

__all__ = [
    "abs",
    "ceil",
    "cos",
    "cumsum",
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
