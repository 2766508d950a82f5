"""Two operands, element by element."""

from __future__ import annotations

import numpy as np

from .registry import binary, unary

unary("logical_not", lambda x, a: ~x)

binary("elementwise_add", lambda x, y: x + y)
binary("elementwise_sub", lambda x, y: x - y)
binary("elementwise_mul", lambda x, y: x * y)
binary("elementwise_div", lambda x, y: x / y)
binary("elementwise_max", np.maximum)
binary("elementwise_min", np.minimum)
binary("elementwise_pow", lambda x, y: x**y)
binary("less_than", lambda x, y: x < y)
binary("less_equal", lambda x, y: x <= y)
binary("greater_than", lambda x, y: x > y)
binary("greater_equal", lambda x, y: x >= y)
binary("equal", lambda x, y: x == y)
binary("not_equal", lambda x, y: x != y)
binary("logical_and", lambda x, y: x & y)
binary("logical_or", lambda x, y: x | y)
binary("logical_xor", lambda x, y: x ^ y)

binary(
    "elementwise_mod",
    lambda x, y: np.fmod(x, y) if x.dtype.kind == "i" else x - np.floor(x / y) * y,
)
binary("elementwise_floordiv", lambda x, y: np.trunc(x / y).astype(int))
