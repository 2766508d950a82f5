"""Activations that cut, shrink or bend: what rectifiers became."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any, Literal

from . import expr as e
from . import formula as f
from .activation import define_activation
from .operands import Unary, record_of
from .registry import Shapes, define, slope
from .samples import normal, sample
from .shapes import Sized


def _near(*kinks: float, **attrs: Any) -> Any:
    return sample({"X": normal(3, 4, away_from=kinks)}, **attrs)


define_activation(
    "brelu",
    lambda x, *, t_min, t_max: e.minimum(e.maximum(x, t_min), t_max),
    "X",
    lambda x, d_out, *, t_min, t_max: e.where((x > t_min) & (x < t_max), d_out, 0),
    attrs={"t_min": 0.0, "t_max": 24.0},
    samples=(_near(0.0), _near(-0.5, 0.5, t_min=-0.5, t_max=0.5)),
)
define_activation(
    "hard_shrink",
    lambda x, *, threshold: e.where((x >= -threshold) & (x <= threshold), 0, x),
    "X",
    lambda x, d_out, *, threshold: e.where((x > threshold) | (x < -threshold), d_out, 0),
    attrs={"threshold": 0.5},
    samples=(_near(-0.5, 0.5), _near(-1.0, 1.0, threshold=1.0)),
)
define_activation(
    "softshrink",
    lambda x, *, lambda_: e.where(x > lambda_, x - lambda_, e.where(x >= -lambda_, 0, x + lambda_)),
    "X",
    lambda x, d_out, *, lambda_: e.where((x > lambda_) | (x < -lambda_), d_out, 0),
    attrs={"lambda": 0.5},
    samples=(_near(-0.5, 0.5), _near(-1.0, 1.0, **{"lambda": 1.0})),
)
define_activation(
    "tanh_shrink", lambda x: x - e.tanh(x), "X", lambda x, d_out: d_out * e.square(e.tanh(x))
)
define_activation(
    "thresholded_relu",
    lambda x, *, threshold: e.where(x <= threshold, 0, x),
    "X",
    lambda x, d_out, *, threshold: e.where(x > threshold, d_out, 0),
    attrs={"threshold": 1.0},
    samples=(_near(1.0), _near(-0.3, threshold=-0.3)),
)
define_activation(
    "stanh",
    lambda x, *, scale_a, scale_b: scale_b * e.tanh(scale_a * x),
    "X",
    lambda x, d_out, *, scale_a, scale_b: (
        d_out * (scale_a * scale_b) * (1 - e.square(e.tanh(scale_a * x)))
    ),
    attrs={"scale_a": 0.67, "scale_b": 1.7159},
    samples=(_near(), _near(scale_a=0.5, scale_b=2.0)),
)


def _soft_relu_slope(out: e.Expr, d_out: e.Expr, *, threshold: float) -> e.Expr:
    """1 - exp(-out) between the limits, which are out's own: what was cut may be off by a rounding."""
    low, high = (math.log1p(math.exp(t)) for t in (-threshold, threshold))
    inside = (out > low * (1 + 1e-6)) & (out < high * (1 - 1e-6))
    return e.where(inside, -(d_out * e.expm1(-out)), 0)


define_activation(
    "soft_relu",
    lambda x, *, threshold: e.log1p(e.exp(e.minimum(e.maximum(x, -threshold), threshold))),
    "Out",
    _soft_relu_slope,
    attrs={"threshold": 40.0},
    samples=(_near(), _near(-0.7, 0.7, threshold=0.7)),
)


def _bent_softplus(x: e.Expr, threshold: float) -> e.Expr:
    """log(1 + exp(x)); x above ``threshold``, and exp(x) below its negative, if it is positive."""
    middle = e.softplus(x)
    if threshold <= 0:
        return middle
    below = e.exp(e.minimum(x, 0))
    return e.where(x > threshold, x, e.where(x < -threshold, below, middle))


def _mish_slope(x: e.Expr, d_out: e.Expr, *, threshold: float) -> e.Expr:
    soft = _bent_softplus(x, threshold)
    bend = e.tanh(soft)
    return d_out * (bend - x * (1 - bend * bend) * e.expm1(-soft))


define_activation(
    "mish",  # Misra, arXiv 1908.08681: x * tanh(softplus(x))
    lambda x, *, threshold: x * e.tanh(_bent_softplus(x, threshold)),
    "X",
    _mish_slope,
    attrs={"threshold": 20.0},
)
define_activation(
    "selu",  # Klambauer et al., arXiv 1706.02515
    lambda x, *, scale, alpha: e.where(
        x > 0, scale * x, (scale * alpha) * e.expm1(e.minimum(x, 0))
    ),
    "Out",
    lambda out, d_out, *, scale, alpha: d_out * e.where(out > 0, scale, out + scale * alpha),
    attrs={"scale": 1.0507009873554805, "alpha": 1.6732632423543772},
    samples=(_near(0.0), _near(0.0, scale=1.5, alpha=0.5)),
)
define_activation(
    "celu",  # Barron, arXiv 1704.07483
    lambda x, *, alpha: e.where(x > 0, x, alpha * e.expm1(e.minimum(x, 0) * (1 / alpha))),
    "X",
    lambda x, d_out, *, alpha: e.where(x > 0, d_out, d_out * e.exp(e.minimum(x, 0) * (1 / alpha))),
    attrs={"alpha": 1.0},
    samples=(_near(0.0), _near(0.0, alpha=0.5)),
)


def _silu_slope(x: e.Expr, d_out: e.Expr) -> e.Expr:
    share = e.sigmoid(x)
    return d_out * share * (1 + x * (1 - share))


define_activation("silu", lambda x: x * e.sigmoid(x), "X", _silu_slope, attrs={})


prelu_shape = Sized(
    "X, Alpha as X -> Out, X@GRAD as X, Alpha@GRAD as Alpha",
    "mode in ('all', 'channel', 'element'); mode is unknown",
    "mode != 'channel' or len(X) > 1; X has no dimension of channels",
    "weights = 1 if mode == 'all' else X[1] if mode == 'channel' else prod(X[1:])",
    "prod(Alpha) == weights; Alpha must have as many weights as the mode takes",
)


def _beside_channels(shapes: Shapes, attrs: Mapping[str, Any]) -> Shapes:
    x = shapes["x"]
    alpha = {
        "all": (1,) * len(x),
        "channel": (1, *x[1:2], *(1 for _ in x[2:])),
        "element": (1, *x[1:]),
    }[attrs["mode"]]
    return {"alpha": alpha, "d_alpha": alpha}


_IMAGE = normal(2, 3, 2, 2, away_from=(0.0,))


define(
    "prelu",  # He et al., arXiv 1502.01852
    record_of("x alpha", "out", mode="all"),
    prelu_shape,
    aligned=_beside_channels,
    scalar=lambda x, alpha: e.where(x > 0, x, alpha * x),
    in_place={"Out": "X"},
    samples=(
        sample({"X": _IMAGE}, "Alpha [1]"),
        sample({"X": _IMAGE}, "Alpha [1 3 1 1]", mode="channel"),
        sample({"X": normal(4, 3, away_from=(0.0,))}, "Alpha [3]", mode="channel"),
        sample({"X": _IMAGE}, "Alpha [1 3 2 2]", mode="element"),
    ),
    slope=slope(
        "x alpha d_out",
        "d_x d_alpha",
        shape=prelu_shape,
        aligned=_beside_channels,
        scalar=lambda x, alpha, d_out: (
            e.where(x > 0, d_out, alpha * d_out),
            e.where(x > 0, 0, x * d_out),
        ),
    ),
)


class Maxout(Unary):
    groups: int
    axis: Literal[1, -1, 3] = 1


def maxout(a: Maxout) -> f.Results:
    """From the last channel of a group to the first: of equal ones the first has the gradient, as in Paddle."""
    axis, shape = a.axis % a.x.ndim, a.x.shape
    x: Any = a.x.reshape(*shape[:axis], shape[axis] // a.groups, a.groups, *shape[axis + 1 :])
    before = (slice(None),) * (axis + 1)
    return {"out": reduce(f.maximum, (x[(*before, k)] for k in reversed(range(a.groups))))}


define(
    "maxout",  # Goodfellow et al., arXiv 1302.4389
    Maxout,
    Sized(
        "X -> Out [*shape]",
        "len(X) == 4; X must have 4 dimensions",
        "groups > 1",
        "at = front(axis, X)",
        "X[at] % groups == 0; channels do not divide by groups",
        "shape = X[:at] + (X[at] // groups,) + X[at + 1 :]",
    ),
    formula=maxout,
    samples=(sample("X [2 6 3 2]", groups=2), sample("X [2 3 2 6]", groups=3, axis=-1)),
    slope=slope("x (out) d_out", "d_x"),
)
