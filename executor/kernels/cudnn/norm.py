"""Batch norm by cuDNN over images with channels last, alone or fused with an addition and relu.

The library's running variance is not Paddle's (it divides by one element less), so a small kernel of our own
adds to the running statistics.
"""

from __future__ import annotations

from typing import Any

from ....graph.ir.capabilities import AS_THEY_COME
from ....graph.ir.graph import Node
from ....graph.ops import fused_norm as ops
from ....graph.ops.norm import BatchNormGrad, BatchNormOperands
from ....graph.ops.operands import Array
from ....strategies.types import LOW, VarType
from ...codegen.cuda_launches import each, numbers, read, written
from ...cuda import dnn
from ...device.device import Device
from ..cuda.support import part
from ..registry import KERNELS, Step
from .support import Declined, bound, cudnn, on_tensor_cores

_RUNNING = """
  float deviation = 1.0f / inverse[i];
  float new_variance = fmaxf(deviation * deviation - epsilon, 0.0f);
  if (deviation != deviation) new_variance = deviation;
  mean_out[i] = momentum * mean[i] + (1.0f - momentum) * new_mean[i];
  variance_out[i] = momentum * variance[i] + (1.0f - momentum) * new_variance;
"""


def _in_training(node: Node) -> bool:
    """Images are of low precision, so that they lie channels last; statistics are the batch's, in float32.

    The activation is a relu.
    """
    attrs = node.attrs
    global_stats = attrs["use_global_stats"] or attrs["is_test"]
    (x,), (scale,) = node.inputs["X"], node.inputs["Scale"]
    assert x is not None and scale is not None
    kinds = x.spec.dtype in LOW and scale.spec.dtype == VarType.FP32
    return kinds and not global_stats and attrs.get("act_type", "relu") == "relu"


def channels_last(array: Array, data_layout: str) -> Any:
    """View samples of any rank as images [N, C, H, W].

    Raises:
        Declined: channels do not lie last; cuDNN would copy.
    """
    if data_layout != "NHWC":
        array = array.transpose((0, *range(2, array.ndim), 1))
    if not array.flags.c_contiguous:
        raise Declined
    if array.ndim != 4:
        array = array.reshape(-1, 1, 1, array.shape[-1])
    return array.transpose((0, 3, 1, 2))


@cudnn(
    "batch_norm",
    "fused_batch_norm_act",
    "fused_bn_add_activation",
    takes=_in_training,
    layout=on_tensor_cores(AS_THEY_COME),
)
def batch_norm(dev: Device, a: BatchNormOperands) -> list[Step]:
    z = a.z if isinstance(a, ops.FusedBnAddActivation) else None
    arrays = {"x": a.x, **({} if z is None else {"z": z}), "y": a.y}
    images = {name: channels_last(array, a.data_layout) for name, array in arrays.items()}
    relu = isinstance(a, ops.FusedBatchNormAct)
    masks = isinstance(a, ops.MaskedBnAddActivation) and _masks(dev, images["x"], a.epsilon)
    norm = dnn.BatchNorm(dnn.tensor(images["x"]), a.epsilon, z is not None, relu, masks)
    inverse = a.saved_variance
    parameters = {"scale": a.scale, "bias": a.bias, "mean": a.saved_mean, "inverse": inverse}
    parameters |= {"mask": a.mask} if isinstance(a, ops.MaskedBnAddActivation) and masks else {}
    arguments = [
        *written(mean_out=a.mean_out, variance_out=a.variance_out),
        *read(mean=a.mean, variance=a.variance, new_mean=a.saved_mean, inverse=inverse),
        *numbers(inverse, momentum=a.momentum, epsilon=a.epsilon),
    ]
    running = each(dev, "running_statistics", _RUNNING, arguments, inverse.size)
    return [*bound(dev, norm, **images, **parameters), running]


@cudnn("batch_norm_grad", takes=_in_training, layout=on_tensor_cores(AS_THEY_COME))
def batch_norm_grad(dev: Device, a: BatchNormGrad) -> list[Step]:
    return _backward(dev, a, None, a.d_y)


@cudnn("fused_batch_norm_act_grad", takes=_in_training, layout=on_tensor_cores(AS_THEY_COME))
def fused_batch_norm_act_grad(dev: Device, a: ops.FusedBatchNormActGrad) -> list[Step]:
    """Y is not read: x tells where relu lets through."""
    return _backward(dev, a, a.bias, a.d_y)


@cudnn("fused_bn_add_activation_grad", takes=_in_training, layout=on_tensor_cores(AS_THEY_COME))
def fused_bn_add_activation_grad(dev: Device, a: ops.FusedBnAddActivationGrad) -> list[Step]:
    """The gradient through the relu is both Z's and the norm's result's."""
    x = channels_last(a.x, a.data_layout)
    norms = any(array is not None for array in (a.d_x, a.d_scale, a.d_bias))
    if isinstance(a, ops.MaskedBnAddActivationGrad) and norms and _masks(dev, x, a.epsilon):
        return _backward(dev, a, None, a.d_y, a)
    d_sum = dev.scratch_like(a.y) if a.d_z is None else a.d_z
    steps = part(dev, "relu_grad", {"Out": a.y, "Out@GRAD": a.d_y}, {"X@GRAD": d_sum})
    return [*steps, *_backward(dev, a, None, d_sum)] if norms else steps


def _fills_bytes(node: Node) -> bool:
    """Accept a node that the library computes whole, with channels whose mask bits fill bytes."""
    (scale,) = node.inputs["Scale"]
    assert scale is not None
    return _in_training(node) and scale.spec.shape[0] % 8 == 0


for _op in (
    ops.ADD_ACT,
    f"{ops.ADD_ACT}_grad",
):  # where there is no mask, the op without one has a kernel
    _how: dict[str, Any] = {"layout": on_tensor_cores(AS_THEY_COME), "bits": "Mask"}
    register = cudnn(_op.replace(ops.ADD_ACT, ops.MASKED), takes=_fills_bytes, **_how)
    register(KERNELS[_op, "cudnn"].function)


def _masks(dev: Device, x: Any, epsilon: float) -> bool:
    """Tell whether the library both writes a mask and reads it.

    The two ops decide alike: their images lie alike, so neither is left to others for their order alone.
    """
    like = dnn.tensor(x)
    pair = (
        dnn.BatchNorm(like, epsilon, adds=True, relu=True, masks=True),
        dnn.BatchNormGrad(like, masked=True, forks=True),
    )
    return all(dev.cuda.dnn.workspace(graph) is not None for graph in pair)


def _backward(
    dev: Device,
    a: BatchNormGrad,
    bias: Array | None,
    d_y: Array,
    masked: ops.MaskedBnAddActivationGrad | None = None,
) -> list[Step]:
    """With ``bias``, or ``masked``, ``d_y`` has yet to go through a relu."""
    x, d_y = (channels_last(array, a.data_layout) for array in (a.x, d_y))
    d_x = dev.scratch_like(x) if a.d_x is None else channels_last(a.d_x, a.data_layout)
    sums = {
        name: dev.scratch_like(a.scale) if array is None else array
        for name, array in (("d_scale", a.d_scale), ("d_bias", a.d_bias))
    }
    read = {"scale": a.scale, **({} if bias is None else {"bias": bias})}
    read |= {"mean": a.saved_mean, "inverse": a.saved_variance}
    if masked is not None:
        read["mask"] = masked.mask
        if masked.d_z is not None:
            sums["d_z"] = channels_last(masked.d_z, a.data_layout)
    norm = dnn.BatchNormGrad(dnn.tensor(x), bias is not None, masked is not None, "d_z" in sums)
    return bound(dev, norm, x=x, **read, d_y=d_y, d_x=d_x, **sums)
