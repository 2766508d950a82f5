"""Optimizer updates, in blocks that stay in cache: each block takes all its passes before the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...device.device import Device
from ..registry import Step, kernel
from .masters import MASTER_OPERANDS, with_masters

_BLOCK = 32 * 1024  # elements: five float32 arrays of this size fit a 1 MB cache


def blocks(*arrays: Any) -> list[tuple[Any, ...]]:
    """Cut arrays of one size into flat blocks; returns, for each block, its part of every array."""
    flat = [array.reshape(-1) for array in arrays]
    size = flat[0].size
    return [
        tuple(array[start : start + _BLOCK] for array in flat)
        for start in range(0, max(size, 1), _BLOCK)
    ]


def _work(dev: Device, like: Any) -> Any:
    return dev.scratch((min(like.size, _BLOCK),), like.dtype)


@kernel("sgd")
@with_masters("master_param", "master_param_out")
def sgd(dev: Device, param: Any, grad: Any, learning_rate: Any, param_out: Any) -> list[Step]:
    """p -= lr * g."""
    xp, work = dev.xp, _work(dev, param)
    steps: list[Step] = []
    for p, g, p_out in blocks(param, grad, param_out):
        t = work[: p.size]
        steps += [partial(xp.multiply, g, learning_rate, t), partial(xp.subtract, p, t, p_out)]
    return steps


@kernel("momentum")
@with_masters("master_param", "master_param_out")
def momentum(
    dev: Device,
    param: Any,
    grad: Any,
    velocity: Any,
    learning_rate: Any,
    param_out: Any,
    velocity_out: Any,
    *,
    mu: float,
    use_nesterov: bool,
) -> list[Step]:
    """v = mu v + g; p -= lr v, or with Nesterov's step p -= lr (g + mu v)."""
    xp, work = dev.xp, _work(dev, param)
    steps: list[Step] = []
    for p, g, v, p_out, v_out in blocks(param, grad, velocity, param_out, velocity_out):
        t = work[: p.size]
        steps += [partial(xp.multiply, v, mu, v_out), partial(xp.add, v_out, g, v_out)]
        if use_nesterov:
            steps += [partial(xp.multiply, v_out, mu, t), partial(xp.add, t, g, t)]
            steps.append(partial(xp.multiply, t, learning_rate, t))
        else:
            steps.append(partial(xp.multiply, v_out, learning_rate, t))
        steps.append(partial(xp.subtract, p, t, p_out))
    return steps


def _rest(beta: float, like: Any) -> Any:
    return like.dtype.type(1) - like.dtype.type(beta)


def _averaged(xp: Any, old: Any, new: Any, out: Any, beta: float, t: Any) -> list[Step]:
    """out = beta * old + (1 - beta) * new, with 1 - beta rounded like Paddle's: in the element type."""
    return [
        partial(xp.multiply, new, _rest(beta, t), t),
        partial(xp.multiply, old, beta, out),
        partial(xp.add, out, t, out),
    ]


@kernel("adam")
@with_masters(*MASTER_OPERANDS)
def adam(
    dev: Device,
    param: Any,
    grad: Any,
    learning_rate: Any,
    moment1: Any,
    moment2: Any,
    beta1_pow: Any,
    beta2_pow: Any,
    param_out: Any,
    moment1_out: Any,
    moment2_out: Any,
    beta1_pow_out: Any,
    beta2_pow_out: Any,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> list[Step]:
    """Kingma and Ba, arXiv 1412.6980; lr_t = lr sqrt(1 - b2^t) / (1 - b1^t), then p -= lr_t m / (sqrt(v) + e).

    As in Paddle, epsilon is not corrected for the bias of v. The powers advance after use.
    """
    xp, work = dev.xp, _work(dev, param)
    rate = dev.scratch((1,), param.dtype)
    root = dev.scratch((1,), param.dtype)
    steps: list[Step] = [
        partial(xp.subtract, 1.0, beta2_pow, root),
        partial(xp.sqrt, root, root),
        partial(xp.multiply, learning_rate, root, rate),
        partial(xp.subtract, 1.0, beta1_pow, root),
        partial(xp.divide, rate, root, rate),
    ]
    parts = blocks(param, grad, moment1, moment2, param_out, moment1_out, moment2_out)
    for p, g, m, v, p_out, m_out, v_out in parts:
        t = work[: p.size]
        steps += _averaged(xp, m, g, m_out, beta1, t)
        steps += [
            partial(xp.multiply, g, g, t),
            partial(xp.multiply, t, _rest(beta2, t), t),
            partial(xp.multiply, v, beta2, v_out),
            partial(xp.add, v_out, t, v_out),
            partial(xp.sqrt, v_out, t),
            partial(xp.add, t, epsilon, t),
            partial(xp.divide, m_out, t, t),
            partial(xp.multiply, t, rate, t),
            partial(xp.subtract, p, t, p_out),
        ]
    return [
        *steps,
        partial(xp.multiply, beta1_pow, beta1, beta1_pow_out),
        partial(xp.multiply, beta2_pow, beta2, beta2_pow_out),
    ]


@kernel("adamw")
@with_masters(*MASTER_OPERANDS)
def adamw(
    dev: Device,
    param: Any,
    grad: Any,
    learning_rate: Any,
    moment1: Any,
    moment2: Any,
    beta1_pow: Any,
    beta2_pow: Any,
    param_out: Any,
    moment1_out: Any,
    moment2_out: Any,
    beta1_pow_out: Any,
    beta2_pow_out: Any,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    lr_ratio: float,
    coeff: float,
    with_decay: bool,
) -> list[Step]:
    """p -= lr coeff p, then Adam's, epsilon corrected. Loshchilov and Hutter, arXiv 1711.05101."""
    xp, work = dev.xp, _work(dev, param)
    rate, floor, decay = (dev.scratch((1,), param.dtype) for _ in range(3))
    steps: list[Step] = [
        partial(xp.multiply, learning_rate, lr_ratio, rate),
        partial(xp.subtract, 1.0, beta2_pow, floor),
        partial(xp.sqrt, floor, floor),
        partial(xp.multiply, floor, epsilon, floor),
    ]
    if with_decay:
        steps.append(partial(xp.multiply, rate, coeff, decay))
        for p, p_out in blocks(param, param_out):
            t = work[: p.size]
            steps += [partial(xp.multiply, p, decay, t), partial(xp.subtract, p, t, p_out)]
        param = param_out
    read = (param, grad, rate, moment1, moment2, beta1_pow, beta2_pow)
    written = (param_out, moment1_out, moment2_out, beta1_pow_out, beta2_pow_out)
    return steps + adam(dev, *read, *written, beta1=beta1, beta2=beta2, epsilon=floor)


def _scaled_step(
    xp: Any, g: Any, divisor: Any, rate: Any, epsilon: float, p: Any, out: Any
) -> list[Step]:
    """out = p - rate * g / (sqrt(divisor) + epsilon), computed in ``divisor``'s copy ``t``."""
    t, moment = divisor
    return [
        partial(xp.sqrt, moment, t),
        partial(xp.add, t, epsilon, t),
        partial(xp.divide, g, t, t),
        partial(xp.multiply, t, rate, t),
        partial(xp.subtract, p, t, out),
    ]


@kernel("adagrad")
def adagrad(
    dev: Device,
    param: Any,
    grad: Any,
    moment: Any,
    learning_rate: Any,
    param_out: Any,
    moment_out: Any,
    *,
    epsilon: float,
) -> list[Step]:
    """m += g^2; p -= lr g / (sqrt(m) + e). Duchi, Hazan and Singer, JMLR 12 (2011)."""
    xp, work = dev.xp, _work(dev, param)
    steps: list[Step] = []
    for p, g, m, p_out, m_out in blocks(param, grad, moment, param_out, moment_out):
        t = work[: p.size]
        steps += [partial(xp.multiply, g, g, t), partial(xp.add, m, t, m_out)]
        steps += _scaled_step(xp, g, (t, m_out), learning_rate, epsilon, p, p_out)
    return steps


@kernel("decayed_adagrad")
def decayed_adagrad(
    dev: Device,
    param: Any,
    grad: Any,
    moment: Any,
    learning_rate: Any,
    param_out: Any,
    moment_out: Any,
    *,
    decay: float,
    epsilon: float,
) -> list[Step]:
    """m = decay m + (1 - decay) g^2; p -= lr g / (sqrt(m) + e)."""
    xp, work = dev.xp, _work(dev, param)
    second = _work(dev, param)
    steps: list[Step] = []
    for p, g, m, p_out, m_out in blocks(param, grad, moment, param_out, moment_out):
        t, s = work[: p.size], second[: p.size]
        steps += [partial(xp.multiply, g, g, s), *_averaged(xp, m, s, m_out, decay, t)]
        steps += _scaled_step(xp, g, (t, m_out), learning_rate, epsilon, p, p_out)
    return steps


@kernel("adamax")
def adamax(
    dev: Device,
    param: Any,
    grad: Any,
    learning_rate: Any,
    moment: Any,
    inf_norm: Any,
    beta1_pow: Any,
    param_out: Any,
    moment_out: Any,
    inf_norm_out: Any,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> list[Step]:
    """m as in Adam, u = max(|g|, b2 u + e); p -= lr / (1 - b1^t) m / u. Kingma and Ba, section 7.1."""
    xp, work = dev.xp, _work(dev, param)
    rate = dev.scratch((1,), param.dtype)
    steps: list[Step] = [
        partial(xp.subtract, 1.0, beta1_pow, rate),
        partial(xp.divide, learning_rate, rate, rate),
    ]
    parts = blocks(param, grad, moment, inf_norm, param_out, moment_out, inf_norm_out)
    for p, g, m, u, p_out, m_out, u_out in parts:
        t = work[: p.size]
        steps += _averaged(xp, m, g, m_out, beta1, t)
        steps += [
            partial(xp.absolute, g, t),
            partial(xp.multiply, u, beta2, u_out),
            partial(xp.add, u_out, epsilon, u_out),
            partial(xp.maximum, t, u_out, out=u_out),
            partial(xp.divide, m_out, u_out, t),
            partial(xp.multiply, t, rate, t),
            partial(xp.subtract, p, t, p_out),
        ]
    return steps


@kernel("adadelta")
def adadelta(
    dev: Device,
    param: Any,
    grad: Any,
    avg_squared_grad: Any,
    avg_squared_update: Any,
    param_out: Any,
    avg_squared_grad_out: Any,
    avg_squared_update_out: Any,
    *,
    rho: float,
    epsilon: float,
) -> list[Step]:
    """Zeiler, arXiv 1212.5701, algorithm 1."""
    xp, work, second = dev.xp, _work(dev, param), _work(dev, param)
    steps: list[Step] = []
    parts = blocks(
        param,
        grad,
        avg_squared_grad,
        avg_squared_update,
        param_out,
        avg_squared_grad_out,
        avg_squared_update_out,
    )
    root: Callable[..., Any] = xp.sqrt
    for p, g, a, u, p_out, a_out, u_out in parts:
        t, s = work[: p.size], second[: p.size]
        steps += [partial(xp.multiply, g, g, s), *_averaged(xp, a, s, a_out, rho, t)]
        steps += [
            partial(xp.add, u, epsilon, s),
            partial(xp.add, a_out, epsilon, t),
            partial(xp.divide, s, t, s),
            partial(root, s, s),
            partial(xp.multiply, s, g, s),
            partial(xp.subtract, p, s, p_out),
            partial(xp.multiply, s, s, s),
            *_averaged(xp, u, s, u_out, rho, t),
        ]
    return steps
