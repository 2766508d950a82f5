"""``paddle.nn.functional`` for static programs."""

from __future__ import annotations

from typing import Any

from ..graph.layers import loss as losses
from ..graph.layers import nn as layers
from ..graph.layers import shape, unary
from ..graph.layers.unary import elu, gelu, relu, relu6, sigmoid, softplus, softsign, swish, tanh
from ..graph.variable import Variable
from ..names import listing, missing
from ..strategies.errors import InvalidValue

one_hot = shape.one_hot_v2


def leaky_relu(x: Variable, negative_slope: float = 0.01, name: str | None = None) -> Variable:
    """x where positive, else negative_slope x."""
    return unary.leaky_relu(x, negative_slope, name)


def softmax(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Variable:
    """exp(x) / sum(exp(x)) along ``axis``."""
    return unary.softmax(x if dtype is None else shape.cast(x, dtype), name=name, axis=axis)


def dropout(
    x: Variable,
    p: float = 0.5,
    training: bool = True,
    mode: str = "upscale_in_train",
    name: str | None = None,
) -> Variable:
    """Zero elements with probability ``p`` while training."""
    return unary.dropout(x, p, not training, name=name, dropout_implementation=mode)


def _reduced(loss: Variable, reduction: str) -> Variable:
    if reduction == "mean":
        return shape.mean(loss)
    if reduction == "sum":
        return shape.reduce_sum(loss)
    if reduction == "none":
        return loss
    raise InvalidValue(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")


def cross_entropy(
    input: Variable,
    label: Variable,
    ignore_index: int = -100,
    reduction: str = "mean",
    soft_label: bool = False,
    axis: int = -1,
) -> Variable:
    """Cross entropy of softmax(input) and labels [..., 1]."""
    if reduction == "mean" and ignore_index >= 0:
        raise InvalidValue(
            "cross_entropy(reduction='mean') with an ignore_index that may occur divides by the labels kept; "
            "that is not built. Use reduction='sum' and divide."
        )
    loss = losses.softmax_with_cross_entropy(input, label, soft_label, ignore_index, axis=axis)
    return _reduced(loss, reduction)


def mse_loss(input: Variable, label: Variable, reduction: str = "mean") -> Variable:
    """The squared difference, averaged."""
    return _reduced(losses.square_error_cost(input, label), reduction)


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """The squared difference."""
    return losses.square_error_cost(input, label)


def max_pool2d(
    x: Variable, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False
) -> Variable:
    """Maximum over windows."""
    stride = kernel_size if stride is None else stride
    return layers.pool2d(x, kernel_size, "max", stride, padding, ceil_mode=ceil_mode)


def avg_pool2d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
) -> Variable:
    """Average over windows."""
    stride = kernel_size if stride is None else stride
    return layers.pool2d(
        x, kernel_size, "avg", stride, padding, ceil_mode=ceil_mode, exclusive=exclusive
    )


__all__ = [
    "avg_pool2d",
    "cross_entropy",
    "dropout",
    "elu",
    "gelu",
    "leaky_relu",
    "max_pool2d",
    "mse_loss",
    "one_hot",
    "relu",
    "relu6",
    "sigmoid",
    "softmax",
    "softplus",
    "softsign",
    "square_error_cost",
    "swish",
    "tanh",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
