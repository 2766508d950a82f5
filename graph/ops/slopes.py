"""The derivative of each function that expressions and terms are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from . import expr as e

_2_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
_LN_2, _LN_10 = math.log(2), math.log(10)


def _chosen(first: Callable[[Any, Any], Any]) -> Callable[..., tuple[Any, Any]]:
    """Of two operands the one that is the result takes the gradient, the second if they are equal."""
    return lambda d, out, x, y: (e.where(first(x, y), d, 0), e.where(first(x, y), 0, d))


# Function -> the gradients of its operands, from that of its result, the result, and the operands.
SLOPES: Mapping[str, Callable[..., tuple[Any, ...]]] = {
    "add": lambda d, out, x, y: (d, d),
    "subtract": lambda d, out, x, y: (d, -d),
    "multiply": lambda d, out, x, y: (d * y, d * x),
    "divide": lambda d, out, x, y: (d / y, -(d * out / y)),
    "power": lambda d, out, x, y: (d * y * x ** (y - 1), d * e.log(x) * out),
    "maximum": _chosen(lambda x, y: x > y),
    "minimum": _chosen(lambda x, y: x < y),
    "where": lambda d, out, c, x, y: (None, e.where(c, d, 0), e.where(c, 0, d)),
    "negative": lambda d, out, x: (-d,),
    "positive": lambda d, out, x: (d,),
    "absolute": lambda d, out, x: (d * e.sign(x),),
    "square": lambda d, out, x: (d * 2 * x,),
    "sqrt": lambda d, out, x: (d * 0.5 / out,),
    "reciprocal": lambda d, out, x: (-(d * out * out),),
    "exp": lambda d, out, x: (d * out,),
    "expm1": lambda d, out, x: (d * (out + 1),),
    "log": lambda d, out, x: (d / x,),
    "log1p": lambda d, out, x: (d / (1 + x),),
    "log2": lambda d, out, x: (d / (x * _LN_2),),
    "log10": lambda d, out, x: (d / (x * _LN_10),),
    "sin": lambda d, out, x: (d * e.cos(x),),
    "cos": lambda d, out, x: (-(d * e.sin(x)),),
    "tan": lambda d, out, x: (d * (1 + e.square(out)),),
    "arcsin": lambda d, out, x: (d / e.sqrt(1 - x * x),),
    "arccos": lambda d, out, x: (-(d / e.sqrt(1 - x * x)),),
    "arctan": lambda d, out, x: (d / (1 + x * x),),
    "sinh": lambda d, out, x: (d * e.call("cosh", x),),
    "cosh": lambda d, out, x: (d * e.call("sinh", x),),
    "tanh": lambda d, out, x: (d * (1 - out * out),),
    "arcsinh": lambda d, out, x: (d / e.sqrt(x * x + 1),),
    "arccosh": lambda d, out, x: (d / e.sqrt(x * x - 1),),
    "arctanh": lambda d, out, x: (d / (1 - x * x),),
    "erf": lambda d, out, x: (d * _2_OVER_ROOT_PI * e.exp(-(x * x)),),
    # The integral part of a quotient is flat: x - y * trunc(x / y), and with floor.
    "fmod": lambda d, out, x, y: (d, -(d * e.trunc(x / y))),
    "remainder": lambda d, out, x, y: (d, -(d * e.floor(x / y))),
}
# Steps, and conditions: no gradient passes them.
FLAT = frozenset({
    "sign", "floor", "ceil", "trunc", "rint", "floor_divide", "greater", "greater_equal", "less", "less_equal",
    "equal", "not_equal", "logical_and", "logical_or", "logical_not", "logical_xor", "isfinite",
})  # fmt: skip
