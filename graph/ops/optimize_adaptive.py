"""Updates of Paddle 2.x that adapt each element's step."""

from __future__ import annotations

from . import expr as e
from .declare_update import MASTER, averaged, declare_update
from .expr import Expr
from .update import Results

_DECAY = 0.96  # of the schedule of momentum


@declare_update(like_param=("momentum_decay_pow", "beta2_pow"), tried={"epsilon": 0.1})
def nadam(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    momentum_decay_pow: Expr,
    beta2_pow: Expr,
    mu_product: Expr,
    moment1: Expr,
    moment2: Expr,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    momentum_decay: float = 0.004,
) -> Results:
    """Adam with Nesterov's momentum, whose coefficient grows: mu_t = b1 (1 - 0.96^(t decay) / 2).

    Dozat, ICLR workshop 2016. Powers are like the parameter, as in Paddle, whose checkpoints have them so.
    """
    momentum_decay_pow = momentum_decay_pow * _DECAY
    beta2_pow = beta2_pow * beta2
    decayed = momentum_decay_pow**momentum_decay
    mu = (1 - decayed * 0.5) * beta1
    next_mu = (1 - decayed * (0.5 * _DECAY**momentum_decay)) * beta1
    mu_product = mu_product * mu
    moment1 = averaged(moment1, grad, beta1)
    moment2 = averaged(moment2, grad * grad, beta2)
    ahead = next_mu * moment1 / (1 - mu_product * next_mu)
    mean = ahead + (1 - mu) * grad / (1 - mu_product)
    return {
        "momentum_decay_pow": momentum_decay_pow,
        "beta2_pow": beta2_pow,
        "mu_product": mu_product,
        "moment1": moment1,
        "moment2": moment2,
        "param": param - learning_rate * mean / (e.sqrt(moment2 / (1 - beta2_pow)) + epsilon),
    }


@declare_update(like_param=("beta1_pow", "beta2_pow"), tried={"epsilon": 0.1, "beta2": 0.99})
def radam(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    beta1_pow: Expr,
    beta2_pow: Expr,
    rho: Expr,
    moment1: Expr,
    moment2: Expr,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> Results:
    """Adam, with momentum alone while the second moment's variance is not known: Liu et al., arXiv 1908.03265.

    ``rho`` is t b2^t / (1 - b2^t). Powers are like the parameter, as in Paddle, whose checkpoints have them so.
    """
    beta1_pow, beta2_pow = beta1_pow * beta1, beta2_pow * beta2
    rho = (rho * (beta2 - beta2_pow) + beta2_pow) / (1 - beta2_pow)
    moment1 = averaged(moment1, grad, beta1)
    moment2 = averaged(moment2, grad * grad, beta2)
    longest = 2 / (1 - e.constant(beta2)) - 1  # average, in steps
    length = longest - rho * 2
    known = e.maximum(length, 5.0)
    variance = (known - 4) * (known - 2) * longest / ((longest - 4) * (longest - 2) * known)
    adapted = e.sqrt(1 - beta2_pow) / (e.sqrt(moment2) + epsilon) * e.sqrt(variance)
    factor = e.where(length > 5.0, adapted, 1.0)
    return {
        "beta1_pow": beta1_pow,
        "beta2_pow": beta2_pow,
        "rho": rho,
        "moment1": moment1,
        "moment2": moment2,
        "param": param - learning_rate * moment1 / (1 - beta1_pow) * factor,
    }


@declare_update(optional=(MASTER,))
def rprop(
    param: Expr,
    grad: Expr,
    prev: Expr,
    learning_rates: Expr,
    *,
    learning_rate_min: float = 1e-5,
    learning_rate_max: float = 50.0,
    eta_negative: float = 0.5,
    eta_positive: float = 1.2,
) -> Results:
    """Each element's rate grows while its gradient keeps its sign, else shrinks; p -= sign(g) rate.

    Where the sign has changed, the element stays, and its gradient counts as 0 in the next step. Riedmiller and
    Braun, ICNN 1993.
    """
    product = grad * prev
    grown = e.where(product > 0, eta_positive, e.where(product < 0, eta_negative, 1.0))
    rate = e.minimum(e.maximum(learning_rates * grown, learning_rate_min), learning_rate_max)
    grad = e.where(product < 0, 0.0, grad)
    return {"prev": grad, "learning_rates": rate, "param": param - e.sign(grad) * rate}
