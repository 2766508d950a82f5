"""Elementary functions of one element: trigonometric and hyperbolic ones, logarithms, the error function."""

from __future__ import annotations

from . import expr as e
from .activation import define_activation
from .samples import sample

# asin, acos and atanh are steep at -1 and 1
_INSIDE = (sample("X -0.9:0.9 [3 4]"),)
_BELOW_A_QUARTER = (sample("X -1.2:1.2 [3 4]"),)  # of a turn
_POSITIVE = (sample("X 0.5:2.0 [3 4]"),)
_ABOVE_1 = (sample("X 1.5:3.0 [3 4]"),)
_STEPS = (sample("X -2.9:-2.1 [3 4]"), sample("X 0.1:0.9 [5]"))

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
