"""Names that end in "_": in a static program their result is a variable of its own, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..graph.layers import shape, unary
from ..graph.layers.arguments import checked
from . import bits, counting, creation, elementwise, manipulation, math, places, reductions, search
from .synonyms import SYNONYMS


def _as(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function = checked(function)

    @wraps(function)
    def in_place(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    in_place.__name__ = in_place.__qualname__ = f"{name}_"
    in_place.__doc__ = f"As ``{name}``: in a static program the result is a variable of its own."
    return in_place


_FUNCTIONS: dict[Any, str] = {
    unary: "abs scale square",
    math: "acos acosh add addmm asin asinh atan atanh ceil clip cos cosh cumsum digamma divide erf exp "
    "expm1 floor floor_divide frac lgamma log log1p log2 log10 mod multiply pow reciprocal round rsqrt "
    "sigmoid sin sinh sqrt subtract t tan trunc",
    elementwise: "copysign hypot ldexp lerp logit multigammaln nan_to_num neg sinc",
    creation: "tril triu",
    shape: "cast",
    manipulation: "flatten transpose",
    bits: "bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift "
    "bitwise_xor",
    places: "index_add index_fill index_put masked_fill masked_scatter put_along_axis scatter_add",
    reductions: "baddbmm renorm",
    counting: "cumprod",
    search: "equal greater_equal greater_than less_equal less_than logical_and logical_not logical_or "
    "logical_xor not_equal where",
}
IN_PLACE = {
    f"{name}_": _as(getattr(home, name), name)
    for home, names in _FUNCTIONS.items()
    for name in names.split()
}
_SYNONYMS = ("div", "floor_mod", "gammaln", "less", "remainder", "sub")
IN_PLACE |= {f"{name}_": _as(SYNONYMS[name], name) for name in _SYNONYMS}
