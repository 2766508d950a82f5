"""Batch norm, with an added array and an activation applied as results are written.

A batch norm reads its operand twice: for the moments of its channels, and to write the result. Its gradient
reads twice too.
"""

from __future__ import annotations

from typing import Any

from ....graph.ir.capabilities import AS_THEY_COME
from ....graph.ops import fused_norm as ops
from ....graph.ops.norm import BatchNormGrad, BatchNormOperands
from ....graph.ops.operands import Array
from ....graph.ops.sync_norm import BatchNormApply
from ...codegen.cuda_launches import (
    Argument,
    Maybe,
    ints,
    longs,
    names,
    numbers,
    read,
    run,
    written,
)
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .support import cuda, floating
from .tiles import INCLUDES, Channels

_ACTS = {"": "Identity", "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


Channel = tuple[str, list[Argument]]  # the C text that makes one, and the parameters in it


def statistics(
    dev: Device, a: BatchNormOperands | BatchNormApply, slope: Any
) -> tuple[Channel, Array]:
    """Return what makes the ``Channel`` of a batch norm, and the array that gets the mean of the batch."""
    centre = dev.array_or_scratch(a.saved_mean, a.scale.shape, a.scale.dtype)
    outs = {"mean_out": a.mean_out, "variance_out": a.variance_out}
    outs |= {"saved_mean": centre, "saved_inverse": a.saved_variance}
    arguments = [
        *read(scale=a.scale, running_mean=a.mean, running_variance=a.variance),
        *written(**{name: Maybe(out, a.scale) for name, out in outs.items()}),
        *written(slope=slope),
    ]
    kinds = f"{c_type(a.scale.dtype)}, {c_type(slope.dtype)}"
    return (f"Channel<{kinds}>{{{names(arguments)}}}", arguments), centre


def learn(
    channels: Channels,
    function: str,
    channel: Channel,
    before: list[Argument],
    more: list[Argument],
) -> Step:
    """Return the launch that works out each channel's statistics, and what follows from them."""
    text, arguments = channel
    passed = ", ".join(part for part in (names(before), text, names(more)) if part)
    grid = (max(channels.blocks, 1), 1, 1)
    body = f"{function}({passed});"
    return run(channels.dev, function, body, [*before, *arguments, *more], grid, INCLUDES)


def moments(channels: Channels, x: Array) -> tuple[list[Argument], Step]:
    """Return the chunks' moments as parameters, and the launch that forms them."""
    means, squares = (channels.scratch(x, channels.chunks) for _ in range(2))
    kinds = (c_type(x.dtype), c_type(means.dtype))
    arguments = [*read(x=x), *written(means=means, squares=squares), *ints(channels=channels.count)]
    step = channels.over("block_moments", kinds, arguments)
    return read(means=means, squares=squares), step


def sizes(channels: Channels) -> list[Argument]:
    return [
        *ints(chunks=channels.chunks, channels=channels.count),
        *longs(size=channels.size, total=channels.total),
    ]


def apply(
    channels: Channels, x: Array, z: Any, y: Array, mean: Any, slope: Any, bias: Any, act: str
) -> Step:
    kinds = (c_type(x.dtype), c_type(bias.dtype), c_type(slope.dtype), _ACTS[act], _flag(z))
    operands = read(x=x, z=Maybe(z, x), mean=mean, slope=slope, shift=bias)
    return channels.over("norm_apply", kinds, [*operands, *written(y=y)])


def _flag(array: Array | str | None) -> str:
    return "false" if array is None else "true"


@cuda("batch_norm", ops.ACT, ops.ADD_ACT, takes=floating, layout=AS_THEY_COME)
def batch_norm(dev: Device, a: BatchNormOperands) -> list[Step]:
    z = a.z if isinstance(a, ops.FusedBnAddActivation) else None
    act = a.act_type if isinstance(a, ops.FusedBatchNormAct) else ""
    channels = Channels(dev, a.data_layout, a.x, z, a.y)
    slope = channels.scratch(a.x)
    channel, centre = statistics(dev, a, slope)
    if a.use_global_stats or (a.is_test and not a.trainable_statistics):
        more = [*ints(channels=channels.count), *numbers(slope, epsilon=a.epsilon)]
        steps = [learn(channels, "use_running", channel, [], more)]
    else:
        parts, step = moments(channels, a.x)
        more = [*sizes(channels), *numbers(slope, momentum=a.momentum, epsilon=a.epsilon)]
        steps = [step, learn(channels, "block_learn", channel, parts, more)]
    return [*steps, apply(channels, a.x, z, a.y, centre, slope, a.bias, act)]


def slopes(
    channels: Channels, x: Array, y: Array | None, d_y: Any, mean: Any, act: str
) -> tuple[list[Argument], Step]:
    """Return the chunks' sums as parameters, and the launch that forms them."""
    plain, along = (channels.scratch(x, channels.chunks) for _ in range(2))
    kinds = (
        c_type(x.dtype), c_type(mean.dtype), c_type(plain.dtype), _ACTS[act], _flag(act or None),
    )  # fmt: skip
    arguments = [
        *read(x=x, y=Maybe(y, x), d_y=d_y, mean=mean),
        *written(plain=plain, along=along),
        *ints(channels=channels.count),
    ]
    step = channels.over("block_slopes", kinds, arguments)
    return read(plain=plain, along=along), step


def apply_grad(
    channels: Channels,
    arrays: tuple[Any, Any, Any, Any],
    coefficients: Any,
    d_x: Any,
    d_z: Any,
    *,
    act: str,
    fixed: bool,
) -> list[Step]:
    if d_x is None and d_z is None:
        return []
    x, y, d_y, mean = arrays
    kinds = (
        c_type(x.dtype), c_type(mean.dtype), c_type(coefficients.dtype), _ACTS[act],
        _flag(act or None), str(fixed).lower(),
    )  # fmt: skip
    arguments = [
        *read(x=x, y=Maybe(y, x), d_y=d_y, mean=mean, coefficients=coefficients),
        *written(d_x=Maybe(d_x, x), d_z=Maybe(d_z, x)),
        *ints(channels=channels.count),
    ]
    return [channels.over("norm_apply_grad", kinds, arguments)]


@cuda(
    "batch_norm_grad", f"{ops.ACT}_grad", f"{ops.ADD_ACT}_grad", takes=floating, layout=AS_THEY_COME
)
def batch_norm_grad(dev: Device, a: BatchNormGrad) -> list[Step]:
    y, act = (a.y, a.act_type) if isinstance(a, ops.FusedBatchNormActGrad) else (None, "")
    d_z = a.d_z if isinstance(a, ops.FusedBnAddActivationGrad) else None
    channels = Channels(dev, a.data_layout, a.x, y, a.d_y, a.d_x, d_z)
    coefficients = channels.scratch(a.x, 3)
    parts, step = slopes(channels, a.x, y, a.d_y, a.saved_mean, act)
    arguments = [
        *parts,
        *read(scale=a.scale, inverse=a.saved_variance),
        *written(d_shift=Maybe(a.d_bias, a.scale), d_scale=Maybe(a.d_scale, a.scale)),
        *written(coefficients=coefficients),
        *ints(chunks=channels.chunks, channels=channels.count),
        *numbers(coefficients, share=1.0 / max(channels.total, 1)),
    ]
    kinds = (c_type(coefficients.dtype), c_type(a.scale.dtype))
    arrays, fixed = (a.x, y, a.d_y, a.saved_mean), a.use_global_stats or a.is_test
    last = apply_grad(channels, arrays, coefficients, a.d_x, d_z, act=act, fixed=fixed)
    return [step, channels.each("block_add_slopes", kinds, arguments), *last]
