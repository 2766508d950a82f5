"""``fluid.layers.ops``: functions of one tensor."""

from ...graph.layers.tensors import (
    cumsum,
)
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

__all__ = [
    "abs",
    "ceil",
    "cos",
    "cumsum",
    "exp",
    "floor",
    "gelu",
    "logsigmoid",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "softplus",
    "softsign",
    "sqrt",
    "square",
    "tanh",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
