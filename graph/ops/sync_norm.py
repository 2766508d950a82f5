"""Batch norm in parts, with room for a collective between them: statistics over all replicas.

``Stats`` holds, in float64, the number of elements behind each channel, their sums, and the sums of their
squares ([2C + 1]); added up over the replicas they are those of the whole batch. ``Local`` and ``Total`` hold,
per channel, the sums of dy and of dy times the normalised x ([2C]): this replica's, and (once reduced)
that of all. None of these ops exists in Paddle, whose ``sync_batch_norm`` is one kernel. An op of that name
is a batch norm whose statistics a program wants to meet; compiling takes it apart, or makes it a plain one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from . import formula as f
from .norm import CHANNELS, STATISTICS, by_channel, normed_batch, normed_shape
from .operands import Array, Input, Operands, Output
from .registry import OPS, define, register
from .samples import sample
from .shapes import Sized

PARTIAL, APPLY = "batch_norm_partial", "batch_norm_apply"
GRAD_PARTIAL, GRAD_APPLY = "batch_norm_grad_partial", "batch_norm_grad_apply"
SYNC, SYNC_GRAD = "sync_batch_norm", "sync_batch_norm_grad"


_OF_ALL_ROWS = {
    "MeanOut": ("Mean", "Stats"),
    "VarianceOut": ("Variance", "Stats"),
    "SavedMean": ("Stats",),
    "SavedVariance": ("Stats",),
}
_STATS = "Stats 1.0:2.0 [7]"
_PER_CHANNEL = "SavedMean [3], SavedVariance 0.5:2.0 [3]"


class BatchNormPartial(Operands):
    x: Input
    stats: Output
    data_layout: str = "NCHW"


def _partial(a: BatchNormPartial) -> f.Results:
    axes, spread = by_channel(a.x, a.data_layout)
    x = a.x.astype(np.float64)
    count = f.full((1,), a.x.size // max(math.prod(spread), 1), np.float64)
    return {"stats": f.concatenate([count, x.sum(axes), (x * x).sum(axes)])}


define(
    PARTIAL,
    BatchNormPartial,
    Sized("X -> Stats float64 [2*channels+1]", CHANNELS),
    formula=_partial,
    samples=(sample("X [4 3 2 2]"), sample("X [6 3]"), sample("X [4 2 2 3]", data_layout="NHWC")),
)


class BatchNormApply(Operands):
    x: Input
    scale: Input
    bias: Input
    mean: Input
    variance: Input
    stats: Input
    y: Output
    mean_out: Output
    variance_out: Output
    saved_mean: Output
    saved_variance: Output
    momentum: float = 0.9
    epsilon: float = 1e-5
    data_layout: str = "NCHW"
    fuse_with_relu: bool = False


def _apply(a: BatchNormApply) -> f.Results:
    count, sums, squares = a.stats[:1], *_halves(a.stats[1:])
    mean = sums / count
    variance = f.maximum(squares / count - mean * mean, 0)  # rounding may leave less than nothing
    inverse = 1 / f.sqrt(variance + a.epsilon)
    return normed_batch(a, *(value.astype(a.scale.dtype) for value in (mean, variance, inverse)))


def _halves(array: Array) -> tuple[Array, Array]:
    width = array.shape[0] // 2
    return array[:width], array[width:]


define(
    APPLY,
    BatchNormApply,
    normed_shape.extended("Stats [2*channels+1] ->"),
    formula=_apply,
    in_place={"MeanOut": "Mean", "VarianceOut": "Variance"},
    needs=lambda attrs: _OF_ALL_ROWS,
    samples=(
        sample("X [4 3 2 2]", STATISTICS, _STATS),
        sample("X [6 3]", STATISTICS, _STATS),
        sample("X [4 2 2 3]", STATISTICS, _STATS, data_layout="NHWC"),
    ),
)


class BatchNormGradPartial(Operands):
    x: Input
    saved_mean: Input
    saved_variance: Input
    d_y: Input
    local: Output
    total: Output
    data_layout: str = "NCHW"


def _grad_partial(a: BatchNormGradPartial) -> f.Results:
    axes, spread = by_channel(a.x, a.data_layout)
    d, x = a.d_y.astype(np.float64), a.x.astype(np.float64)
    normed = (x - a.saved_mean.reshape(spread)) * a.saved_variance.reshape(spread)
    sums = f.concatenate([d.sum(axes), (d * normed).sum(axes)])
    return {"local": sums, "total": sums}


define(
    GRAD_PARTIAL,
    BatchNormGradPartial,
    Sized("X -> Local float64 [2*channels], Total float64 [2*channels]", CHANNELS),
    formula=_grad_partial,
    samples=(
        sample("X [4 3 2 2]", _PER_CHANNEL, "Y@GRAD [4 3 2 2]"),
        sample("X [4 2 2 3]", _PER_CHANNEL, "Y@GRAD [4 2 2 3]", data_layout="NHWC"),
    ),
)


class BatchNormGradApply(Operands):
    x: Input
    scale: Input
    saved_mean: Input
    saved_variance: Input
    d_y: Input
    local: Input
    total: Input
    stats: Input
    d_x: Output | None
    d_scale: Output | None
    d_bias: Output | None
    data_layout: str = "NCHW"


def _grad_apply(a: BatchNormGradApply) -> f.Results:
    """dx = scale * inv_std * (dy - mean(dy) - hat * mean(dy * hat)), the means over every replica."""
    _, spread = by_channel(a.x, a.data_layout)
    d_bias, d_scale = (half.astype(a.scale.dtype) for half in _halves(a.local))
    means = (a.total / a.stats[:1]).astype(a.scale.dtype)
    level, share = (half.reshape(spread) for half in _halves(means))
    normed = (a.x - a.saved_mean.reshape(spread)) * a.saved_variance.reshape(spread)
    slope = (a.scale * a.saved_variance).reshape(spread)
    d_x = (a.d_y - normed * share - level) * slope
    return {"d_x": d_x, "d_scale": d_scale, "d_bias": d_bias}


define(
    GRAD_APPLY,
    BatchNormGradApply,
    Sized("X, Scale -> X@GRAD as X, Scale@GRAD as Scale, Bias@GRAD as Scale"),
    formula=_grad_apply,
    samples=(
        sample(
            "X [4 3 2 2], Scale [3]",
            _PER_CHANNEL,
            "Y@GRAD [4 3 2 2], Local [6], Total [6], Stats 1.0:2.0 [7]",
        ),
    ),
)
_slope = OPS["batch_norm"].grad
assert _slope is not None
register(replace(OPS["batch_norm"], type=SYNC, grad=replace(_slope, type=SYNC_GRAD)))
register(replace(OPS["batch_norm_grad"], type=SYNC_GRAD, grad=None))
