"""Batch norm, a sum and an activation by oneDNN: what follows the norm is done in the memory of its result."""

from __future__ import annotations

from typing import Any

from ....graph.ir.capabilities import CHANNELS_LAST
from ....graph.ops import fused_norm as ops
from ...device.device import Device
from ..registry import Step
from .elementwise import slope_at_result, sum_and_activation
from .norm import batch_norm, batch_norm_grad
from .support import onednn


@onednn(ops.ACT, ops.ADD_ACT, layout=CHANNELS_LAST)
def fused_batch_norm_act(dev: Device, a: Any) -> list[Step]:
    z = a.z if isinstance(a, ops.FusedBnAddActivation) else None
    return [*batch_norm(dev, a), *sum_and_activation(dev, a.act_type, a.y, z)]


# Of a relu's result it reads no more than the signs.
@onednn(f"{ops.ACT}_grad", f"{ops.ADD_ACT}_grad", layout=CHANNELS_LAST, factors={"Y": ()})
def fused_batch_norm_act_grad(dev: Device, a: ops.FusedBatchNormActGrad) -> list[Step]:
    """What comes through the activation is the gradient of Z, and that of the norm's result."""
    d_z = a.d_z if isinstance(a, ops.FusedBnAddActivationGrad) else None
    d_sum = next((d for d in (d_z, a.d_x) if d is not None), None)
    d_sum = dev.scratch_like(a.y) if d_sum is None else d_sum
    steps = slope_at_result(dev, a.act_type, a.y, a.d_y, d_sum)
    if a.d_x is None and a.d_scale is None and a.d_bias is None:
        return steps
    return [*steps, *batch_norm_grad(dev, a.replace(d_y=d_sum))]
