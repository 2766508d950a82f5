"""Optimizer updates: each is one function, from expressions of what it reads to those of what it updates.

The function is the declaration. Its operands are the op's inputs, in their order; what it returns are the op's
outputs, each the same memory as the input it updates; its keywords are attributes with their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...strategies.types import LOW, VarType
from . import expr as e
from .expr import Expr
from .registry import Inference, Op, Spec, Specs, define
from .samples import normal, sample, uniform
from .update import Number, Results, Rule, Update

MASTER, SKIP = "MasterParam", "SkipUpdate"


def _shapes(state: Sequence[str], powers: Sequence[str]) -> Any:
    """Return the shape rule of an update: state and gradient are like Param, powers have one element.

    Beside a parameter in low precision its state and gradient may be float32, as its master is.
    """

    def rule(op: Inference) -> Mapping[str, Specs]:
        param = op.spec("Param")
        wide = param._replace(dtype=VarType.FP32)
        low = param.dtype in LOW
        for slot in ("Grad", *state):
            fits = op.spec(slot) == param or (low and op.spec(slot) == wide)
            op.require(fits, f"{slot} must be like Param")
        if op.has("LearningRate"):
            op.require(op.shape("LearningRate") == (1,), "LearningRate must have one element")
        if op.has(SKIP):
            op.require(op.spec(SKIP) == Spec((1,), VarType.BOOL), f"{SKIP} must be one boolean")
        updated = {f"{slot}Out": op.spec(slot) for slot in ("Param", *state, *powers)}
        if op.has(MASTER):
            op.require(
                op.spec(MASTER) == wide and low,
                f"{MASTER} must be float32, of the shape of Param in low precision",
            )
            updated[f"{MASTER}Out"] = wide
        return updated

    return rule


def _slot(name: str) -> str:
    """Return the slot of an operand: ``beta1_pow`` is Beta1Pow."""
    return "".join(part.capitalize() for part in name.split("_"))


def _update(
    *,
    own: tuple[str, ...] = (),
    unread: Mapping[str, Any] | None = None,
    numbers: Mapping[str, str] | None = None,
    optional: tuple[str, ...] = (),
    dispensable: tuple[str, ...] = (),
    tried: Mapping[str, Any] | None = None,
) -> Callable[[Rule], Rule]:
    """Declare the op that a rule is named after.

    ``own``: see :class:`Update`. ``unread`` are attributes that the rule has no use for, ``numbers`` slots that
    stand for attributes, ``optional`` which of MasterParam and SkipUpdate it takes. What is ``dispensable`` in
    Paddle's declaration is needed here: its optimizers always give it. ``tried`` are the sample's attributes.
    """

    def declare(rule: Rule) -> Rule:
        update = Update(rule, own)
        inputs = [_slot(name) for name in update.operands]
        scalars = [_slot(name) for name in update.scalars]
        updated = [_slot(name) for name in update.updated]
        state = [s for s in inputs if s not in (*scalars, "Param", "Grad")]
        powers = [s for s in scalars if s != "LearningRate"]
        masters = [slot for slot in optional if slot == MASTER]
        operands = {"Param": normal(3, 4), "Grad": normal(3, 4)}
        signed = ("Velocity", "Moment1")
        for slot in state:
            operands[slot] = normal(3, 4) if slot in signed else uniform(3, 4, low=0.1)
        operands |= {slot: uniform(1, low=0.5, high=0.9) for slot in powers}
        if "LearningRate" in inputs:
            operands["LearningRate"] = uniform(1, low=0.1)
        define(
            Op(
                type=rule.__name__,
                inputs=(
                    *(f"{slot}?" if slot in dispensable else slot for slot in inputs),
                    *(f"{slot}?" for slot in (*(numbers or {}), *optional)),
                ),
                outputs=(
                    *(f"{slot}Out" for slot in updated),
                    *(f"{slot}Out?" for slot in masters),
                ),
                attrs={
                    **update.attributes,
                    **(unread or {}),
                    **({"multi_precision": False} if masters else {}),
                },
                shape=_shapes(state, [slot for slot in powers if slot in updated]),
                update=update,
                numbers=numbers or {},
                in_place={f"{slot}Out": slot for slot in (*updated, *masters)},
                samples=(sample(operands, **(tried or {})),),
                refuses=(sample({**operands, "Grad": normal(4, 3)}),),
            )
        )
        return rule

    return declare


def _averaged(old: Expr, new: Expr, beta: float) -> Expr:
    """Return a running mean; 1 - beta is rounded in the element type, as in Paddle."""
    return old * beta + new * (1 - e.constant(beta))


@_update(optional=(MASTER,))
def sgd(param: Expr, grad: Expr, learning_rate: Expr) -> Results:
    """p -= lr g."""
    return {"param": param - learning_rate * grad}


@_update(optional=(MASTER,))
def momentum(
    param: Expr,
    grad: Expr,
    learning_rate: Expr,
    velocity: Expr,
    *,
    mu: float = 0.0,
    use_nesterov: bool = False,
) -> Results:
    """v = mu v + g; p -= lr v, or with Nesterov's step p -= lr (g + mu v).

    Sutskever, Martens, Dahl and Hinton, ICML 2013, with the rate outside v as in Paddle.
    """
    velocity = velocity * mu + grad
    step = velocity * mu + grad if use_nesterov else velocity
    return {"velocity": velocity, "param": param - learning_rate * step}


_ADAM: dict[str, Any] = {
    "unread": {"lazy_mode": False, "min_row_size_to_use_multithread": 1000},
    "optional": (MASTER, SKIP),
}
_BETA_TENSORS = {"Beta1Tensor": "beta1", "Beta2Tensor": "beta2"}


@_update(numbers=_BETA_TENSORS, **_ADAM)
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
) -> Results:
    """lr_t = lr sqrt(1 - b2^t) / (1 - b1^t), then p -= lr_t m / (sqrt(v) + e). The powers advance after use.

    Kingma and Ba, arXiv 1412.6980; as in Paddle, epsilon is not corrected for the bias of v.
    """
    rate = learning_rate * e.sqrt(1 - beta2_pow) / (1 - beta1_pow)
    moment1 = _averaged(moment1, grad, beta1)
    moment2 = _averaged(moment2, grad * grad, beta2)
    return {
        "moment1": moment1,
        "moment2": moment2,
        "param": param - moment1 / (e.sqrt(moment2) + epsilon) * rate,
        "beta1_pow": beta1_pow * beta1,
        "beta2_pow": beta2_pow * beta2,
    }


@_update(
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
    floor = epsilon * e.sqrt(1 - beta2_pow)
    state = (moment1, moment2, beta1_pow, beta2_pow)
    return adam(param, grad, rate, *state, beta1=beta1, beta2=beta2, epsilon=floor)


def _scaled(param: Expr, grad: Expr, rate: Expr, moment: Expr, epsilon: float) -> Expr:
    return param - grad / (e.sqrt(moment) + epsilon) * rate


@_update()
def adagrad(
    param: Expr, grad: Expr, learning_rate: Expr, moment: Expr, *, epsilon: float = 1e-6
) -> Results:
    """m += g^2; p -= lr g / (sqrt(m) + e). Duchi, Hazan and Singer, JMLR 12 (2011)."""
    moment = moment + grad * grad
    return {"moment": moment, "param": _scaled(param, grad, learning_rate, moment, epsilon)}


@_update()
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
    moment = _averaged(moment, grad * grad, decay)
    return {"moment": moment, "param": _scaled(param, grad, learning_rate, moment, epsilon)}


@_update()
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
    moment = _averaged(moment, grad, beta1)
    inf_norm = e.maximum(e.abs_(grad), inf_norm * beta2 + epsilon)
    rate = learning_rate / (1 - beta1_pow)
    return {"moment": moment, "inf_norm": inf_norm, "param": param - moment / inf_norm * rate}


@_update()
def adadelta(
    param: Expr,
    grad: Expr,
    avg_squared_grad: Expr,
    avg_squared_update: Expr,
    *,
    rho: float = 0.95,
    epsilon: float = 1e-6,
) -> Results:
    """The step is the gradient times a ratio of running root mean squares. Zeiler, arXiv 1212.5701."""
    squared_grad = _averaged(avg_squared_grad, grad * grad, rho)
    step = e.sqrt((avg_squared_update + epsilon) / (squared_grad + epsilon)) * grad
    return {
        "avg_squared_grad": squared_grad,
        "avg_squared_update": _averaged(avg_squared_update, step * step, rho),
        "param": param - step,
    }


@_update(
    dispensable=("MeanGrad",),
    tried={"epsilon": 1.0, "momentum": 0.5, "centered": True},
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
    mean_square = _averaged(mean_square, grad * grad, decay)
    variance = mean_square
    if centered:
        mean_grad = _averaged(mean_grad, grad, decay)
        variance = mean_square - mean_grad * mean_grad
    moment = moment * momentum + learning_rate * grad / e.sqrt(variance + epsilon)
    return {
        "mean_square": mean_square,
        "mean_grad": mean_grad,
        "moment": moment,
        "param": param - moment,
    }
