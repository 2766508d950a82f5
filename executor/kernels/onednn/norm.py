"""Batch norm and layer norm. See NumPy's kernels for what Paddle keeps of the statistics.

The library is fast where channels lie last: for others copies of the images take less time.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...device.device import Device
from ..array.norm import averaged
from ..registry import Step
from .primitive import (
    BACKWARD,
    CACHED,
    D_DST,
    D_SCALE,
    D_SHIFT,
    D_SRC,
    DST,
    INFERENCE,
    MEAN,
    SCALE,
    SHIFT,
    SRC,
    TRAINING,
    VARIANCE,
    Layout,
    Primitive,
    attributes,
    in_order,
    last,
)
from .support import onednn

_GIVEN, _SCALED, _SHIFTED = 1, 2, 4  # dnnl_normalization_flags_t


def _flags(*, given: bool = False, scale: bool = True, shift: bool = True) -> int:
    return _GIVEN * given | _SCALED * scale | _SHIFTED * shift


@lru_cache(CACHED)
def _batch_forward(x: Layout, epsilon: float, flags: int) -> Primitive:
    kind = INFERENCE if flags & _GIVEN else TRAINING
    settings = (ctypes.c_float(epsilon), ctypes.c_uint(flags))
    what = f"batch norm of {x}"
    make = "batch_normalization_forward"
    return Primitive(make, kind, x, x, *settings, attributes(), what=what)


@lru_cache(CACHED)
def _batch_backward(x: Layout, epsilon: float, flags: int) -> Primitive:
    settings = (ctypes.c_float(epsilon), ctypes.c_uint(flags))
    hint = _batch_forward(x, epsilon, flags & ~_GIVEN).descriptor
    what = f"gradient of batch norm of {x}"
    make = "batch_normalization_backward"
    return Primitive(make, BACKWARD, x, x, x, *settings, hint, attributes(), what=what)


def images(array: Any, data_layout: str) -> Any:
    """View samples of any rank as [N, C, ...], as the library has it: with two dimensions of size at least."""
    if data_layout == "NHWC":
        array = np.moveaxis(array, -1, 1)
    if array.ndim >= 4:
        return array
    n, c, *length = array.shape
    inner = array.strides[2:]
    strides = (*array.strides[:2], *(inner or (array.strides[1],)), *(inner or (array.strides[1],)))
    return np.lib.stride_tricks.as_strided(array, (n, c, *(length or [1]), 1), strides)


@onednn("batch_norm")
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
    x, y = images(x, data_layout), images(y, data_layout)
    given = use_global_stats or (is_test and not trainable_statistics)
    compiled = _batch_forward(last(x.shape), epsilon, _flags(given=given))
    space = dev.scratch(scale.shape, scale.dtype)
    reads = {SRC: x, SCALE: scale, SHIFT: bias}
    if given:
        steps: list[Step] = [
            partial(np.copyto, saved_mean, mean),
            partial(np.copyto, space, variance),
            *compiled.bind(dev, {**reads, MEAN: saved_mean, VARIANCE: space}, {DST: y}),
        ]
        if mean_out is not mean:
            steps.append(partial(np.copyto, mean_out, mean))
            steps.append(partial(np.copyto, variance_out, variance))
    else:
        steps = [
            *compiled.bind(dev, reads, {DST: y, MEAN: saved_mean, VARIANCE: space}),
            *averaged(dev, mean, saved_mean, mean_out, momentum, saved_variance),
            *averaged(dev, variance, space, variance_out, momentum, saved_variance),
        ]
    return [
        *steps,
        partial(np.add, space, epsilon, space),
        partial(np.sqrt, space, space),
        partial(np.divide, 1.0, space, saved_variance),
    ]


@onednn("batch_norm_grad")
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
    """Epsilon is in SavedVariance already, the inverse of the deviation."""
    x, d_y = images(x, data_layout), images(d_y, data_layout)
    d_x = None if d_x is None else images(d_x, data_layout)
    flags = _flags(given=is_test or use_global_stats)
    spread = dev.scratch(scale.shape, scale.dtype)
    reads = {SRC: x, D_DST: d_y, SCALE: scale, MEAN: saved_mean, VARIANCE: spread}
    writes = {D_SRC: d_x, D_SCALE: d_scale, D_SHIFT: d_bias}
    compiled = _batch_backward(last(x.shape), 0.0, flags)
    return [
        partial(np.multiply, saved_variance, saved_variance, spread),
        partial(np.divide, 1.0, spread, spread),
        *compiled.bind(dev, reads, writes),
    ]


@lru_cache(CACHED)
def _layer_forward(x: Layout, epsilon: float, flags: int) -> Primitive:
    settings = (ctypes.c_float(epsilon), ctypes.c_uint(flags))
    rows, make = in_order(x.shape[:1]), "layer_normalization_forward"
    what = f"layer norm of {x}"
    return Primitive(make, TRAINING, x, x, rows, *settings, attributes(), what=what)


@lru_cache(CACHED)
def _layer_backward(x: Layout, epsilon: float, flags: int) -> Primitive:
    settings = (ctypes.c_float(epsilon), ctypes.c_uint(flags))
    hint = _layer_forward(x, epsilon, flags).descriptor
    rows, make = in_order(x.shape[:1]), "layer_normalization_backward"
    what = f"gradient of layer norm of {x}"
    return Primitive(make, BACKWARD, x, x, x, rows, *settings, hint, attributes(), what=what)


def _features(arrays: dict[int, Any]) -> dict[int, Any]:
    """Return those that are given, flat."""
    return {role: array.reshape(-1) for role, array in arrays.items() if array is not None}


@onednn("layer_norm")
def layer_norm(
    dev: Device, x: Any, scale: Any, bias: Any, y: Any, mean: Any, variance: Any, *, epsilon: float
) -> list[Step]:
    x_RF, y_RF = x.reshape(mean.size, -1), y.reshape(mean.size, -1)
    flags = _flags(scale=scale is not None, shift=bias is not None)
    reads = {SRC: x_RF, **_features({SCALE: scale, SHIFT: bias})}
    compiled = _layer_forward(in_order(x_RF.shape), epsilon, flags)
    return compiled.bind(dev, reads, {DST: y_RF, MEAN: mean, VARIANCE: variance})


@onednn("layer_norm_grad")
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
    x_RF, dy_RF = x.reshape(mean.size, -1), d_y.reshape(mean.size, -1)
    dx_RF = None if d_x is None else d_x.reshape(mean.size, -1)
    flags = _flags(scale=scale is not None, shift=d_bias is not None)
    reads = {SRC: x_RF, D_DST: dy_RF, MEAN: mean, VARIANCE: variance, **_features({SCALE: scale})}
    writes = {D_SRC: dx_RF, **_features({D_SCALE: d_scale, D_SHIFT: d_bias})}
    if scale is not None:
        writes.setdefault(D_SCALE, None)
    if d_bias is not None:
        reads[SHIFT] = None  # asked for, not read
    return _layer_backward(in_order(x_RF.shape), epsilon, flags).bind(dev, reads, writes)
