"""Batch norm, a sum and an activation: what follows the norm is done in the memory of its result.

Libraries compute the parts otherwise (:class:`Parts`), and put them together alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ....graph.ops.fused_activation import value_of
from ....graph.ops.fused_norm import ACT, ADD_ACT
from ...codegen.array_calls import bind_scalar
from ...device.device import Device
from ..registry import Step, kernel
from .fused_activation import sloped
from .norm import batch_norm, batch_norm_grad

Bind = Callable[..., list[Step]]


class Parts(NamedTuple):
    """Kernels of what is fused: ``activation(dev, act, x, out)``, ``slope(dev, act, out, d_out, d_x)``."""

    norm: Bind
    norm_grad: Bind
    activation: Bind
    slope: Bind


def register(on: Callable[[str], Callable[[Bind], Any]], parts: Parts) -> None:
    """Register the kernels that are made of these parts."""
    for op_type, function in (
        (ACT, fused_batch_norm_act),
        (ADD_ACT, fused_bn_add_activation),
        (f"{ACT}_grad", fused_batch_norm_act_grad),
        (f"{ADD_ACT}_grad", fused_bn_add_activation_grad),
    ):
        on(op_type)(partial(function, parts))


def fused_batch_norm_act(
    parts: Parts,
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
        parts, dev, x, None, scale, bias, mean, variance,
        y, mean_out, variance_out, saved_mean, saved_variance,
        is_test=is_test, momentum=momentum, epsilon=epsilon, data_layout=data_layout,
        use_global_stats=use_global_stats, trainable_statistics=trainable_statistics,
        act_type=act_type,
    )  # fmt: skip


def fused_bn_add_activation(
    parts: Parts,
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
    return [
        *parts.norm(
            dev, x, scale, bias, mean, variance,
            y, mean_out, variance_out, saved_mean, saved_variance,
            is_test=is_test, momentum=momentum, epsilon=epsilon, data_layout=data_layout,
            use_global_stats=use_global_stats, trainable_statistics=trainable_statistics,
        ),
        *([] if z is None else [partial(dev.xp.add, y, z, y)]),
        *parts.activation(dev, act_type, y, y),
    ]  # fmt: skip


def fused_batch_norm_act_grad(
    parts: Parts,
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
        parts, dev, x, y, scale, saved_mean, saved_variance, d_y, d_x, None, d_scale, d_bias,
        is_test=is_test, data_layout=data_layout, use_global_stats=use_global_stats,
        act_type=act_type,
    )  # fmt: skip


def fused_bn_add_activation_grad(
    parts: Parts,
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
    d_sum = dev.scratch_like(y) if d_sum is None else d_sum
    steps = parts.slope(dev, act_type, y, d_y, d_sum)
    if d_x is None and d_scale is None and d_bias is None:
        return steps
    return [
        *steps,
        *parts.norm_grad(
            dev, x, scale, saved_mean, saved_variance, d_sum, d_x, d_scale, d_bias,
            is_test=is_test, data_layout=data_layout, use_global_stats=use_global_stats,
        ),
    ]  # fmt: skip


def _activation(dev: Device, act_type: str, x: Any, out: Any) -> list[Step]:
    act = value_of(act_type, {})
    return bind_scalar(lambda x: act(x), {"x": x}, {}, out, dev)


def _slope(dev: Device, act_type: str, out: Any, d_out: Any, d_x: Any) -> list[Step]:
    return sloped(dev, act_type, {}, {"Out": out}, d_out, d_x)


register(kernel, Parts(batch_norm, batch_norm_grad, _activation, _slope))
