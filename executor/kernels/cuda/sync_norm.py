"""Batch norm in parts, with collectives between them (see ``graph/ops/sync_norm.py``)."""

from __future__ import annotations

from typing import Any

from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .launches import read, written
from .norm import apply, apply_grad, learn, moments, numbers, sizes, slopes, statistics
from .support import cuda, floating
from .tiles import Channels


@cuda("batch_norm_partial", takes=floating)
def batch_norm_partial(dev: Device, x: Any, stats: Any, *, data_layout: str) -> list[Step]:
    channels = Channels(dev, data_layout, x)
    parts, step = moments(channels, x)
    given = [*parts, written("stats", stats), *sizes(channels)]
    kinds = (c_type(channels.scratch(x).dtype),)
    return [step, channels.each("block_stats", kinds, given)]


@cuda("batch_norm_apply", takes=floating)
def batch_norm_apply(
    dev: Device,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    stats: Any,
    y: Any,
    mean_out: Any,
    variance_out: Any,
    saved_mean: Any,
    saved_variance: Any,
    *,
    momentum: float,
    epsilon: float,
    data_layout: str,
) -> list[Step]:
    channels = Channels(dev, data_layout, x, y)
    slope = channels.scratch(x)
    centre = dev.scratch(scale.shape, scale.dtype) if saved_mean is None else saved_mean
    outs = (mean_out, variance_out, centre, saved_variance)
    channel = statistics(scale, mean, variance, outs, slope)
    more = [
        ("int channels", channels.count),
        *numbers(slope, momentum=momentum, epsilon=epsilon),
    ]
    return [
        learn(channels, "learn_from_stats", channel, [read("stats", stats)], more),
        apply(channels, x, None, y, centre, slope, bias, ""),
    ]


@cuda("batch_norm_grad_partial", takes=floating)
def batch_norm_grad_partial(
    dev: Device,
    x: Any,
    saved_mean: Any,
    saved_variance: Any,
    d_y: Any,
    local: Any,
    total: Any,
    *,
    data_layout: str,
) -> list[Step]:
    channels = Channels(dev, data_layout, x, d_y)
    parts, step = slopes(channels, x, None, d_y, saved_mean, "")
    local = dev.scratch(total.shape, total.dtype) if local is None else local
    total = dev.scratch(local.shape, local.dtype) if total is None else total
    given = [
        *parts,
        read("inverse", saved_variance),
        written("local", local),
        written("total", total),
        ("int chunks", channels.chunks),
        ("int channels", channels.count),
    ]
    kinds = (c_type(channels.scratch(x).dtype), c_type(saved_variance.dtype))
    return [step, channels.each("block_local_slopes", kinds, given)]


@cuda("batch_norm_grad_apply", takes=floating)
def batch_norm_grad_apply(
    dev: Device,
    x: Any,
    scale: Any,
    saved_mean: Any,
    saved_variance: Any,
    d_y: Any,
    local: Any,
    total: Any,
    stats: Any,
    d_x: Any,
    d_scale: Any,
    d_bias: Any,
    *,
    data_layout: str,
) -> list[Step]:
    channels = Channels(dev, data_layout, x, d_y, d_x)
    coefficients = channels.scratch(x, 3)
    given = [
        read("stats", stats),
        read("local", local),
        read("total", total),
        read("scale", scale),
        read("inverse", saved_variance),
        written("d_shift", d_bias, scale),
        written("d_scale", d_scale, scale),
        written("coefficients", coefficients),
        ("int channels", channels.count),
    ]
    kinds = (c_type(coefficients.dtype), c_type(scale.dtype))
    arrays = (x, None, d_y, saved_mean)
    last = apply_grad(channels, arrays, coefficients, d_x, None, act="", fixed=False)
    return [channels.each("slopes_of_all", kinds, given), *last]
