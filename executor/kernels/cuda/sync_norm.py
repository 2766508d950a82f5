"""Batch norm in parts, with collectives between them (see ``graph/ops/sync_norm.py``)."""

from __future__ import annotations

from ....graph.ops import sync_norm as ops
from ...codegen.cuda_launches import Maybe, ints, numbers, read, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .norm import apply, apply_grad, learn, moments, sizes, slopes, statistics
from .support import cuda, floating
from .tiles import Channels


@cuda("batch_norm_partial", takes=floating)
def batch_norm_partial(dev: Device, a: ops.BatchNormPartial) -> list[Step]:
    channels = Channels(dev, a.data_layout, a.x)
    parts, step = moments(channels, a.x)
    arguments = [*parts, *written(stats=a.stats), *sizes(channels)]
    kinds = (c_type(channels.scratch(a.x).dtype),)
    return [step, channels.each("block_stats", kinds, arguments)]


@cuda("batch_norm_apply", takes=floating)
def batch_norm_apply(dev: Device, a: ops.BatchNormApply) -> list[Step]:
    channels = Channels(dev, a.data_layout, a.x, a.y)
    slope = channels.scratch(a.x)
    channel, centre = statistics(dev, a, slope)
    rates = numbers(slope, momentum=a.momentum, epsilon=a.epsilon)
    more = [*ints(channels=channels.count), *rates]
    return [
        learn(channels, "learn_from_stats", channel, read(stats=a.stats), more),
        apply(channels, a.x, None, a.y, centre, slope, a.bias, ""),
    ]


@cuda("batch_norm_grad_partial", takes=floating)
def batch_norm_grad_partial(dev: Device, a: ops.BatchNormGradPartial) -> list[Step]:
    channels = Channels(dev, a.data_layout, a.x, a.d_y)
    parts, step = slopes(channels, a.x, None, a.d_y, a.saved_mean, "")
    local = dev.scratch(a.total.shape, a.total.dtype) if a.local is None else a.local
    total = dev.scratch(local.shape, local.dtype) if a.total is None else a.total
    arguments = [
        *parts,
        *read(inverse=a.saved_variance),
        *written(local=local, total=total),
        *ints(chunks=channels.chunks, channels=channels.count),
    ]
    kinds = (c_type(channels.scratch(a.x).dtype), c_type(a.saved_variance.dtype))
    return [step, channels.each("block_local_slopes", kinds, arguments)]


@cuda("batch_norm_grad_apply", takes=floating)
def batch_norm_grad_apply(dev: Device, a: ops.BatchNormGradApply) -> list[Step]:
    channels = Channels(dev, a.data_layout, a.x, a.d_y, a.d_x)
    coefficients = channels.scratch(a.x, 3)
    arguments = [
        *read(stats=a.stats, local=a.local, total=a.total),
        *read(scale=a.scale, inverse=a.saved_variance),
        *written(d_shift=Maybe(a.d_bias, a.scale), d_scale=Maybe(a.d_scale, a.scale)),
        *written(coefficients=coefficients),
        *ints(channels=channels.count),
    ]
    kinds = (c_type(coefficients.dtype), c_type(a.scale.dtype))
    arrays = (a.x, None, a.d_y, a.saved_mean)
    last = apply_grad(channels, arrays, coefficients, a.d_x, None, act="", fixed=False)
    return [channels.each("slopes_of_all", kinds, arguments), *last]
