"""Batch norm by cuDNN, over images with channels last, alone or with what is fused with it.

The library's running variance is not Paddle's (it divides by one element less), so a small kernel of our own
adds to the running statistics.
"""

from __future__ import annotations

from typing import Any

from ....graph.ir.graph import Node
from ....strategies.types import LOW, VarType
from ...cuda.dnn import BatchNorm, BatchNormGrad, tensor
from ...cuda.kernel import CudaKernel
from ...device.device import Device
from ..cuda.support import launch
from ..registry import Step
from .support import Declined, bound, cudnn, part

_RUNNING = CudaKernel(
    "running_statistics",
    (
        ("float*", "mean_out"),
        ("float*", "variance_out"),
        ("const float*", "mean"),
        ("const float*", "variance"),
        ("const float*", "new_mean"),
        ("const float*", "inverse"),
        ("float", "momentum"),
        ("float", "epsilon"),
        ("int", "channels"),
    ),
    """
  int c = (int)thread_index();
  if (c >= channels) return;
  float deviation = 1.0f / inverse[c];
  float new_variance = fmaxf(deviation * deviation - epsilon, 0.0f);
  if (deviation != deviation) new_variance = deviation;
  mean_out[c] = momentum * mean[c] + (1.0f - momentum) * new_mean[c];
  variance_out[c] = momentum * variance[c] + (1.0f - momentum) * new_variance;
""",
)


def _in_training(node: Node) -> bool:
    """Images are of low precision, so that they lie channels last; statistics are the batch's, in float32.

    The activation is a relu.
    """
    attrs = node.attrs
    given = attrs["use_global_stats"] or attrs["is_test"]
    (x,), (scale,) = node.inputs["X"], node.inputs["Scale"]
    assert x is not None and scale is not None
    kinds = x.spec.dtype in LOW and scale.spec.dtype == VarType.FP32
    return kinds and not given and attrs.get("act_type", "relu") == "relu"


def channels_last(array: Any, data_layout: str) -> Any:
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


@cudnn("batch_norm", takes=_in_training)
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
    return _forward(dev, locals(), relu=False)


@cudnn("fused_batch_norm_act", takes=_in_training)
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
    return _forward(dev, locals(), relu=True)


@cudnn("fused_bn_add_activation", takes=_in_training)
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
    return _forward(dev, locals(), relu=True)


def _forward(dev: Device, slots: dict[str, Any], *, relu: bool) -> list[Step]:
    """``slots`` holds arrays and attributes by parameter."""
    layout, epsilon = slots["data_layout"], slots["epsilon"]
    images = {n: channels_last(slots[n], layout) for n in ("x", "z", "y") if n in slots}
    norm = BatchNorm(tensor(images["x"]), epsilon, "z" in images, relu)
    inverse = slots["saved_variance"]
    statistics = {"mean": slots["saved_mean"], "inverse": inverse}
    parameters = {name: slots[name] for name in ("scale", "bias")}
    channels = inverse.size
    running = [slots[n] for n in ("mean_out", "variance_out", "mean", "variance")]
    numbers = (slots["momentum"], epsilon, channels)
    return [
        *bound(dev, norm, **images, **parameters, **statistics),
        launch(
            dev,
            _RUNNING,
            -(-channels // 256),
            (*running, slots["saved_mean"], inverse, *numbers),
        ),
    ]


@cudnn("batch_norm_grad", takes=_in_training)
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
    return _backward(dev, locals(), None, d_y)


@cudnn("fused_batch_norm_act_grad", takes=_in_training)
def fused_batch_norm_act_grad(
    dev: Device,
    x: Any,
    y: Any,
    scale: Any,
    bias: Any,
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
    """Y is not read: x tells where relu lets through."""
    return _backward(dev, locals(), bias, d_y)


@cudnn("fused_bn_add_activation_grad", takes=_in_training)
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
    """What comes through the relu is the gradient of Z, and that of the norm's result."""
    slots = locals()
    channels_last(x, data_layout)
    d_sum = dev.scratch_like(y) if d_z is None else d_z
    steps = part(dev, "relu_grad", {"Out": y, "Out@GRAD": d_y}, {"X@GRAD": d_sum})
    if d_x is None and d_scale is None and d_bias is None:
        return steps
    return [*steps, *_backward(dev, slots, None, d_sum)]


def _backward(dev: Device, slots: dict[str, Any], bias: Any, d_y: Any) -> list[Step]:
    """With ``bias``, ``d_y`` has yet to go through a relu."""
    layout, scale = slots["data_layout"], slots["scale"]
    x, d_y = (channels_last(array, layout) for array in (slots["x"], d_y))
    d_x = slots["d_x"]
    d_x = dev.scratch_like(x) if d_x is None else channels_last(d_x, layout)
    made = {
        name: dev.scratch_like(scale) if slots[name] is None else slots[name]
        for name in ("d_scale", "d_bias")
    }
    read = {"scale": scale, **({} if bias is None else {"bias": bias})}
    statistics = {"mean": slots["saved_mean"], "inverse": slots["saved_variance"]}
    norm = BatchNormGrad(tensor(x), relu=bias is not None)
    return bound(dev, norm, x=x, **read, **statistics, d_y=d_y, d_x=d_x, **made)
