"""Functions of ``fluid.layers`` that have ops of their own in Paddle, and are built from others here."""

from __future__ import annotations

from typing import Any

from ...functions import creation
from ...graph.layers import draws, tensors, unary
from ...graph.layers import shape as layers
from ...graph.layers.arguments import Floats
from ...graph.layers.nn import batch_norm
from ...graph.program import unique_name
from ...graph.program.variable import Variable
from ...nn import activations, losses
from ...strategies.errors import InvalidValue

dice_loss = losses.dice_loss
npair_loss = losses.npair_loss


def arange(
    start: Any, end: Any, step: Any = 1, dtype: Any = None, name: str | None = None
) -> Variable:
    """start, start + step, ... up to but without ``end``, float32 by default."""
    return creation.arange(start, end, step, "float32" if dtype is None else dtype)


def into(value: Variable, out: Variable | None, stop_gradient: bool) -> Variable:
    """Copy a result to ``out``, if there is one, and say whether gradients end there."""
    result = value if out is None else layers.assign(value, out)
    result.stop_gradient = stop_gradient
    return result


def randint(
    low: int,
    high: int | None = None,
    shape: Any = None,
    out: Variable | None = None,
    dtype: Any = None,
    device: Any = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Integers from ``low`` up to but without ``high``; one number is the end, from 0."""
    low, high = (0, low) if high is None else (low, high)
    kind = "int64" if dtype is None else dtype
    numbers = draws.randint(low, high, [1] if shape is None else shape, kind, seed, name)
    return into(numbers, out, stop_gradient)


def randn(
    shape: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: Any = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Numbers of the standard normal distribution."""
    kind = "float32" if dtype is None else dtype
    return into(tensors.gaussian_random(shape, dtype=kind), out, stop_gradient)


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: Any = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """The integers below ``n`` in a random order."""
    return into(draws.randperm(n, dtype, seed), out, stop_gradient)


def log_softmax(
    input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """x - log(sum(exp(x))) along ``axis`` (the last)."""
    return activations.log_softmax(input, -1 if axis is None else axis, dtype)


def inplace_abn(
    input: Floats,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """Batch norm and an activation: identity (None), leaky_relu or elu, with ``act_alpha``.

    Raises:
        InvalidValue: ``act`` is another, or ``bias_attr`` is False.
    """
    if act not in (None, "identity", "leaky_relu", "elu"):
        raise InvalidValue(f"inplace_abn: act is identity, leaky_relu or elu, got {act!r}.")
    if bias_attr is False:
        raise InvalidValue("inplace_abn: bias_attr cannot be False.")
    name = name or unique_name.generate("inplace_abn")
    y = batch_norm(
        input, None, is_test, momentum, epsilon, param_attr, bias_attr, data_layout, True, name,
        moving_mean_name, moving_variance_name, do_model_average_for_mean_and_var, use_global_stats,
    )  # fmt: skip
    if act in (None, "identity"):
        return y
    return (unary.elu if act == "elu" else unary.leaky_relu)(y, float(act_alpha))
