"""Batch norm as compiled loops where oneDNN is slow: with given statistics, and where channels make no fours.

Images lie in either order of memory. See the array kernels for what Paddle keeps of the statistics.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ir.capabilities import AS_THEY_COME
from ....graph.ir.graph import Node
from ....graph.ops import expr as e
from ....graph.ops.norm import BatchNorm, BatchNormGrad, uses_statistics
from ...codegen.loops import bind_loop
from ...device.device import Device
from ..array.norm import averaged, channels
from ..registry import Step, kernel
from .elementwise import in_float32

_X, _D, _MEAN, _INVERSE, _SCALE, _BIAS = map(e.argument, ("x", "d", "m", "i", "s", "b"))
_FOURS = 4


def _takes(node: Node) -> bool:
    (scale,) = node.inputs["Scale"]
    assert scale is not None
    fixed = uses_statistics({"trainable_statistics": False, **node.attrs})
    return in_float32(node) and (fixed or scale.spec.shape[0] % _FOURS != 0)


@kernel("batch_norm", on=("numba",), takes=_takes, any_order=True, layout=AS_THEY_COME)
def batch_norm(dev: Device, a: BatchNorm) -> list[Step]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias."""
    _, spread, count = channels(a.x, a.data_layout)
    inverse = 1.0 / e.sqrt(_X + a.epsilon)
    if uses_statistics(vars(a)):
        variance = a.variance
        steps: list[Step] = [partial(np.copyto, a.saved_mean, a.mean)]
        if a.mean_out is not a.mean:
            steps.append(partial(np.copyto, a.mean_out, a.mean))
            steps.append(partial(np.copyto, a.variance_out, a.variance))
    else:
        variance = dev.scratch(a.scale.shape, a.scale.dtype)
        mean = a.saved_mean.reshape(spread)
        square = e.square(_X - _MEAN)
        steps = [
            *bind_loop([(e.copy(_X), mean)], {"x": a.x}),
            partial(np.multiply, mean, 1.0 / count, mean),
            *bind_loop([(square, variance.reshape(spread))], {"x": a.x, "m": mean}),
            partial(np.multiply, variance, 1.0 / count, variance),
            *averaged(dev, a.mean, a.saved_mean, a.mean_out, a.momentum, a.saved_variance),
            *averaged(dev, a.variance, variance, a.variance_out, a.momentum, a.saved_variance),
        ]
    operands = {"m": a.saved_mean, "i": a.saved_variance, "s": a.scale, "b": a.bias}
    operands = {name: array.reshape(spread) for name, array in operands.items()}
    result = (_X - _MEAN) * (_INVERSE * _SCALE) + _BIAS
    return [
        *steps,
        *bind_loop([(inverse, a.saved_variance)], {"x": variance}),
        *bind_loop([(result, a.y)], {"x": a.x, **operands}),
    ]


@kernel("batch_norm_grad", on=("numba",), takes=_takes, any_order=True, layout=AS_THEY_COME)
def batch_norm_grad(dev: Device, a: BatchNormGrad) -> list[Step]:
    """With fixed statistics dx = dy * scale * inv_std; else the mean and the x-aligned part of dy go."""
    _, spread, count = channels(a.x, a.data_layout)
    fixed = a.use_global_stats or a.is_test
    d_scale, d_bias = (
        dev.scratch(a.scale.shape, a.scale.dtype) if d is None else d for d in (a.d_scale, a.d_bias)
    )
    operands = {"m": a.saved_mean, "i": a.saved_variance, "s": a.scale, "p": d_scale, "q": d_bias}
    small = {name: array.reshape(spread) for name, array in operands.items()}
    large = {"x": a.x, "d": a.d_y}
    normed, share = (_X - _MEAN) * _INVERSE, 1.0 / count
    steps: list[Step] = []
    if not fixed or a.d_scale is not None or a.d_bias is not None:
        sums = [(_D * normed, small["p"]), (e.copy(_D), small["q"])]
        steps += bind_loop(sums, {**large, "m": small["m"], "i": small["i"]})
    if a.d_x is None:
        return steps
    if fixed:
        slope = _D * (_SCALE * _INVERSE)
        return [
            *steps,
            *bind_loop([(slope, a.d_x)], {"d": a.d_y, "i": small["i"], "s": small["s"]}),
        ]
    along = normed * (e.argument("p") * share) + e.argument("q") * share
    return [*steps, *bind_loop([((_D - along) * (_SCALE * _INVERSE), a.d_x)], {**large, **small})]
