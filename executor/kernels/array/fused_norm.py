"""Batch norm, a sum and an activation: what follows the norm is done in the memory of its result.

Libraries compute the parts otherwise (:class:`Parts`), and put them together alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ....graph.ops import fused_norm as ops
from ....graph.ops.fused_activation import value_of
from ....graph.ops.operands import Array
from ...codegen.array_calls import bind_scalar
from ...device.device import Device
from ..registry import Step, kernel
from .activation import sloped
from .norm import batch_norm, batch_norm_grad

Bind = Callable[..., list[Step]]


class Parts(NamedTuple):
    """Kernels of what is fused: ``activation(dev, act, y, z)``, ``slope(dev, act, out, d_out, d_x)``.

    The activation is that of y + z (of y, if z is None), in y.
    """

    norm: Bind
    norm_grad: Bind
    activation: Bind
    slope: Bind


def register(on: Callable[[str], Callable[[Bind], Any]], parts: Parts) -> None:
    """Register the kernels that are made of these parts."""
    for op_type, function in (
        (ops.ACT, fused_batch_norm_act),
        (ops.ADD_ACT, fused_batch_norm_act),
        (f"{ops.ACT}_grad", fused_batch_norm_act_grad),
        (f"{ops.ADD_ACT}_grad", fused_batch_norm_act_grad),
    ):
        on(op_type)(partial(function, parts))


def fused_batch_norm_act(parts: Parts, dev: Device, a: ops.FusedBatchNormAct) -> list[Step]:
    z = a.z if isinstance(a, ops.FusedBnAddActivation) else None
    return [*parts.norm(dev, a), *parts.activation(dev, a.act_type, a.y, z)]


def fused_batch_norm_act_grad(
    parts: Parts, dev: Device, a: ops.FusedBatchNormActGrad
) -> list[Step]:
    """What comes through the activation is the gradient of Z, and that of the norm's result."""
    d_z = a.d_z if isinstance(a, ops.FusedBnAddActivationGrad) else None
    d_sum = next((d for d in (d_z, a.d_x) if d is not None), None)
    d_sum = dev.scratch_like(a.y) if d_sum is None else d_sum
    steps = parts.slope(dev, a.act_type, a.y, a.d_y, d_sum)
    if a.d_x is None and a.d_scale is None and a.d_bias is None:
        return steps
    return [*steps, *parts.norm_grad(dev, a.replace(d_y=d_sum))]


def _activation(dev: Device, act_type: str, y: Any, z: Array | None) -> list[Step]:
    act = value_of(act_type, {})
    added = [] if z is None else [partial(dev.xp.add, y, z, y)]
    return [*added, *bind_scalar(lambda x: act(x), {"x": y}, {}, y, dev)]


def _slope(dev: Device, act_type: str, out: Array, d_out: Array, d_x: Any) -> list[Step]:
    return sloped(dev, act_type, {}, {"Out": out}, d_out, d_x)


_PARTS = Parts(batch_norm, batch_norm_grad, _activation, _slope)
register(kernel, _PARTS)
kernel(f"{ops.MASKED}_grad")(partial(fused_batch_norm_act_grad, _PARTS))


@kernel(ops.MASKED)
def masked_bn_add_activation(dev: Device, a: ops.MaskedBnAddActivation) -> list[Step]:
    images = a.y if a.data_layout == "NHWC" else dev.xp.moveaxis(a.y, 1, -1)

    def pack() -> None:
        a.mask[...] = dev.xp.packbits(images > 0, bitorder="little")

    return [*fused_batch_norm_act(_PARTS, dev, a), pack]
