"""Norms of channels, and bilinear products, of ``paddle.nn.functional``."""

from __future__ import annotations

from typing import Any

from ..graph.layers import shape as layers
from ..graph.layers import tensors, unary
from ..graph.layers.helper import LayerHelper
from ..graph.layers.norms import append_norm
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue

_FORMATS = ("NCL", "NLC", "NCHW", "NHWC", "NCDHW", "NDHWC")


def channels_last(data_format: Any, layer: str) -> bool:
    """Tell whether channels are the last dimension.

    Raises:
        InvalidValue: ``data_format`` is no order of dimensions.
    """
    if data_format not in _FORMATS:
        raise InvalidValue(
            f"{layer}: data_format is one of {', '.join(_FORMATS)}, got {data_format!r}."
        )
    return bool(data_format.endswith("C"))


def group_norm(
    x: Variable,
    num_groups: int,
    epsilon: float = 1e-5,
    weight: Variable | None = None,
    bias: Variable | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalise the channels of each group together, of every sample. Wu and He, arXiv 1803.08494."""
    last = channels_last(data_format, "group_norm")
    inputs = {"X": x, "Scale": weight, "Bias": bias}
    attrs = {
        "epsilon": float(epsilon),
        "groups": num_groups,
        "data_layout": "NHWC" if last else "NCHW",
    }
    operands = {slot: value for slot, value in inputs.items() if value is not None}
    return append_norm(
        LayerHelper("group_norm", name or "group_norm"),
        "group_norm",
        operands,
        attrs,
        ("Mean", "Variance"),
    )


def instance_norm(
    x: Variable,
    running_mean: Variable | None = None,
    running_var: Variable | None = None,
    weight: Variable | None = None,
    bias: Variable | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.9,
    eps: float = 1e-5,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalise each channel of each sample; as in Paddle, running statistics are neither read nor written."""
    inputs = {"X": x}
    if weight is not None and bias is not None:
        inputs.update(Scale=weight, Bias=bias)
    statistics = ("SavedMean", "SavedVariance")
    helper = LayerHelper("instance_norm", name)
    return append_norm(helper, "instance_norm", inputs, {"epsilon": float(eps)}, statistics)


def local_response_norm(
    x: Variable,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """x / (k + alpha mean of squares over ``size`` channels around)^beta; channels beyond the ends count as 0.

    Raises:
        InvalidValue: x has fewer than three dimensions, or ``data_format`` is no order of them.
    """
    last = channels_last(data_format, "local_response_norm")
    if x.ndim < 3:
        raise InvalidValue(f"local_response_norm: 3 dimensions or more are needed, got {x.ndim}.")
    axis = x.ndim - 1 if last else 1
    count = (x.shape or ())[axis]
    pads = [0] * (2 * x.ndim)
    pads[2 * axis : 2 * axis + 2] = [size // 2, (size - 1) // 2]
    squares = tensors.pad(unary.square(x), pads)
    total = layers.slice(squares, [axis], [0], [count])
    for start in range(1, size):
        total = total + layers.slice(squares, [axis], [start], [start + count])
    return x / unary.pow(total * (float(alpha) / size) + float(k), float(beta))


def bilinear(
    x1: Variable,
    x2: Variable,
    weight: Variable,
    bias: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """x1 weight[k] x2 + bias[k]: [N, A], [N, B] and [K, A, B] to [N, K]; bias is [1, K]."""
    inputs = {"X": x1, "Y": x2, "Weight": weight, "Bias": bias}
    helper = LayerHelper("bilinear", name or "bilinear")
    return helper.layer("bilinear_tensor_product", **inputs)


publish_definitions(__name__, withhold=(channels_last,))
