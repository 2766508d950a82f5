"""Updates whose step depends on norms of a parameter, its gradient or the step itself."""

from __future__ import annotations

from typing import Any

from . import expr as e
from .declare_update import MASTER, SKIP, averaged, declare_update
from .expr import Expr
from .update import Number, Results


def _norm(x: Expr) -> Expr:
    return e.sqrt(e.total(x * x))


@declare_update(tried={"mu": 0.9, "lars_coeff": 0.3, "lars_weight_decay": 0.2})
def lars_momentum(
    param: Expr,
    grad: Expr,
    velocity: Expr,
    learning_rate: Expr,
    *,
    mu: float = 0.0,
    lars_coeff: float = 0.001,
    lars_weight_decay: float = 0.0005,
) -> Results:
    """v = mu v + lr_p (g + decay p); p -= v, with lr_p = lr coeff |p| / (|g| + decay |p|).

    lr_p is lr where a norm is 0. You, Gitman and Ginsburg, arXiv 1708.03888.
    """
    p_norm, g_norm = _norm(param), _norm(grad)
    trust = lars_coeff * p_norm / (g_norm + lars_weight_decay * p_norm)
    rate = learning_rate * e.where((p_norm > 0) & (g_norm > 0), trust, 1.0)
    velocity = velocity * mu + (param * lars_weight_decay + grad) * rate
    return {"velocity": velocity, "param": param - velocity}


@declare_update(
    own=("weight_decay",),
    optional=(MASTER, SKIP),
    dispensable=("Beta1PowOut", "Beta2PowOut"),
    tried={"weight_decay": 0.2, "epsilon": 0.1, "corrects_bias": True},
)
def lamb(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    moment1: Expr,
    moment2: Expr,
    beta1_pow: Expr,
    beta2_pow: Expr,
    *,
    weight_decay: Number = 0.0,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    always_adapt: bool = True,
    corrects_bias: bool = False,
) -> Results:
    """r = m / (sqrt(v) + e) + decay p; p -= lr |p| / |r| r, or lr r where a norm is 0.

    You et al., arXiv 1904.00962. Paddle 1.8 uses the moments as they are. Paddle 2 corrects their bias
    (``corrects_bias``), advances the powers, and without decay takes norms only if ``always_adapt``.
    """
    moment1 = averaged(moment1, grad, beta1)
    moment2 = averaged(moment2, grad * grad, beta2)
    mean, square = moment1, moment2
    if corrects_bias:
        mean, square = moment1 / (1 - beta1_pow), moment2 / (1 - beta2_pow)
    step = mean / (e.sqrt(square) + epsilon) + param * weight_decay
    p_norm, step_norm = _norm(param), _norm(step)
    adapts: Any = (p_norm > 0) & (step_norm > 0)
    if not always_adapt:
        adapts = adapts & (weight_decay > e.constant(0))
    rate = learning_rate * e.where(adapts, p_norm / step_norm, 1.0)
    return {
        "moment1": moment1,
        "moment2": moment2,
        "param": param - step * rate,
        "beta1_pow": beta1_pow * beta1 if corrects_bias else beta1_pow,
        "beta2_pow": beta2_pow * beta2 if corrects_bias else beta2_pow,
    }


@declare_update(
    unread={"seed": 0}, dispensable=("Noise",), tried={"clip": 0.5, "batch_size": 4.0, "sigma": 0.3}
)
def dpsgd(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    noise: Expr,
    *,
    clip: float = 0.9,
    batch_size: float = 0.999,
    sigma: float = 1e-8,
) -> Results:
    """p -= lr (g / max(1, |g| / clip) + sigma noise / batch_size).

    After Abadi et al., arXiv 1607.00133. As in Paddle, the gradient is clipped once for the whole batch, and
    one standard normal number is added to all elements: the paper's guarantee of privacy needs more. The number
    is drawn by a node of its own (``graph/passes/draw_noise.py``).
    """
    scale = e.maximum(_norm(grad) / clip, 1.0)
    step = grad / scale + noise * sigma / batch_size if sigma else grad / scale
    return {"param": param - step * learning_rate}
