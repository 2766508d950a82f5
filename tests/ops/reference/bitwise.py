"""Functions of bits: of every number, as Python has them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .registry import reference

Arrays = dict[str, Any]


def _each(function: Callable[..., Any]) -> Callable[[Arrays, Arrays], Arrays]:
    def bits(ins: Arrays, attrs: Arrays) -> Arrays:
        x, y = np.broadcast_arrays(ins["X"], ins["Y"])
        pairs = zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
        return {"Out": np.array([function(*pair) for pair in pairs], x.dtype).reshape(x.shape)}

    return bits


reference("bitwise_and")(_each(operator.and_))
reference("bitwise_or")(_each(operator.or_))
reference("bitwise_xor")(_each(operator.xor))
reference("bitwise_left_shift")(_each(lambda x, places: x * 2**places))
reference("bitwise_right_shift")(_each(lambda x, places: x // 2**places))


@reference("bitwise_not")
def bitwise_not(ins: Arrays, attrs: Arrays) -> Arrays:
    x = ins["X"]
    return {"Out": x == 0 if x.dtype == bool else -1 - x}
