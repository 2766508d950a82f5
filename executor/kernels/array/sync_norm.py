"""Batch norm in parts (see ``graph/ops/sync_norm.py``). Statistics are formed in float64."""

from __future__ import annotations

from functools import partial

from ....graph.ops import sync_norm as ops
from ...device.device import Device
from ..registry import Step, kernel
from .norm import averaged, channels


@kernel("batch_norm_partial")
def batch_norm_partial(dev: Device, a: ops.BatchNormPartial) -> list[Step]:
    xp = dev.xp
    axes, _, count = channels(a.x, a.data_layout)
    width = (a.stats.size - 1) // 2
    squares = dev.scratch(a.x.shape, xp.float64)
    return [
        partial(a.stats[:1].fill, count if a.x.size else 0),
        partial(xp.copyto, squares, a.x),
        partial(xp.add.reduce, squares, axes, None, a.stats[1 : width + 1]),
        partial(xp.multiply, squares, squares, squares),
        partial(xp.add.reduce, squares, axes, None, a.stats[width + 1 :]),
    ]


@kernel("batch_norm_apply")
def batch_norm_apply(dev: Device, a: ops.BatchNormApply) -> list[Step]:
    xp = dev.xp
    _, spread, _ = channels(a.x, a.data_layout)
    width = a.scale.size
    centre = dev.scratch(a.scale.shape, xp.float64)
    space = dev.scratch(a.scale.shape, xp.float64)
    new = dev.scratch(a.scale.shape, a.scale.dtype)
    slope = dev.scratch(a.scale.shape, a.scale.dtype)
    return [
        partial(xp.divide, a.stats[1 : width + 1], a.stats[:1], centre),
        partial(xp.divide, a.stats[width + 1 :], a.stats[:1], space),
        lambda: xp.subtract(space, centre * centre, space),
        partial(xp.maximum, space, 0.0, out=space),  # rounding may leave less than nothing
        partial(xp.copyto, a.saved_mean, centre, "same_kind"),
        partial(xp.copyto, new, space, "same_kind"),
        *averaged(dev, a.mean, a.saved_mean, a.mean_out, a.momentum, slope),
        *averaged(dev, a.variance, new, a.variance_out, a.momentum, slope),
        partial(xp.add, space, a.epsilon, space),
        partial(xp.sqrt, space, space),
        partial(xp.divide, 1.0, space, space),
        partial(xp.copyto, a.saved_variance, space, "same_kind"),
        partial(xp.multiply, a.saved_variance, a.scale, slope),
        partial(xp.subtract, a.x, a.saved_mean.reshape(spread), a.y),
        partial(xp.multiply, a.y, slope.reshape(spread), a.y),
        partial(xp.add, a.y, a.bias.reshape(spread), a.y),
    ]


@kernel("batch_norm_grad_partial")
def batch_norm_grad_partial(dev: Device, a: ops.BatchNormGradPartial) -> list[Step]:
    xp = dev.xp
    axes, spread, _ = channels(a.x, a.data_layout)
    width = a.saved_mean.size
    product = dev.scratch(a.x.shape, xp.float64)
    return [
        partial(xp.copyto, product, a.d_y),
        partial(xp.add.reduce, product, axes, None, a.local[:width]),
        partial(xp.subtract, a.x, a.saved_mean.reshape(spread), product),
        partial(xp.multiply, product, a.saved_variance.reshape(spread), product),
        partial(xp.multiply, product, a.d_y, product),
        partial(xp.add.reduce, product, axes, None, a.local[width:]),
        partial(xp.copyto, a.total, a.local),
    ]


@kernel("batch_norm_grad_apply")
def batch_norm_grad_apply(dev: Device, a: ops.BatchNormGradApply) -> list[Step]:
    """dx = scale * inv_std * (dy - mean(dy) - hat * mean(dy * hat)), the means over every replica."""
    xp = dev.xp
    _, spread, _ = channels(a.x, a.data_layout)
    width = a.scale.size
    steps: list[Step] = []
    if a.d_bias is not None:
        steps.append(partial(xp.copyto, a.d_bias, a.local[:width], "same_kind"))
    if a.d_scale is not None:
        steps.append(partial(xp.copyto, a.d_scale, a.local[width:], "same_kind"))
    if a.d_x is None:
        return steps
    means = dev.scratch(a.total.shape, xp.float64)
    shares = dev.scratch(a.total.shape, a.scale.dtype)
    slope = dev.scratch(a.scale.shape, a.scale.dtype)
    hat = dev.scratch(a.x.shape, a.scale.dtype)
    return [
        *steps,
        partial(xp.divide, a.total, a.stats[:1], means),
        partial(xp.copyto, shares, means, "same_kind"),
        partial(xp.multiply, a.scale, a.saved_variance, slope),
        partial(xp.subtract, a.x, a.saved_mean.reshape(spread), hat),
        partial(xp.multiply, hat, a.saved_variance.reshape(spread), hat),
        partial(xp.multiply, hat, shares[width:].reshape(spread), hat),
        partial(xp.subtract, a.d_y, hat, hat),
        partial(xp.subtract, hat, shares[:width].reshape(spread), hat),
        partial(xp.multiply, hat, slope.reshape(spread), a.d_x),
    ]
