"""Batch norm with what may follow it: an added array and an activation, on the way out.

A batch norm reads its operand twice: for the moments of its channels, and to write the result. Its gradient
reads twice too.
"""

from __future__ import annotations

from typing import Any

from ....graph.ops.fused_norm import ACT, ADD_ACT
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .launches import Argument, names, read, run, written
from .support import cuda, floating
from .tiles import INCLUDES, Channels

_ACTS = {"": "Plain", "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def statistics(
    scale: Any, mean: Any, variance: Any, outs: tuple[Any, Any, Any, Any], slope: Any
) -> tuple[str, list[Argument]]:
    """Return the C text that makes a ``Channel``, and the parameters that it is made of."""
    given = [
        read("scale", scale),
        read("running_mean", mean),
        read("running_variance", variance),
        *(written(name, out, scale) for name, out in zip(_OUTS, outs, strict=True)),
        written("slope", slope),
    ]
    kinds = f"{c_type(scale.dtype)}, {c_type(slope.dtype)}"
    return f"Channel<{kinds}>{{{names(given)}}}", given


_OUTS = ("mean_out", "variance_out", "saved_mean", "saved_inverse")


def learn(
    channels: Channels,
    function: str,
    channel: tuple[str, list[Argument]],
    before: list[Argument],
    more: list[Argument],
) -> Step:
    """Return the launch that works out each channel's statistics, and what follows from them."""
    text, given = channel
    passed = ", ".join(part for part in (names(before), text, names(more)) if part)
    grid = (max(channels.blocks, 1), 1, 1)
    body = f"{function}({passed});"
    return run(channels.dev, function, body, [*before, *given, *more], grid, INCLUDES)


def moments(channels: Channels, x: Any) -> tuple[list[Argument], Step]:
    """Return the chunks' moments as parameters, and the launch that forms them."""
    means, squares = (channels.scratch(x, channels.chunks) for _ in range(2))
    kinds = (c_type(x.dtype), c_type(means.dtype))
    given = [read("x", x), written("means", means), written("squares", squares)]
    step = channels.over("block_moments", kinds, [*given, ("int channels", channels.count)])
    return [read("means", means), read("squares", squares)], step


def sizes(channels: Channels) -> list[Argument]:
    return [
        ("int chunks", channels.chunks),
        ("int channels", channels.count),
        ("long long size", channels.size),
        ("long long total", channels.total),
    ]


def numbers(like: Any, **given: float) -> list[Argument]:
    kind = c_type(like.dtype)
    return [(f"{kind} {name}", value) for name, value in given.items()]


def apply(
    channels: Channels, x: Any, z: Any, y: Any, mean: Any, slope: Any, bias: Any, act: str
) -> Step:
    kinds = (c_type(x.dtype), c_type(bias.dtype), c_type(slope.dtype), _ACTS[act], _flag(z))
    given = [
        read("x", x),
        read("z", z, x),
        read("mean", mean),
        read("slope", slope),
        read("shift", bias),
        written("y", y),
    ]
    return channels.over("norm_apply", kinds, given)


def _flag(array: Any) -> str:
    return "false" if array is None else "true"


def _batch_norm(
    dev: Device,
    x: Any,
    z: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    y: Any,
    outs: tuple[Any, Any, Any, Any],
    *,
    momentum: float,
    epsilon: float,
    data_layout: str,
    fixed: bool,
    act: str = "",
) -> list[Step]:
    channels = Channels(dev, data_layout, x, z, y)
    slope = channels.scratch(x)
    centre = dev.scratch(scale.shape, scale.dtype) if outs[2] is None else outs[2]
    outs = (*outs[:2], centre, outs[3])
    channel = statistics(scale, mean, variance, outs, slope)
    if fixed:
        more = [("int channels", channels.count), *numbers(slope, epsilon=epsilon)]
        steps = [learn(channels, "use_running", channel, [], more)]
    else:
        parts, step = moments(channels, x)
        more = [*sizes(channels), *numbers(slope, momentum=momentum, epsilon=epsilon)]
        steps = [step, learn(channels, "block_learn", channel, parts, more)]
    return [*steps, apply(channels, x, z, y, centre, slope, bias, act)]


@cuda("batch_norm", takes=floating)
def batch_norm(
    dev: Device,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    y: Any,
    mean_out: Any,
    variance_out: Any,
    saved_mean: Any,
    saved_variance: Any,
    *,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_layout: str,
    use_global_stats: bool,
    trainable_statistics: bool,
) -> list[Step]:
    return _batch_norm(
        dev, x, None, scale, bias, mean, variance, y,
        (mean_out, variance_out, saved_mean, saved_variance),
        momentum=momentum, epsilon=epsilon, data_layout=data_layout,
        fixed=use_global_stats or (is_test and not trainable_statistics),
    )  # fmt: skip


@cuda(ACT, takes=floating)
def fused_batch_norm_act(
    dev: Device,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    y: Any,
    mean_out: Any,
    variance_out: Any,
    saved_mean: Any,
    saved_variance: Any,
    *,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_layout: str,
    use_global_stats: bool,
    trainable_statistics: bool,
    act_type: str,
) -> list[Step]:
    return _batch_norm(
        dev, x, None, scale, bias, mean, variance, y,
        (mean_out, variance_out, saved_mean, saved_variance),
        momentum=momentum, epsilon=epsilon, data_layout=data_layout, act=act_type,
        fixed=use_global_stats or (is_test and not trainable_statistics),
    )  # fmt: skip


@cuda(ADD_ACT, takes=floating)
def fused_bn_add_activation(
    dev: Device,
    x: Any,
    z: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    y: Any,
    mean_out: Any,
    variance_out: Any,
    saved_mean: Any,
    saved_variance: Any,
    *,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_layout: str,
    use_global_stats: bool,
    trainable_statistics: bool,
    act_type: str,
) -> list[Step]:
    return _batch_norm(
        dev, x, z, scale, bias, mean, variance, y,
        (mean_out, variance_out, saved_mean, saved_variance),
        momentum=momentum, epsilon=epsilon, data_layout=data_layout, act=act_type,
        fixed=use_global_stats or (is_test and not trainable_statistics),
    )  # fmt: skip


def slopes(
    channels: Channels, x: Any, y: Any, d_y: Any, mean: Any, act: str
) -> tuple[list[Argument], Step]:
    """Return the chunks' sums as parameters, and the launch that forms them."""
    plain, along = (channels.scratch(x, channels.chunks) for _ in range(2))
    kinds = (
        c_type(x.dtype), c_type(mean.dtype), c_type(plain.dtype), _ACTS[act], _flag(act or None),
    )  # fmt: skip
    given = [
        read("x", x),
        read("y", y, x),
        read("d_y", d_y),
        read("mean", mean),
        written("plain", plain),
        written("along", along),
        ("int channels", channels.count),
    ]
    step = channels.over("block_slopes", kinds, given)
    return [read("plain", plain), read("along", along)], step


def apply_grad(
    channels: Channels,
    arrays: tuple[Any, Any, Any, Any],
    coefficients: Any,
    d_x: Any,
    d_z: Any,
    *,
    act: str,
    fixed: bool,
) -> list[Step]:
    if d_x is None and d_z is None:
        return []
    x, y, d_y, mean = arrays
    kinds = (
        c_type(x.dtype), c_type(mean.dtype), c_type(coefficients.dtype), _ACTS[act],
        _flag(act or None), str(fixed).lower(),
    )  # fmt: skip
    given = [
        read("x", x),
        read("y", y, x),
        read("d_y", d_y),
        read("mean", mean),
        read("coefficients", coefficients),
        written("d_x", d_x, x),
        written("d_z", d_z, x),
        ("int channels", channels.count),
    ]
    return [channels.over("norm_apply_grad", kinds, given)]


def _batch_norm_grad(
    dev: Device,
    x: Any,
    y: Any,
    scale: Any,
    saved_mean: Any,
    saved_variance: Any,
    d_y: Any,
    d_x: Any,
    d_z: Any,
    d_scale: Any,
    d_bias: Any,
    *,
    is_test: bool,
    data_layout: str,
    use_global_stats: bool,
    act_type: str = "",
) -> list[Step]:
    channels = Channels(dev, data_layout, x, y, d_y, d_x, d_z)
    fixed = use_global_stats or is_test
    coefficients = channels.scratch(x, 3)
    parts, step = slopes(channels, x, y, d_y, saved_mean, act_type)
    given = [
        *parts,
        read("scale", scale),
        read("inverse", saved_variance),
        written("d_shift", d_bias, scale),
        written("d_scale", d_scale, scale),
        written("coefficients", coefficients),
        ("int chunks", channels.chunks),
        ("int channels", channels.count),
        *numbers(coefficients, share=1.0 / max(channels.total, 1)),
    ]
    kinds = (c_type(coefficients.dtype), c_type(scale.dtype))
    last = apply_grad(
        channels, (x, y, d_y, saved_mean), coefficients, d_x, d_z, act=act_type, fixed=fixed
    )
    return [step, channels.each("block_add_slopes", kinds, given), *last]


@cuda("batch_norm_grad", takes=floating)
def batch_norm_grad(
    dev: Device,
    x: Any,
    scale: Any,
    saved_mean: Any,
    saved_variance: Any,
    d_y: Any,
    d_x: Any,
    d_scale: Any,
    d_bias: Any,
    *,
    is_test: bool,
    data_layout: str,
    use_global_stats: bool,
) -> list[Step]:
    return _batch_norm_grad(
        dev, x, None, scale, saved_mean, saved_variance, d_y, d_x, None, d_scale, d_bias,
        is_test=is_test, data_layout=data_layout, use_global_stats=use_global_stats,
    )  # fmt: skip


@cuda(f"{ACT}_grad", takes=floating)
def fused_batch_norm_act_grad(
    dev: Device,
    x: Any,
    y: Any,
    scale: Any,
    saved_mean: Any,
    saved_variance: Any,
    d_y: Any,
    d_x: Any,
    d_scale: Any,
    d_bias: Any,
    *,
    is_test: bool,
    data_layout: str,
    use_global_stats: bool,
    act_type: str,
) -> list[Step]:
    return _batch_norm_grad(
        dev, x, y, scale, saved_mean, saved_variance, d_y, d_x, None, d_scale, d_bias,
        is_test=is_test, data_layout=data_layout, use_global_stats=use_global_stats,
        act_type=act_type,
    )  # fmt: skip


cuda(f"{ADD_ACT}_grad", takes=floating)(_batch_norm_grad)
