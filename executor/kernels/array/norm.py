"""Batch norm and layer norm.

Batch norm: Ioffe and Szegedy, arXiv 1502.03167. SavedVariance holds 1 / sqrt(variance + epsilon), as in
Paddle. Layer norm: Ba, Kiros and Hinton, arXiv 1607.06450.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops.norm import BatchNormGrad, BatchNormOperands, LayerNorm, LayerNormGrad
from ....graph.ops.operands import Array
from ....graph.ops.residual_norm import ADD_NORM, NORM_GRAD_ADD, AddLayerNorm, LayerNormGradAdd
from ...device.device import Device
from ..registry import Step, kernel


def channels(x: Array, data_layout: str) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the axes a statistic is taken over, the shape that broadcasts it, and the elements in it."""
    axis = x.ndim - 1 if data_layout == "NHWC" else 1
    axes = tuple(i for i in range(x.ndim) if i != axis)
    spread = tuple(n if i == axis else 1 for i, n in enumerate(x.shape))
    return axes, spread, max(x.size // max(x.shape[axis], 1), 1)


def averaged(
    dev: Device, running: Any, new: Any, out: Array, momentum: float, space: Any
) -> list[Step]:
    """out = momentum * running + (1 - momentum) * new."""
    return [
        partial(dev.xp.multiply, new, 1.0 - momentum, space),
        partial(dev.xp.multiply, running, momentum, out),
        partial(dev.xp.add, out, space, out),
    ]


@kernel("batch_norm", "sync_batch_norm")
def batch_norm(dev: Device, a: BatchNormOperands) -> list[Step]:
    xp = dev.xp
    axes, spread, count = channels(a.x, a.data_layout)
    steps: list[Step] = []
    space = dev.scratch(a.scale.shape, a.scale.dtype)
    if a.use_global_stats or (a.is_test and not a.trainable_statistics):
        steps += [
            partial(xp.copyto, a.saved_mean, a.mean),
            partial(xp.copyto, space, a.variance),
            partial(xp.subtract, a.x, a.saved_mean.reshape(spread), a.y),
        ]
        if a.mean_out is not a.mean:
            steps += [
                partial(xp.copyto, a.mean_out, a.mean),
                partial(xp.copyto, a.variance_out, a.variance),
            ]
    else:
        squares = dev.scratch(a.x.shape, a.x.dtype)
        steps += [
            partial(xp.add.reduce, a.x, axes, None, a.saved_mean),
            partial(xp.multiply, a.saved_mean, 1.0 / count, a.saved_mean),
            partial(xp.subtract, a.x, a.saved_mean.reshape(spread), a.y),
            partial(xp.multiply, a.y, a.y, squares),
            partial(xp.add.reduce, squares, axes, None, space),
            partial(xp.multiply, space, 1.0 / count, space),
            *averaged(dev, a.mean, a.saved_mean, a.mean_out, a.momentum, a.saved_variance),
            *averaged(dev, a.variance, space, a.variance_out, a.momentum, a.saved_variance),
        ]
    steps += [
        partial(xp.add, space, a.epsilon, space),
        partial(xp.sqrt, space, space),
        partial(xp.divide, 1.0, space, a.saved_variance),
        partial(xp.multiply, a.saved_variance, a.scale, space),
        partial(xp.multiply, a.y, space.reshape(spread), a.y),
        partial(xp.add, a.y, a.bias.reshape(spread), a.y),
    ]
    return steps


@kernel("batch_norm_grad", "sync_batch_norm_grad")
def batch_norm_grad(dev: Device, a: BatchNormGrad) -> list[Step]:
    """With fixed statistics dx = dy * scale * inv_std; else the mean and the x-aligned part of dy go."""
    xp = dev.xp
    axes, spread, count = channels(a.x, a.data_layout)
    d_scale = dev.scratch(a.scale.shape, a.scale.dtype) if a.d_scale is None else a.d_scale
    d_bias = dev.scratch(a.scale.shape, a.scale.dtype) if a.d_bias is None else a.d_bias
    hat = dev.scratch(a.x.shape, a.scale.dtype)
    product = dev.scratch(a.x.shape, a.scale.dtype)
    steps: list[Step] = [
        partial(xp.subtract, a.x, a.saved_mean.reshape(spread), hat),
        partial(xp.multiply, hat, a.saved_variance.reshape(spread), hat),
        partial(xp.add.reduce, a.d_y, axes, None, d_bias),
        partial(xp.multiply, a.d_y, hat, product),
        partial(xp.add.reduce, product, axes, None, d_scale),
    ]
    if a.d_x is None:
        return steps
    slope = dev.scratch(a.scale.shape, a.scale.dtype)
    steps.append(partial(xp.multiply, a.scale, a.saved_variance, slope))
    if a.use_global_stats or a.is_test:
        return [*steps, partial(xp.multiply, a.d_y, slope.reshape(spread), a.d_x)]
    share = dev.scratch(a.scale.shape, a.scale.dtype)
    return [
        *steps,
        partial(xp.multiply, d_scale, 1.0 / count, share),
        partial(xp.multiply, hat, share.reshape(spread), hat),
        partial(xp.subtract, a.d_y, hat, product),
        partial(xp.multiply, d_bias, 1.0 / count, share),
        partial(xp.subtract, product, share.reshape(spread), product),
        partial(xp.multiply, product, slope.reshape(spread), a.d_x),
    ]


def _by_rows(array: Array, rows: int, *features: Any) -> Any:
    """View as [R, F]; where there are no rows, what they are scaled or shifted by tells their length."""
    known = (f.size for f in features if f is not None)
    return array.reshape(rows, array.size // rows if rows else next(known, 1))


@kernel("layer_norm")
def layer_norm(dev: Device, a: LayerNorm) -> list[Step]:
    xp = dev.xp
    x_RF, y_RF = (_by_rows(array, a.mean.size, a.scale, a.bias) for array in (a.x, a.y))
    width = max(x_RF.shape[1], 1)
    squares = dev.scratch(x_RF.shape, a.x.dtype)
    deviation = dev.scratch((a.mean.size, 1), a.x.dtype)
    column = a.mean.reshape(-1, 1)
    steps: list[Step] = [
        partial(xp.add.reduce, x_RF, 1, None, column, True),
        partial(xp.multiply, column, 1.0 / width, column),
        partial(xp.subtract, x_RF, column, y_RF),
        partial(xp.multiply, y_RF, y_RF, squares),
        partial(xp.add.reduce, squares, 1, None, a.variance.reshape(-1, 1), True),
        partial(xp.multiply, a.variance, 1.0 / width, a.variance),
        partial(xp.add, a.variance.reshape(-1, 1), a.epsilon, deviation),
        partial(xp.sqrt, deviation, deviation),
        partial(xp.divide, y_RF, deviation, y_RF),
    ]
    if a.scale is not None:
        steps.append(partial(xp.multiply, y_RF, a.scale.reshape(1, -1), y_RF))
    if a.bias is not None:
        steps.append(partial(xp.add, y_RF, a.bias.reshape(1, -1), y_RF))
    return steps


@kernel("layer_norm_grad")
def layer_norm_grad(dev: Device, a: LayerNormGrad) -> list[Step]:
    xp = dev.xp
    rows = a.mean.size
    x_RF, dy_RF = (_by_rows(array, rows, a.scale, a.d_bias) for array in (a.x, a.d_y))
    width = max(x_RF.shape[1], 1)
    hat, work = dev.scratch(x_RF.shape, a.x.dtype), dev.scratch(x_RF.shape, a.x.dtype)
    deviation, share = dev.scratch((rows, 1), a.x.dtype), dev.scratch((rows, 1), a.x.dtype)
    steps: list[Step] = [
        partial(xp.add, a.variance.reshape(-1, 1), a.epsilon, deviation),
        partial(xp.sqrt, deviation, deviation),
        partial(xp.subtract, x_RF, a.mean.reshape(-1, 1), hat),
        partial(xp.divide, hat, deviation, hat),
    ]
    if a.d_bias is not None:
        steps.append(partial(xp.add.reduce, dy_RF, 0, None, a.d_bias.reshape(-1)))
    if a.d_scale is not None:
        steps.append(partial(xp.multiply, dy_RF, hat, work))
        steps.append(partial(xp.add.reduce, work, 0, None, a.d_scale.reshape(-1)))
    if a.d_x is None:
        return steps
    dx_RF = _by_rows(a.d_x, rows, a.scale, a.d_bias)
    first = (
        partial(xp.copyto, dx_RF, dy_RF)
        if a.scale is None
        else partial(xp.multiply, dy_RF, a.scale.reshape(1, -1), dx_RF)
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


@kernel(ADD_NORM)
def add_layer_norm(dev: Device, a: AddLayerNorm) -> list[Step]:
    return [partial(dev.xp.add, a.x, a.z, a.out), *layer_norm(dev, a.replace(x=a.out))]


@kernel(NORM_GRAD_ADD)
def layer_norm_grad_add(dev: Device, a: LayerNormGradAdd) -> list[Step]:
    return [*layer_norm_grad(dev, a), partial(dev.xp.add, a.d_x, a.addend, a.d_x)]
