"""Batch norm in parts, with room for a collective between them: statistics over all replicas.

``Stats`` holds, in float64, the number of elements behind each channel, their sums, and the sums of their
squares ([2C + 1]); added up over the replicas they are those of the whole batch. ``Local`` and ``Total`` hold,
per channel, the sums of dy and of dy times the normalised x ([2C]): this replica's, and (once reduced)
that of all. None of these ops exists in Paddle, whose ``sync_batch_norm`` is one kernel. An op of that name
is a batch norm whose statistics a program wants to meet; compiling takes it apart, or makes it a plain one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...strategies.types import VarType
from .norm import STATISTICS, batch_norm_shape
from .operands import Input, Operands, Output
from .registry import OPS, Inference, Spec, Specs, define, register
from .samples import normal, sample, uniform
from .shapes import Sized

PARTIAL, APPLY = "batch_norm_partial", "batch_norm_apply"
GRAD_PARTIAL, GRAD_APPLY = "batch_norm_grad_partial", "batch_norm_grad_apply"
SYNC, SYNC_GRAD = "sync_batch_norm", "sync_batch_norm_grad"


def _channels(op: Inference) -> int:
    shape = op.shape("X")
    op.require(2 <= len(shape) <= 5, f"X must have 2 to 5 dimensions, has {len(shape)}")
    count = shape[-1] if op.attr("data_layout") == "NHWC" else shape[1]
    op.require(count > 0, "the number of channels must be known")
    return count


def partial_shape(op: Inference) -> Mapping[str, Specs]:
    """One count, and two sums per channel."""
    return {"Stats": Spec((2 * _channels(op) + 1,), VarType.FP64)}


def apply_shape(op: Inference) -> Mapping[str, Specs]:
    """Like batch_norm."""
    length = 2 * _channels(op) + 1
    op.require(op.shape("Stats") == (length,), f"Stats must have {length} elements")
    specs = dict(batch_norm_shape(op))
    del specs["ReserveSpace"]
    return specs


def grad_partial_shape(op: Inference) -> Mapping[str, Specs]:
    """Two sums per channel, twice."""
    sums = Spec((2 * _channels(op),), VarType.FP64)
    return {"Local": sums, "Total": sums}


_OF_ALL_ROWS = {
    "MeanOut": ("Mean", "Stats"),
    "VarianceOut": ("Variance", "Stats"),
    "SavedMean": ("Stats",),
    "SavedVariance": ("Stats",),
}
_STATS = uniform(7, low=1.0, high=2.0)
_PER_CHANNEL = {"SavedMean": normal(3), "SavedVariance": uniform(3, low=0.5, high=2.0)}


class BatchNormPartial(Operands):
    x: Input
    stats: Output
    data_layout: str = "NCHW"


define(
    PARTIAL,
    BatchNormPartial,
    partial_shape,
    samples=(
        sample({"X": normal(4, 3, 2, 2)}),
        sample({"X": normal(6, 3)}),
        sample({"X": normal(4, 2, 2, 3)}, data_layout="NHWC"),
    ),
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


define(
    APPLY,
    BatchNormApply,
    apply_shape,
    in_place={"MeanOut": "Mean", "VarianceOut": "Variance"},
    needs=lambda attrs: _OF_ALL_ROWS,
    samples=(
        sample({"X": normal(4, 3, 2, 2), **STATISTICS, "Stats": _STATS}),
        sample({"X": normal(6, 3), **STATISTICS, "Stats": _STATS}),
        sample({"X": normal(4, 2, 2, 3), **STATISTICS, "Stats": _STATS}, data_layout="NHWC"),
    ),
    refuses=(sample({"X": normal(4, 3), **STATISTICS, "Stats": uniform(6)}),),
)


class BatchNormGradPartial(Operands):
    x: Input
    saved_mean: Input
    saved_variance: Input
    d_y: Input
    local: Output
    total: Output
    data_layout: str = "NCHW"


define(
    GRAD_PARTIAL,
    BatchNormGradPartial,
    grad_partial_shape,
    samples=(
        sample({"X": normal(4, 3, 2, 2), **_PER_CHANNEL, "Y@GRAD": normal(4, 3, 2, 2)}),
        sample(
            {"X": normal(4, 2, 2, 3), **_PER_CHANNEL, "Y@GRAD": normal(4, 2, 2, 3)},
            data_layout="NHWC",
        ),
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


define(
    GRAD_APPLY,
    BatchNormGradApply,
    Sized("X, Scale -> X@GRAD as X, Scale@GRAD as Scale, Bias@GRAD as Scale"),
    samples=(
        sample(
            {
                "X": normal(4, 3, 2, 2),
                "Scale": normal(3),
                **_PER_CHANNEL,
                "Y@GRAD": normal(4, 3, 2, 2),
                "Local": normal(6),
                "Total": normal(6),
                "Stats": _STATS,
            }
        ),
    ),
)
_slope = OPS["batch_norm"].grad
assert _slope is not None
register(replace(OPS["batch_norm"], type=SYNC, grad=replace(_slope, type=SYNC_GRAD)))
register(replace(OPS["batch_norm_grad"], type=SYNC_GRAD, grad=None))
