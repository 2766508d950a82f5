"""Batch norm in parts (see ``graph/ops/sync_norm.py``). Statistics are formed in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...device.device import Device
from ..registry import Step, kernel
from .norm import averaged, channels


@kernel("batch_norm_partial")
def batch_norm_partial(dev: Device, x: Any, stats: Any, *, data_layout: str) -> list[Step]:
    xp = dev.xp
    axes, _, count = channels(x, data_layout)
    width = (stats.size - 1) // 2
    squares = dev.scratch(x.shape, xp.float64)
    return [
        partial(stats[:1].fill, count if x.size else 0),
        partial(xp.copyto, squares, x),
        partial(xp.add.reduce, squares, axes, None, stats[1 : width + 1]),
        partial(xp.multiply, squares, squares, squares),
        partial(xp.add.reduce, squares, axes, None, stats[width + 1 :]),
    ]


@kernel("batch_norm_apply")
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
    xp = dev.xp
    _, spread, _ = channels(x, data_layout)
    width = scale.size
    centre = dev.scratch(scale.shape, xp.float64)
    space = dev.scratch(scale.shape, xp.float64)
    new = dev.scratch(scale.shape, scale.dtype)
    slope = dev.scratch(scale.shape, scale.dtype)
    return [
        partial(xp.divide, stats[1 : width + 1], stats[:1], centre),
        partial(xp.divide, stats[width + 1 :], stats[:1], space),
        lambda: xp.subtract(space, centre * centre, space),
        partial(xp.maximum, space, 0.0, out=space),  # rounding may leave less than nothing
        partial(xp.copyto, saved_mean, centre, "same_kind"),
        partial(xp.copyto, new, space, "same_kind"),
        *averaged(dev, mean, saved_mean, mean_out, momentum, slope),
        *averaged(dev, variance, new, variance_out, momentum, slope),
        partial(xp.add, space, epsilon, space),
        partial(xp.sqrt, space, space),
        partial(xp.divide, 1.0, space, space),
        partial(xp.copyto, saved_variance, space, "same_kind"),
        partial(xp.multiply, saved_variance, scale, slope),
        partial(xp.subtract, x, saved_mean.reshape(spread), y),
        partial(xp.multiply, y, slope.reshape(spread), y),
        partial(xp.add, y, bias.reshape(spread), y),
    ]


@kernel("batch_norm_grad_partial")
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
    xp = dev.xp
    axes, spread, _ = channels(x, data_layout)
    width = saved_mean.size
    product = dev.scratch(x.shape, xp.float64)
    return [
        partial(xp.copyto, product, d_y),
        partial(xp.add.reduce, product, axes, None, local[:width]),
        partial(xp.subtract, x, saved_mean.reshape(spread), product),
        partial(xp.multiply, product, saved_variance.reshape(spread), product),
        partial(xp.multiply, product, d_y, product),
        partial(xp.add.reduce, product, axes, None, local[width:]),
        partial(xp.copyto, total, local),
    ]


@kernel("batch_norm_grad_apply")
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
    """dx = scale * inv_std * (dy - mean(dy) - hat * mean(dy * hat)), the means over every replica."""
    xp = dev.xp
    _, spread, _ = channels(x, data_layout)
    width = scale.size
    steps: list[Step] = []
    if d_bias is not None:
        steps.append(partial(xp.copyto, d_bias, local[:width], "same_kind"))
    if d_scale is not None:
        steps.append(partial(xp.copyto, d_scale, local[width:], "same_kind"))
    if d_x is None:
        return steps
    means = dev.scratch(total.shape, xp.float64)
    shares = dev.scratch(total.shape, scale.dtype)
    slope = dev.scratch(scale.shape, scale.dtype)
    hat = dev.scratch(x.shape, scale.dtype)
    return [
        *steps,
        partial(xp.divide, total, stats[:1], means),
        partial(xp.copyto, shares, means, "same_kind"),
        partial(xp.multiply, scale, saved_variance, slope),
        partial(xp.subtract, x, saved_mean.reshape(spread), hat),
        partial(xp.multiply, hat, saved_variance.reshape(spread), hat),
        partial(xp.multiply, hat, shares[width:].reshape(spread), hat),
        partial(xp.subtract, d_y, hat, hat),
        partial(xp.subtract, hat, shares[:width].reshape(spread), hat),
        partial(xp.multiply, hat, slope.reshape(spread), d_x),
    ]
