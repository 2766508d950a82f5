"""Normalisation by what nearby channels have: Krizhevsky, Sutskever and Hinton, NIPS 2012, section 3.3."""

from __future__ import annotations

from . import formula as f
from .operands import Array, Gradient, Input, Operands, Output, Positive
from .registry import Op, define
from .samples import sample
from .shapes import Sized


class LrnAttributes(Operands):
    n: Positive = 5
    k: float = 2.0
    alpha: float = 1e-4
    beta: float = 0.75
    use_mkldnn: bool = False
    data_format: str = "AnyLayout"
    is_test: bool = False


class Lrn(LrnAttributes):
    x: Input
    out: Output
    mid_out: Output


class LrnGrad(Lrn, Gradient, reads="x out mid_out"): ...


def _windows(x: Array, a: LrnAttributes) -> Array:
    """Return sums over ``n`` channels around each."""
    axis, reach = 3 if a.data_format == "NHWC" else 1, a.n // 2
    wide = f.padded(x, [(reach, reach) if i == axis else (0, 0) for i in range(4)])
    count, front = x.shape[axis], (slice(None),) * axis
    total = wide[(*front, slice(0, count))]
    for start in range(1, a.n):
        total = total + wide[(*front, slice(start, start + count))]
    return total


def lrn(a: Lrn) -> f.Results:
    """Out = X MidOut^-beta, MidOut = k + alpha sum of X^2 over nearby channels."""
    middle = a.k + a.alpha * _windows(a.x * a.x, a)
    return {"out": a.x * middle ** (-a.beta), "mid_out": middle}


def lrn_grad(a: LrnGrad) -> f.Results:
    """dX = dOut MidOut^-beta - 2 alpha beta X (sum of dOut Out / MidOut over nearby channels)."""
    nearby = _windows(a.d_out * a.out / a.mid_out, a)
    direct = a.d_out * a.mid_out ** (-a.beta)
    return {"d_x": direct - (2 * a.alpha * a.beta) * a.x * nearby}


define(
    "lrn",
    Lrn,
    Sized("X [N C H W] -> Out as X, MidOut as X", "n % 2 == 1; n must be odd"),
    formula=lrn,
    samples=(
        sample("X [2 6 2 2]", alpha=0.5),
        sample("X [2 2 2 4]", n=3, beta=0.5, k=1.0, alpha=0.1, data_format="NHWC"),
    ),
    slope=Op("lrn_grad", LrnGrad, formula=lrn_grad),
)
