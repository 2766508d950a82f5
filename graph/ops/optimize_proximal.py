"""Updates that shrink parameters towards zero, some of them all the way."""

from __future__ import annotations

from . import expr as e
from .declare_update import declare_update
from .expr import Expr
from .update import Results


def _power(x: Expr, exponent: float) -> Expr:
    return e.sqrt(x) if exponent == 0.5 else x**exponent


def _shrunk(x: Expr, by: float | Expr) -> Expr:
    """Return x moved towards 0, and not beyond it."""
    return e.sign(x) * e.maximum(e.abs_(x) - by, 0.0)


def _proximal(param: Expr, rate: Expr, l1: float, l2: float) -> Expr:
    shrunk = _shrunk(param, rate * l1) if l1 > 0 else param
    return shrunk / (1 + rate * l2)


@declare_update(
    outputs={"squared_accumulator": "SquaredAccumOut", "linear_accumulator": "LinearAccumOut"},
    tried={"l1": 0.3, "l2": 0.2, "lr_power": -0.6},
)
def ftrl(
    param: Expr,
    squared_accumulator: Expr,
    linear_accumulator: Expr,
    grad: Expr,
    learning_rate: Expr,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    lr_power: float = -0.5,
) -> Results:
    """s += g^2, z += g - (s_new^-power - s^-power) / lr p; p = (l1 sign(z) - z) / (s^-power / lr + 2 l2).

    0 where \\|z\\| is at most l1, as where no gradient ever came (s = 0). A step at the rate 0, with which a
    warmup may begin, changes nothing. Follow the regularized leader, McMahan et al., KDD 2013.
    """
    moves = e.not_equal(learning_rate, 0.0)
    rate = e.where(moves, learning_rate, 1.0)
    squared = squared_accumulator + grad * grad
    root = _power(squared, -lr_power)
    grown = (root - _power(squared_accumulator, -lr_power)) / rate
    linear = linear_accumulator + grad - grown * param
    scale = root / rate + 2 * l2
    leader = _shrunk(-linear, l1) / e.where(scale > 0, scale, 1.0)
    return {
        "squared_accumulator": e.where(moves, squared, squared_accumulator),
        "linear_accumulator": e.where(moves, linear, linear_accumulator),
        "param": e.where(moves, leader, param),
    }


@declare_update(tried={"l1": 0.3, "l2": 0.2})
def proximal_gd(
    param: Expr, grad: Expr, learning_rate: Expr, *, l1: float = 0.0, l2: float = 0.0
) -> Results:
    """q = p - lr g; p = sign(q) max(\\|q\\| - lr l1, 0) / (1 + lr l2). Duchi and Singer, JMLR 10 (2009)."""
    return {"param": _proximal(param - learning_rate * grad, learning_rate, l1, l2)}


@declare_update(tried={"l1": 0.3, "l2": 0.2})
def proximal_adagrad(
    param: Expr, moment: Expr, grad: Expr, learning_rate: Expr, *, l1: float = 0.0, l2: float = 0.0
) -> Results:
    """m += g^2, then as proximal_gd with the gradient g / sqrt(m)."""
    moment = moment + grad * grad
    step = param - learning_rate * grad / e.sqrt(moment)
    return {"moment": moment, "param": _proximal(step, learning_rate, l1, l2)}
