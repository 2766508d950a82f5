"""Layers that normalise: by groups, samples, neighbours, length, and by sums over the data."""

from __future__ import annotations

import math
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ...strategies.types import LOW, VarType
from ..program.variable import Variable
from .arguments import Floats, known_sizes
from .conv import image_format
from .helper import LayerHelper, layers
from .initializer import ConstantInitializer, NormalInitializer
from .param_attr import ParamAttr


def known_channels(input: Variable, axis: int, layer: str) -> int:
    """Return a size that parameters have.

    Raises:
        InvalidValue: there is no such dimension, or its size is unknown.
    """
    shape = input.shape or ()
    if not -len(shape) <= axis < len(shape):
        raise InvalidValue(
            f"{layer}: the channels are dimension {axis}, which {input.name!r} of shape {list(shape)} lacks."
        )
    return known_sizes(layer, input, axis, f"the channels (dimension {axis})")[0]


def l2_normalize(
    x: Floats, axis: int | None, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """x / sqrt(sum of x^2 along ``axis`` + epsilon); ``axis`` None is 1, of a vector 0."""
    axis = 0 if x.ndim == 1 else 1 if axis is None else axis
    helper = LayerHelper("l2_normalize", name)
    return helper.layers("norm", "Out Norm", "Norm", x=x, axis=axis, epsilon=epsilon)[0]


def cos_sim(X: Floats, Y: Floats) -> Variable:
    """The cosine of the angle between rows, [N, 1]; Y may be one row."""
    return layers("cos_sim", None, "Out XNorm YNorm", "XNorm YNorm", x=X, y=Y)[0]


def _parameters(
    helper: LayerHelper, channels: int, dtype: Any, scale: Any, shift: Any
) -> dict[str, Variable]:
    """Return the scale and the shift of channels, by slot; without one whose attribute is False."""
    dtype = VarType.FP32 if dtype in LOW else dtype
    start = ConstantInitializer(1.0)
    parameters = {
        "Scale": helper.create_parameter(scale, [channels], dtype, default_initializer=start),
        "Bias": helper.create_parameter(shift, [channels], dtype, is_bias=True),
    }
    return {slot: parameter for slot, parameter in parameters.items() if parameter is not None}


def append_norm(
    helper: LayerHelper, op_type: str, inputs: Any, attrs: Any, statistics: tuple[str, str]
) -> Variable:
    """Append an op that normalises X and return Y; its statistics pass no gradient."""
    constants = " ".join(statistics)
    return helper.layers(op_type, f"Y {constants}", constants, **inputs, **attrs)[0]


def group_norm(
    input: Floats,
    groups: int,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalise the channels of each group together, of every sample. Wu and He, arXiv 1803.08494.

    As in Paddle, there is no scale without ``param_attr``, and no shift without ``bias_attr``.
    """
    last = image_format(data_layout, "group_norm")
    channels = known_channels(input, -1 if last else 1, "group_norm")
    if not 0 < groups <= channels or channels % groups:
        raise InvalidValue(f"group_norm: {channels} channels do not split in {groups} groups.")
    helper = LayerHelper("group_norm", name)
    attrs = (param_attr or False, bias_attr or False)
    inputs = {"X": input, **_parameters(helper, channels, input.dtype, *attrs)}
    settings = {"epsilon": epsilon, "groups": groups, "data_layout": data_layout}
    y = append_norm(helper, "group_norm", inputs, settings, ("Mean", "Variance"))
    return helper.activate(y, act)


def instance_norm(
    input: Floats,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Normalise each channel of each sample. Ulyanov et al., arXiv 1607.08022."""
    if param_attr is False or bias_attr is False:
        raise InvalidValue("instance_norm: param_attr and bias_attr cannot be False here.")
    helper = LayerHelper("instance_norm", name)
    channels = known_channels(input, 1, "instance_norm")
    inputs = {"X": input, **_parameters(helper, channels, input.dtype, param_attr, bias_attr)}
    statistics = ("SavedMean", "SavedVariance")
    return append_norm(helper, "instance_norm", inputs, {"epsilon": epsilon}, statistics)


def lrn(
    input: Floats,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """input / (k + alpha sum of squares over ``n`` channels around)^beta, of images."""
    if input.ndim != 4:
        raise InvalidValue(f"lrn: input must have 4 dimensions, got {input.ndim}.")
    image_format(data_format, "lrn")
    attrs = {"n": n, "k": k, "alpha": alpha, "beta": beta, "data_format": data_format}
    return layers("lrn", name, "Out MidOut", "MidOut", x=input, **attrs)[0]


def spectral_norm(
    weight: Floats, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Variable:
    """weight by its largest singular value, as a matrix whose rows are ``dim``. arXiv 1802.05957.

    The vectors that the iterations start from are drawn once and stay.
    """
    require_type(eps, float, "spectral_norm: eps must be a float")
    height = known_channels(weight, dim, "spectral_norm")
    helper = LayerHelper("spectral_norm", name)
    width = math.prod(weight.shape or ()) // max(height, 1)
    inputs = {"Weight": weight}
    for slot, size in (("U", height), ("V", width)):
        start = NormalInitializer(0.0, 1.0)
        vector = helper.create_parameter(
            ParamAttr(), [size], weight.dtype, default_initializer=start, stop_gradient=True
        )
        assert vector is not None
        inputs[slot] = vector
    attrs = {"dim": dim, "power_iters": power_iters, "eps": eps}
    return helper.layer("spectral_norm", **inputs, **attrs)


def data_norm(
    input: Floats,
    act: str | None = None,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Normalise columns by sums over the data, three parameters that the optimizer moves.

    ``param_attr`` may be a dict of their first values: batch_size, batch_sum, batch_square (and scale_w, bias).
    Parameters are named ``<name>.batch_size`` and so on; layers without a name share those of "dn".
    """
    image_format(data_layout, "data_norm")
    channels = known_channels(input, 1 if data_layout == "NCHW" else -1, "data_norm")
    start = {"batch_size": 1e4, "batch_sum": 0.0, "batch_square": 1e4, "scale_w": 1.0, "bias": 0.0}
    if param_attr and not isinstance(param_attr, dict):
        raise InvalidType(f"data_norm: param_attr must be a dict, got {param_attr!r}.")
    start.update({key: param_attr[key] for key in start if param_attr and key in param_attr})
    helper = LayerHelper("data_norm", name)

    def parameter(suffix: str, value: float) -> Any:
        settings = ParamAttr(f"{name or 'dn'}.{suffix}", ConstantInitializer(float(value)))
        return helper.create_parameter(settings, [channels], input.dtype)

    inputs = {"X": input}
    if enable_scale_and_shift:
        inputs.update({key: parameter(key, start[key]) for key in ("scale_w", "bias")})
    inputs["BatchSize"] = parameter("batch_size", start["batch_size"])
    inputs["BatchSum"] = parameter("batch_sum", start["batch_sum"])
    inputs["BatchSquareSum"] = parameter("batch_square_sum", start["batch_square"])
    attrs = {
        "epsilon": epsilon,
        "slot_dim": slot_dim if slot_dim > 0 else -1,
        "sync_stats": sync_stats,
        "summary_decay_rate": summary_decay_rate,
        "enable_scale_and_shift": enable_scale_and_shift,
    }
    y = append_norm(helper, "data_norm", inputs, attrs, ("Means", "Scales"))
    return helper.activate(y, act)
