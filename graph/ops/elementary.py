"""Elementary functions of one element: trigonometric and hyperbolic ones, logarithms, the error function."""

from __future__ import annotations

import math

from . import expr as e
from .activation import define_activation
from .samples import sample, uniform

_INSIDE = (
    sample({"X": uniform(3, 4, low=-0.9, high=0.9)}),
)  # where asin, acos and atanh are steep
_POSITIVE = (sample({"X": uniform(3, 4, low=0.5, high=2.0)}),)
_ABOVE_1 = (sample({"X": uniform(3, 4, low=1.5, high=3.0)}),)
_STEPS = (
    sample({"X": uniform(3, 4, low=-2.9, high=-2.1)}),
    sample({"X": uniform(5, low=0.1, high=0.9)}),
)

define_activation(
    "acos",
    lambda x: e.acos(x),
    "X",
    lambda x, d_out: -(d_out / e.sqrt(1 - x * x)),
    attrs={},
    samples=_INSIDE,
)
define_activation(
    "asin",
    lambda x: e.asin(x),
    "X",
    lambda x, d_out: d_out / e.sqrt(1 - x * x),
    attrs={},
    samples=_INSIDE,
)
define_activation("atan", lambda x: e.atan(x), "X", lambda x, d_out: d_out / (1 + x * x), attrs={})
define_activation("sinh", lambda x: e.sinh(x), "X", lambda x, d_out: d_out * e.cosh(x), attrs={})
define_activation("cosh", lambda x: e.cosh(x), "X", lambda x, d_out: d_out * e.sinh(x), attrs={})
define_activation(
    "tan",
    lambda x: e.tan(x),
    "X",
    lambda x, d_out: d_out * (1 + e.square(e.tan(x))),
    attrs={},
    samples=(sample({"X": uniform(3, 4, low=-1.2, high=1.2)}),),
)
define_activation(
    "asinh", lambda x: e.asinh(x), "X", lambda x, d_out: d_out / e.sqrt(x * x + 1), attrs={}
)
define_activation(
    "acosh",
    lambda x: e.acosh(x),
    "X",
    lambda x, d_out: d_out / e.sqrt(x * x - 1),
    attrs={},
    samples=_ABOVE_1,
)
define_activation(
    "atanh",
    lambda x: e.atanh(x),
    "X",
    lambda x, d_out: d_out / (1 - x * x),
    attrs={},
    samples=_INSIDE,
)
define_activation(
    "erf",
    lambda x: e.erf(x),
    "X",
    lambda x, d_out: d_out * (2 / math.sqrt(math.pi)) * e.exp(-(x * x)),
    attrs={},
)
define_activation(
    "expm1", lambda x: e.expm1(x), "Out", lambda out, d_out: d_out * (out + 1), attrs={}
)
define_activation(
    "log1p", lambda x: e.log1p(x), "X", lambda x, d_out: d_out / (x + 1), samples=_POSITIVE
)
define_activation(
    "log2",
    lambda x: e.log2(x),
    "X",
    lambda x, d_out: d_out / (x * math.log(2)),
    attrs={},
    samples=_POSITIVE,
)
define_activation(
    "log10",
    lambda x: e.log10(x),
    "X",
    lambda x, d_out: d_out / (x * math.log(10)),
    attrs={},
    samples=_POSITIVE,
)
define_activation("trunc", lambda x: e.trunc(x), "", None, attrs={}, samples=_STEPS)
