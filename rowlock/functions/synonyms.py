"""Second names of functions, which Paddle 3 has."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import creation, manipulation, math, places, reductions, search

_NAMES: dict[ModuleType, dict[str, str]] = {
    creation: {"as_tensor": "to_tensor", "asarray": "to_tensor", "from_numpy": "to_tensor"},
    manipulation: {"cat": "concat", "concatenate": "concat", "reverse": "flip"},
    math: {
        "clamp": "clip",
        "div": "divide",
        "floor_mod": "mod",
        "gammaln": "lgamma",
        "mul": "multiply",
        "remainder": "mod",
        "sub": "subtract",
        "true_divide": "divide",
    },
    places: {"swapdims": "swapaxes", "take_along_dim": "take_along_axis"},
    reductions: {"ger": "outer"},
    search: {
        "argwhere": "nonzero",
        "eq": "equal",
        "ge": "greater_equal",
        "greater": "greater_than",
        "gt": "greater_than",
        "le": "less_equal",
        "less": "less_than",
        "lt": "less_than",
        "ne": "not_equal",
    },
}
SYNONYMS: dict[str, Callable[..., Any]] = {
    name: getattr(home, other) for home, names in _NAMES.items() for name, other in names.items()
}
