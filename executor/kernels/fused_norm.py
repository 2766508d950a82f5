"""Batch norm, a sum and an activation: what follows the norm is done in the memory of its result."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...graph.ops.fused_activation import value_of
from ...graph.ops.fused_norm import ACT, ADD_ACT
from ..codegen.array_calls import bind_scalar
from ..device import Device
from .fused_activation import sloped
from .norm import batch_norm, batch_norm_grad
from .registry import Step, kernel


@kernel(ACT)
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
    return fused_bn_add_activation(
        dev, x, None, scale, bias, mean, variance,
        y, mean_out, variance_out, saved_mean, saved_variance,
        is_test=is_test, momentum=momentum, epsilon=epsilon, data_layout=data_layout,
        use_global_stats=use_global_stats, trainable_statistics=trainable_statistics,
        act_type=act_type,
    )  # fmt: skip


@kernel(ADD_ACT)
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
    act = value_of(act_type, {})
    return [
        *batch_norm(
            dev, x, scale, bias, mean, variance,
            y, mean_out, variance_out, saved_mean, saved_variance,
            is_test=is_test, momentum=momentum, epsilon=epsilon, data_layout=data_layout,
            use_global_stats=use_global_stats, trainable_statistics=trainable_statistics,
        ),
        *([] if z is None else [partial(dev.xp.add, y, z, y)]),
        *bind_scalar(lambda y: act(y), {"y": y}, {}, y, dev),
    ]  # fmt: skip


@kernel(f"{ACT}_grad")
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
    return fused_bn_add_activation_grad(
        dev, x, y, scale, saved_mean, saved_variance, d_y, d_x, None, d_scale, d_bias,
        is_test=is_test, data_layout=data_layout, use_global_stats=use_global_stats,
        act_type=act_type,
    )  # fmt: skip


@kernel(f"{ADD_ACT}_grad")
def fused_bn_add_activation_grad(
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
    act_type: str,
) -> list[Step]:
    """What comes through the activation is the gradient of Z, and that of the norm's result."""
    d_sum = next((d for d in (d_z, d_x) if d is not None), None)
    d_sum = dev.scratch(y.shape, y.dtype) if d_sum is None else d_sum
    steps = sloped(dev, act_type, {}, {"Out": y}, d_y, d_sum)
    if d_x is None and d_scale is None and d_bias is None:
        return steps
    return [
        *steps,
        *batch_norm_grad(
            dev, x, scale, saved_mean, saved_variance, d_sum, d_x, d_scale, d_bias,
            is_test=is_test, data_layout=data_layout, use_global_stats=use_global_stats,
        ),
    ]  # fmt: skip
