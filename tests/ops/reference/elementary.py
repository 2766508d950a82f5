"""Elementary functions of one element."""

from __future__ import annotations

import math

import numpy as np

from .registry import unary

unary("acos", lambda x, a: np.pi / 2 - np.arcsin(x))
unary("asin", lambda x, a: np.arcsin(x))
unary("atan", lambda x, a: np.arctan2(x, 1))
unary("sinh", lambda x, a: (np.exp(x) - np.exp(-x)) / 2)
unary("cosh", lambda x, a: (np.exp(x) + np.exp(-x)) / 2)
unary("tan", lambda x, a: np.sin(x) / np.cos(x))
unary("asinh", lambda x, a: np.log(x + np.sqrt(x * x + 1)))
unary("acosh", lambda x, a: np.log(x + np.sqrt(x * x - 1)))
unary("atanh", lambda x, a: np.log((1 + x) / (1 - x)) / 2)
unary("erf", lambda x, a: np.vectorize(math.erf)(x))
unary("expm1", lambda x, a: np.exp(x) - 1)
unary("log1p", lambda x, a: np.log(1 + x))
unary("log2", lambda x, a: np.log(x) / np.log(2))
unary("log10", lambda x, a: np.log(x) / np.log(10))
unary("trunc", lambda x, a: np.sign(x) * np.floor(np.abs(x)))
