"""Optimizer updates: each is one function, from expressions of operands to those of their new values.

``declare_update.py`` says how such a function declares an op. Updates that need norms are in
``optimize_by_norm.py``.
"""

from __future__ import annotations

from typing import Any

from . import expr as e
from .declare_update import MASTER, SKIP, averaged, declare_update
from .expr import Expr
from .update import Number, Results


def _decayed(param: Expr, grad: Expr, l2_decay: float) -> Expr:
    """Return g + l2_decay p: L2 decay that a pass found before the update (no attribute of Paddle's)."""
    return grad + param * l2_decay if l2_decay else grad


@declare_update(optional=(MASTER,))
def sgd(param: Expr, grad: Expr, learning_rate: Expr, *, l2_decay: float = 0.0) -> Results:
    """p -= lr g."""
    return {"param": param - learning_rate * _decayed(param, grad, l2_decay)}


@declare_update(optional=(MASTER,))
def asgd(param: Expr, grad: Expr, learning_rate: Expr, d: Expr, y: Expr) -> Results:
    """d is the sum of the gradients of batches, y the one of this batch that it holds: d += g - y; p -= lr d.

    Schmidt, Le Roux and Bach, Mathematical Programming 162 (2017), of one batch.
    """
    total = d - y + grad
    return {"d": total, "y": grad, "param": param - learning_rate * total}


@declare_update(optional=(MASTER,))
def momentum(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    velocity: Expr,
    *,
    mu: float = 0.0,
    use_nesterov: bool = False,
    l2_decay: float = 0.0,
) -> Results:
    """v = mu v + g; p -= lr v, or with Nesterov's step p -= lr (g + mu v).

    Sutskever, Martens, Dahl and Hinton, ICML 2013, with the rate outside v as in Paddle.
    """
    grad = _decayed(param, grad, l2_decay)
    velocity = velocity * mu + grad
    step = velocity * mu + grad if use_nesterov else velocity
    return {"velocity": velocity, "param": param - learning_rate * step}


_ADAM: dict[str, Any] = {
    "unread": {"lazy_mode": False, "min_row_size_to_use_multithread": 1000},
    "optional": (MASTER, SKIP),
}
_BETA_TENSORS = {"Beta1Tensor": "beta1", "Beta2Tensor": "beta2"}


@declare_update(numbers=_BETA_TENSORS, tried={"epsilon": 0.1, "scales_epsilon": True}, **_ADAM)
def adam(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    moment1: Expr,
    moment2: Expr,
    beta1_pow: Expr,
    beta2_pow: Expr,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: Number = 1e-8,
    powers_first: bool = False,
    scales_epsilon: bool = False,
    l2_decay: float = 0.0,
) -> Results:
    """lr_t = lr sqrt(1 - b2^t) / (1 - b1^t), then p -= lr_t m / (sqrt(v) + e). The powers advance after use.

    Kingma and Ba, arXiv 1412.6980: section 2 adds e to the root of v, as Paddle 1.x does, algorithm 1 to that
    of v / (1 - b2^t), as Paddle 2.x does (``scales_epsilon``: e sqrt(1 - b2^t)). With
    ``powers_first`` the powers advance before use, as in Paddle's lazy update of rows.
    """
    grad = _decayed(param, grad, l2_decay)
    first, second = beta1_pow * beta1, beta2_pow * beta2
    powers = (first, second) if powers_first else (beta1_pow, beta2_pow)
    unbiased = e.sqrt(1 - powers[1])
    rate = learning_rate * unbiased / (1 - powers[0])
    floor = epsilon * unbiased if scales_epsilon else epsilon
    moment1 = averaged(moment1, grad, beta1)
    moment2 = averaged(moment2, grad * grad, beta2)
    return {
        "moment1": moment1,
        "moment2": moment2,
        "param": param - moment1 / (e.sqrt(moment2) + floor) * rate,
        "beta1_pow": first,
        "beta2_pow": second,
    }


@declare_update(
    own=("lr_ratio", "coeff", "with_decay"),
    numbers={**_BETA_TENSORS, "EpsilonTensor": "epsilon"},
    tried={"epsilon": 0.1, "lr_ratio": 0.5, "coeff": 0.25, "with_decay": True},
    **_ADAM,
)
def adamw(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    moment1: Expr,
    moment2: Expr,
    beta1_pow: Expr,
    beta2_pow: Expr,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lr_ratio: Number = 1.0,
    coeff: Number = 0.01,
    with_decay: Any = False,
) -> Results:
    """p -= lr coeff p, then Adam's step, epsilon corrected. Loshchilov and Hutter, arXiv 1711.05101."""
    rate = learning_rate * lr_ratio
    if with_decay.value:  # of what is read while it runs, the name
        param = param - rate * (coeff * with_decay) * param
    state = (moment1, moment2, beta1_pow, beta2_pow)
    options: dict[str, Any] = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    return adam(param, grad, rate, *state, **options, scales_epsilon=True)


@declare_update(tried={"epsilon": 0.1, "coeff": 0.25, "with_decay": True, "lr_ratio": 0.5}, **_ADAM)
def amsgrad(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    moment1: Expr,
    moment2: Expr,
    moment2_max: Expr,
    beta1_pow: Expr,
    beta2_pow: Expr,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lr_ratio: float = 1.0,
    coeff: float = 0.0,
    with_decay: bool = False,
) -> Results:
    """Adam, and AdamW ``with_decay``, by the largest second moment so far. Reddi et al., arXiv 1904.09237."""
    rate = learning_rate * lr_ratio
    param = param - rate * coeff * param if with_decay else param
    state = (moment1, moment2, beta1_pow, beta2_pow)
    results = adam(param, grad, rate, *state, beta1=beta1, beta2=beta2)
    largest, root = e.maximum(moment2_max, results["moment2"]), e.sqrt(1 - beta2_pow)
    step = results["moment1"] / (e.sqrt(largest) + epsilon * root) * (rate * root / (1 - beta1_pow))
    return {**results, "moment2_max": largest, "param": param - step}


def _scaled(param: Expr, grad: Expr, rate: Expr, moment: Expr, epsilon: float) -> Expr:
    return param - grad / (e.sqrt(moment) + epsilon) * rate


@declare_update()
def adagrad(
    param: Expr, grad: Expr, learning_rate: Expr, moment: Expr, *, epsilon: float = 1e-6
) -> Results:
    """m += g^2; p -= lr g / (sqrt(m) + e). Duchi, Hazan and Singer, JMLR 12 (2011)."""
    moment = moment + grad * grad
    return {"moment": moment, "param": _scaled(param, grad, learning_rate, moment, epsilon)}


@declare_update()
def decayed_adagrad(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    moment: Expr,
    *,
    decay: float = 0.95,
    epsilon: float = 1e-6,
) -> Results:
    """m = decay m + (1 - decay) g^2; p -= lr g / (sqrt(m) + e): Paddle's op of this name."""
    moment = averaged(moment, grad * grad, decay)
    return {"moment": moment, "param": _scaled(param, grad, learning_rate, moment, epsilon)}


@declare_update()
def adamax(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    moment: Expr,
    inf_norm: Expr,
    beta1_pow: Expr,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> Results:
    """m as in Adam, u = max(|g|, b2 u + e); p -= lr / (1 - b1^t) m / u. Kingma and Ba, section 7.1.

    The power is advanced by an op of its own, as in Paddle.
    """
    moment = averaged(moment, grad, beta1)
    inf_norm = e.maximum(e.abs_(grad), inf_norm * beta2 + epsilon)
    rate = learning_rate / (1 - beta1_pow)
    return {"moment": moment, "inf_norm": inf_norm, "param": param - moment / inf_norm * rate}


@declare_update(dispensable=("LearningRate",), tried={"with_rate": True})
def adadelta(
    param: Expr,
    grad: Expr,
    avg_squared_grad: Expr,
    avg_squared_update: Expr,
    learning_rate: Expr,
    *,
    rho: float = 0.95,
    epsilon: float = 1e-6,
    with_rate: bool = False,
) -> Results:
    """The step is the gradient times a ratio of running root mean squares. Zeiler, arXiv 1212.5701.

    Paddle 2 multiplies it by the learning rate (``with_rate``).
    """
    squared_grad = averaged(avg_squared_grad, grad * grad, rho)
    step = e.sqrt((avg_squared_update + epsilon) / (squared_grad + epsilon)) * grad
    return {
        "avg_squared_grad": squared_grad,
        "avg_squared_update": averaged(avg_squared_update, step * step, rho),
        "param": param - (step * learning_rate if with_rate else step),
    }


@declare_update(
    dispensable=("MeanGrad",), tried={"epsilon": 1.0, "momentum": 0.5, "centered": True}
)
def rmsprop(
    param: Expr,
    mean_square: Expr,
    mean_grad: Expr,
    learning_rate: Expr,
    grad: Expr,
    moment: Expr,
    *,
    epsilon: float = 1e-10,
    decay: float = 0.9,
    momentum: float = 0.0,
    centered: bool = False,
) -> Results:
    """s averaged over g^2; m = momentum m + lr g / sqrt(s + e); p -= m.

    Tieleman and Hinton, Neural Networks for Machine Learning, lecture 6.5 (2012). Centered: s less the square
    of an averaged gradient, Graves, arXiv 1308.0850.
    """
    mean_square = averaged(mean_square, grad * grad, decay)
    variance = mean_square
    if centered:
        mean_grad = averaged(mean_grad, grad, decay)
        variance = mean_square - mean_grad * mean_grad
    moment = moment * momentum + learning_rate * grad / e.sqrt(variance + epsilon)
    return {
        "mean_square": mean_square,
        "mean_grad": mean_grad,
        "moment": moment,
        "param": param - moment,
    }
