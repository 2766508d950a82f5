"""Batch norm and layer norm.

Batch norm: Ioffe and Szegedy, arXiv 1502.03167. SavedVariance holds 1 / sqrt(variance + epsilon), as in
Paddle. Layer norm: Ba, Kiros and Hinton, arXiv 1607.06450.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...device.device import Device
from ..registry import Step, kernel


def channels(x: Any, data_layout: str) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the axes a statistic is taken over, the shape that broadcasts it, and the elements in it."""
    axis = x.ndim - 1 if data_layout == "NHWC" else 1
    axes = tuple(i for i in range(x.ndim) if i != axis)
    spread = tuple(n if i == axis else 1 for i, n in enumerate(x.shape))
    return axes, spread, max(x.size // max(x.shape[axis], 1), 1)


def averaged(
    dev: Device, running: Any, new: Any, out: Any, momentum: float, space: Any
) -> list[Step]:
    """out = momentum * running + (1 - momentum) * new."""
    return [
        partial(dev.xp.multiply, new, 1.0 - momentum, space),
        partial(dev.xp.multiply, running, momentum, out),
        partial(dev.xp.add, out, space, out),
    ]


@kernel("batch_norm")
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
    xp = dev.xp
    axes, spread, count = channels(x, data_layout)
    steps: list[Step] = []
    space = dev.scratch(scale.shape, scale.dtype)
    if use_global_stats or (is_test and not trainable_statistics):
        steps += [
            partial(xp.copyto, saved_mean, mean),
            partial(xp.copyto, space, variance),
            partial(xp.subtract, x, saved_mean.reshape(spread), y),
        ]
        if mean_out is not mean:
            steps += [
                partial(xp.copyto, mean_out, mean),
                partial(xp.copyto, variance_out, variance),
            ]
    else:
        squares = dev.scratch(x.shape, x.dtype)
        steps += [
            partial(xp.add.reduce, x, axes, None, saved_mean),
            partial(xp.multiply, saved_mean, 1.0 / count, saved_mean),
            partial(xp.subtract, x, saved_mean.reshape(spread), y),
            partial(xp.multiply, y, y, squares),
            partial(xp.add.reduce, squares, axes, None, space),
            partial(xp.multiply, space, 1.0 / count, space),
            *averaged(dev, mean, saved_mean, mean_out, momentum, saved_variance),
            *averaged(dev, variance, space, variance_out, momentum, saved_variance),
        ]
    steps += [
        partial(xp.add, space, epsilon, space),
        partial(xp.sqrt, space, space),
        partial(xp.divide, 1.0, space, saved_variance),
        partial(xp.multiply, saved_variance, scale, space),
        partial(xp.multiply, y, space.reshape(spread), y),
        partial(xp.add, y, bias.reshape(spread), y),
    ]
    return steps


@kernel("batch_norm_grad")
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
    """With fixed statistics dx = dy * scale * inv_std; else the mean and the x-aligned part of dy go."""
    xp = dev.xp
    axes, spread, count = channels(x, data_layout)
    d_scale = dev.scratch(scale.shape, scale.dtype) if d_scale is None else d_scale
    d_bias = dev.scratch(scale.shape, scale.dtype) if d_bias is None else d_bias
    hat = dev.scratch(x.shape, scale.dtype)
    product = dev.scratch(x.shape, scale.dtype)
    steps: list[Step] = [
        partial(xp.subtract, x, saved_mean.reshape(spread), hat),
        partial(xp.multiply, hat, saved_variance.reshape(spread), hat),
        partial(xp.add.reduce, d_y, axes, None, d_bias),
        partial(xp.multiply, d_y, hat, product),
        partial(xp.add.reduce, product, axes, None, d_scale),
    ]
    if d_x is None:
        return steps
    slope = dev.scratch(scale.shape, scale.dtype)
    steps.append(partial(xp.multiply, scale, saved_variance, slope))
    if use_global_stats or is_test:
        return [*steps, partial(xp.multiply, d_y, slope.reshape(spread), d_x)]
    share = dev.scratch(scale.shape, scale.dtype)
    return [
        *steps,
        partial(xp.multiply, d_scale, 1.0 / count, share),
        partial(xp.multiply, hat, share.reshape(spread), hat),
        partial(xp.subtract, d_y, hat, product),
        partial(xp.multiply, d_bias, 1.0 / count, share),
        partial(xp.subtract, product, share.reshape(spread), product),
        partial(xp.multiply, product, slope.reshape(spread), d_x),
    ]


def _by_rows(array: Any, rows: int, *features: Any) -> Any:
    """View as [R, F]; where there are no rows, what they are scaled or shifted by tells their length."""
    known = (f.size for f in features if f is not None)
    return array.reshape(rows, array.size // rows if rows else next(known, 1))


@kernel("layer_norm")
def layer_norm(
    dev: Device, x: Any, scale: Any, bias: Any, y: Any, mean: Any, variance: Any, *, epsilon: float
) -> list[Step]:
    xp = dev.xp
    x_RF, y_RF = (_by_rows(array, mean.size, scale, bias) for array in (x, y))
    width = max(x_RF.shape[1], 1)
    squares = dev.scratch(x_RF.shape, x.dtype)
    deviation = dev.scratch((mean.size, 1), x.dtype)
    column = mean.reshape(-1, 1)
    steps: list[Step] = [
        partial(xp.add.reduce, x_RF, 1, None, column, True),
        partial(xp.multiply, column, 1.0 / width, column),
        partial(xp.subtract, x_RF, column, y_RF),
        partial(xp.multiply, y_RF, y_RF, squares),
        partial(xp.add.reduce, squares, 1, None, variance.reshape(-1, 1), True),
        partial(xp.multiply, variance, 1.0 / width, variance),
        partial(xp.add, variance.reshape(-1, 1), epsilon, deviation),
        partial(xp.sqrt, deviation, deviation),
        partial(xp.divide, y_RF, deviation, y_RF),
    ]
    if scale is not None:
        steps.append(partial(xp.multiply, y_RF, scale.reshape(1, -1), y_RF))
    if bias is not None:
        steps.append(partial(xp.add, y_RF, bias.reshape(1, -1), y_RF))
    return steps


@kernel("layer_norm_grad")
def layer_norm_grad(
    dev: Device,
    x: Any,
    scale: Any,
    mean: Any,
    variance: Any,
    d_y: Any,
    d_x: Any,
    d_scale: Any,
    d_bias: Any,
    *,
    epsilon: float,
) -> list[Step]:
    xp = dev.xp
    rows = mean.size
    x_RF, dy_RF = (_by_rows(array, rows, scale, d_bias) for array in (x, d_y))
    width = max(x_RF.shape[1], 1)
    hat, work = dev.scratch(x_RF.shape, x.dtype), dev.scratch(x_RF.shape, x.dtype)
    deviation, share = dev.scratch((rows, 1), x.dtype), dev.scratch((rows, 1), x.dtype)
    steps: list[Step] = [
        partial(xp.add, variance.reshape(-1, 1), epsilon, deviation),
        partial(xp.sqrt, deviation, deviation),
        partial(xp.subtract, x_RF, mean.reshape(-1, 1), hat),
        partial(xp.divide, hat, deviation, hat),
    ]
    if d_bias is not None:
        steps.append(partial(xp.add.reduce, dy_RF, 0, None, d_bias.reshape(-1)))
    if d_scale is not None:
        steps.append(partial(xp.multiply, dy_RF, hat, work))
        steps.append(partial(xp.add.reduce, work, 0, None, d_scale.reshape(-1)))
    if d_x is None:
        return steps
    dx_RF = _by_rows(d_x, rows, scale, d_bias)
    first = (
        partial(xp.copyto, dx_RF, dy_RF)
        if scale is None
        else partial(xp.multiply, dy_RF, scale.reshape(1, -1), dx_RF)
    )
    return [
        *steps,
        first,
        partial(xp.multiply, dx_RF, hat, work),
        partial(xp.add.reduce, work, 1, None, share, True),
        partial(xp.multiply, share, 1.0 / width, share),
        partial(xp.multiply, hat, share, hat),
        partial(xp.add.reduce, dx_RF, 1, None, share, True),
        partial(xp.multiply, share, 1.0 / width, share),
        partial(xp.subtract, dx_RF, share, dx_RF),
        partial(xp.subtract, dx_RF, hat, dx_RF),
        partial(xp.divide, dx_RF, deviation, dx_RF),
    ]
