"""Elementary functions of one element."""

from __future__ import annotations

import math

import numpy as np

from .registry import unary

_FAR = 4096


def _log_gamma(x: float) -> float:
    """Infinite at 0 and at negative whole numbers; at -inf there is no limit."""
    if x == -math.inf:
        return math.nan
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def _digamma(x: np.ndarray) -> np.ndarray:
    """The asymptotic series at x + 4096, less 1 / x, 1 / (x + 1) and so on up to there."""
    far = x + _FAR
    behind = (1 / (x[..., None] + np.arange(_FAR))).sum(-1)
    return np.log(far) - 1 / (2 * far) - 1 / (12 * far**2) - behind


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
unary("lgamma", lambda x, a: np.vectorize(_log_gamma)(x))
unary("digamma", lambda x, a: _digamma(x))
unary("expm1", lambda x, a: np.exp(x) - 1)
unary("log1p", lambda x, a: np.log(1 + x))
unary("log2", lambda x, a: np.log(x) / np.log(2))
unary("log10", lambda x, a: np.log(x) / np.log(10))
unary("trunc", lambda x, a: np.sign(x) * np.floor(np.abs(x)))
