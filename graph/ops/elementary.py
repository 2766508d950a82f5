"""Elementary functions of one element: trigonometric and hyperbolic ones, logarithms, the error function."""

from __future__ import annotations

from . import expr as e
from .activation import define_activation
from .samples import sample, uniform

# asin, acos and atanh are steep at -1 and 1
_INSIDE = (sample({"X": uniform(3, 4, low=-0.9, high=0.9)}),)
_BELOW_A_QUARTER = (sample({"X": uniform(3, 4, low=-1.2, high=1.2)}),)  # of a turn
_POSITIVE = (sample({"X": uniform(3, 4, low=0.5, high=2.0)}),)
_ABOVE_1 = (sample({"X": uniform(3, 4, low=1.5, high=3.0)}),)
_STEPS = (
    sample({"X": uniform(3, 4, low=-2.9, high=-2.1)}),
    sample({"X": uniform(5, low=0.1, high=0.9)}),
)

define_activation("acos", lambda x: e.acos(x), "X", attrs={}, samples=_INSIDE)
define_activation("asin", lambda x: e.asin(x), "X", attrs={}, samples=_INSIDE)
define_activation("atan", lambda x: e.atan(x), "X", attrs={})
define_activation("sinh", lambda x: e.sinh(x), "X", attrs={})
define_activation("cosh", lambda x: e.cosh(x), "X", attrs={})
define_activation("tan", lambda x: e.tan(x), "X", attrs={}, samples=_BELOW_A_QUARTER)
define_activation("asinh", lambda x: e.asinh(x), "X", attrs={})
define_activation("acosh", lambda x: e.acosh(x), "X", attrs={}, samples=_ABOVE_1)
define_activation("atanh", lambda x: e.atanh(x), "X", attrs={}, samples=_INSIDE)
define_activation("erf", lambda x: e.erf(x), "X", attrs={})
define_activation("expm1", lambda x: e.expm1(x), "Out", attrs={})
define_activation("log1p", lambda x: e.log1p(x), "X", samples=_POSITIVE)
define_activation("log2", lambda x: e.log2(x), "X", attrs={}, samples=_POSITIVE)
define_activation("log10", lambda x: e.log10(x), "X", attrs={}, samples=_POSITIVE)
define_activation("trunc", lambda x: e.trunc(x), "", attrs={}, samples=_STEPS)
