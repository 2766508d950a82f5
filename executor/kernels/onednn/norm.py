"""Batch norm and layer norm. See NumPy's kernels for what Paddle keeps of the statistics.

The library is fast where channels lie last; compiled loops are where images lie in the order of their shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....graph.ir.capabilities import AS_THEY_COME
from ....graph.ops.conv import LAST
from ....graph.ops.norm import BatchNorm, BatchNormGrad, LayerNorm, LayerNormGrad
from ....graph.ops.operands import Array
from ...codegen.native import version
from ...device.device import Device
from ..array.formula import ARRAY_MEANS, by_formula
from ..formulas import LLVM_MEANS
from ..registry import Step
from . import primitive as dnnl
from .support import onednn

Bind = Callable[..., list[Step]]
_GIVEN, _SCALED, _SHIFTED = 1, 2, 4  # dnnl_normalization_flags_t


def _flags(*, global_stats: bool = False, scale: bool = True, shift: bool = True) -> int:
    return _GIVEN * global_stats | _SCALED * scale | _SHIFTED * shift


@dnnl.shared
def _batch_forward(x: dnnl.Layout, epsilon: float, flags: int) -> dnnl.Primitive:
    kind = dnnl.INFERENCE if flags & _GIVEN else dnnl.TRAINING
    return dnnl.Primitive("batch_normalization_forward", kind, x, x, float(epsilon), flags)


@dnnl.shared
def _batch_backward(x: dnnl.Layout, flags: int) -> dnnl.Primitive:
    forward = _batch_forward(x, 0.0, flags & ~_GIVEN)
    return dnnl.Primitive(
        "batch_normalization_backward", dnnl.BACKWARD, x, x, x, 0.0, flags, hint=forward
    )


def images(array: Array, data_layout: str) -> Any:
    """View samples of any rank as [N, C, ...], as the library has it: with two dimensions of size at least."""
    if data_layout == "NHWC":
        array = np.moveaxis(array, -1, 1)
    if array.ndim >= 4:
        return array
    n, c, *length = array.shape
    inner = array.strides[2:]
    strides = (*array.strides[:2], *(inner or (array.strides[1],)), *(inner or (array.strides[1],)))
    return np.lib.stride_tricks.as_strided(array, (n, c, *(length or [1]), 1), strides)


# This code writes eight channels of every pixel in turn, past the cache if the result lies as it likes: half a
# cache line each, five times as slow as into memory that lies otherwise.
_BY_HALF_LINES, _OTHERWISE = "bnorm_jit:avx2", 16


# And this one, for channels that make no fours, is slower than NumPy is on images in the order of their shape.
_CHANNEL_BY_CHANNEL = "nspc_bnorm:any"


def _by_numpy(
    op_type: str, dev: Device, a: Any, reads: Sequence[str], writes: Sequence[str]
) -> list[Step]:
    """Return the calls of the formula on images in the order of their shape, and those that copy to it."""
    images = {name: getattr(a, name) for name in (*reads, *writes)}
    moved = {n: i for n, i in images.items() if i is not None and not i.flags.c_contiguous}
    near = {name: dev.scratch(array.shape, array.dtype) for name, array in moved.items()}
    return [
        *(step for n in near if n in reads for step in dnnl.reordered(dev, moved[n], near[n])),
        *by_formula(op_type, dev, a.replace(**near), ARRAY_MEANS),
        *(step for n in near if n in writes for step in dnnl.reordered(dev, near[n], moved[n])),
    ]


def _result(dev: Device, compiled: dnnl.Primitive, y: Array) -> tuple[Any, list[Step]]:
    """Return where a batch norm is to write, and the calls that copy it to ``y`` then."""
    if compiled.implementation != _BY_HALF_LINES:
        return y, []
    n, c, *sizes = y.shape
    flat = dev.scratch((y.nbytes + _OTHERWISE,), np.uint8)[_OTHERWISE:].view(y.dtype)
    near = np.moveaxis(flat.reshape(n, *sizes, c), -1, 1)
    return near, dnnl.reordered(dev, near, y)


def _looped(a: BatchNorm | BatchNormGrad) -> bool:
    """Tell whether loops take less time than the library, which would copy the images: up to a quarter."""
    ahead = a.x.ndim == 4 and a.data_layout not in LAST and not dnnl.channels_last(a.x)
    return ahead and bool(version())


def averaged(
    dev: Device, running: Any, new: Any, out: Array, momentum: float, space: Any
) -> list[Step]:
    """out = momentum * running + (1 - momentum) * new."""
    return [
        partial(np.multiply, new, 1.0 - momentum, space),
        partial(np.multiply, running, momentum, out),
        partial(np.add, out, space, out),
    ]


@onednn("batch_norm", any_order=True, layout=AS_THEY_COME, prefer_loops=True)
def batch_norm(dev: Device, a: BatchNorm) -> list[Step]:
    if _looped(a):
        return by_formula("batch_norm", dev, a, LLVM_MEANS)
    x, y = images(a.x, a.data_layout), images(a.y, a.data_layout)
    global_stats = a.use_global_stats or (a.is_test and not a.trainable_statistics)
    compiled = _batch_forward(dnnl.last(x.shape), a.epsilon, _flags(global_stats=global_stats))
    if compiled.implementation == _CHANNEL_BY_CHANNEL:
        return _by_numpy("batch_norm", dev, a, ("x",), ("y",))
    space = dev.scratch(a.scale.shape, a.scale.dtype)
    y, copies = _result(dev, compiled, y)
    reads = {"src": x, "scale": a.scale, "shift": a.bias}
    if global_stats:
        steps: list[Step] = [
            partial(np.copyto, a.saved_mean, a.mean),
            partial(np.copyto, space, a.variance),
            *compiled.bind(dev, {**reads, "mean": a.saved_mean, "variance": space}, {"dst": y}),
        ]
        if a.mean_out is not a.mean:
            steps.append(partial(np.copyto, a.mean_out, a.mean))
            steps.append(partial(np.copyto, a.variance_out, a.variance))
    else:
        steps = [
            *compiled.bind(dev, reads, {"dst": y, "mean": a.saved_mean, "variance": space}),
            *averaged(dev, a.mean, a.saved_mean, a.mean_out, a.momentum, a.saved_variance),
            *averaged(dev, a.variance, space, a.variance_out, a.momentum, a.saved_variance),
        ]
    return [
        *steps,
        *copies,
        partial(np.add, space, a.epsilon, space),
        partial(np.sqrt, space, space),
        partial(np.divide, 1.0, space, a.saved_variance),
    ]


@onednn("batch_norm_grad", any_order=True, layout=AS_THEY_COME, prefer_loops=True)
def batch_norm_grad(dev: Device, a: BatchNormGrad) -> list[Step]:
    """Epsilon is in SavedVariance already, the inverse of the deviation."""
    if _looped(a):
        return by_formula("batch_norm_grad", dev, a, LLVM_MEANS)
    x, d_y = images(a.x, a.data_layout), images(a.d_y, a.data_layout)
    d_x = None if a.d_x is None else images(a.d_x, a.data_layout)
    flags = _flags(global_stats=a.is_test or a.use_global_stats)
    spread = dev.scratch(a.scale.shape, a.scale.dtype)
    reads = {"src": x, "d_dst": d_y, "scale": a.scale, "mean": a.saved_mean, "variance": spread}
    writes = {"d_src": d_x, "d_scale": a.d_scale, "d_shift": a.d_bias}
    compiled = _batch_backward(dnnl.last(x.shape), flags)
    if compiled.implementation == _CHANNEL_BY_CHANNEL:
        return _by_numpy("batch_norm_grad", dev, a, ("x", "d_y"), ("d_x",))
    return [
        partial(np.multiply, a.saved_variance, a.saved_variance, spread),
        partial(np.divide, 1.0, spread, spread),
        *compiled.bind(dev, reads, writes),
    ]


@dnnl.shared
def _layer_forward(x: dnnl.Layout, epsilon: float, flags: int) -> dnnl.Primitive:
    rows = dnnl.in_order(x.shape[:1])
    return dnnl.Primitive(
        "layer_normalization_forward", dnnl.TRAINING, x, x, rows, float(epsilon), flags
    )


@dnnl.shared
def _layer_backward(x: dnnl.Layout, epsilon: float, flags: int) -> dnnl.Primitive:
    rows, forward = dnnl.in_order(x.shape[:1]), _layer_forward(x, epsilon, flags)
    ends = (x, x, x, rows)
    return dnnl.Primitive(
        "layer_normalization_backward", dnnl.BACKWARD, *ends, float(epsilon), flags, hint=forward
    )


def _features(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays that there are, flat."""
    return {role: array.reshape(-1) for role, array in arrays.items() if array is not None}


@onednn("layer_norm")
def layer_norm(dev: Device, a: LayerNorm) -> list[Step]:
    x_RF, y_RF = a.x.reshape(a.mean.size, -1), a.y.reshape(a.mean.size, -1)
    flags = _flags(scale=a.scale is not None, shift=a.bias is not None)
    reads = {"src": x_RF, **_features({"scale": a.scale, "shift": a.bias})}
    compiled = _layer_forward(dnnl.in_order(x_RF.shape), a.epsilon, flags)
    return compiled.bind(dev, reads, {"dst": y_RF, "mean": a.mean, "variance": a.variance})


@onednn("layer_norm_grad", prefer_loops=True)
def layer_norm_grad(dev: Device, a: LayerNormGrad) -> list[Step]:
    x_RF, dy_RF = a.x.reshape(a.mean.size, -1), a.d_y.reshape(a.mean.size, -1)
    dx_RF = None if a.d_x is None else a.d_x.reshape(a.mean.size, -1)
    flags = _flags(scale=a.scale is not None, shift=a.d_bias is not None)
    reads: dict[str, Any] = {"src": x_RF, "d_dst": dy_RF, "mean": a.mean, "variance": a.variance}
    reads |= _features({"scale": a.scale})
    writes = {"d_src": dx_RF, **_features({"d_scale": a.d_scale, "d_shift": a.d_bias})}
    if a.scale is not None:
        writes.setdefault("d_scale", None)
    if a.d_bias is not None:
        reads["shift"] = None  # asked for, not read
    return _layer_backward(dnnl.in_order(x_RF.shape), a.epsilon, flags).bind(dev, reads, writes)
