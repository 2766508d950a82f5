"""Normalisation over a batch or over the features of each sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import formula as f
from .double_gradient import of_normed, twice
from .operands import Array, Input, Operands, Output
from .registry import Op, define, differentiable
from .samples import sample
from .shapes import Sized

CHANNELS = "channels = X[-1 if data_layout == 'NHWC' else 1]"
normed_shape = Sized(
    "X [...], Scale [channels], Bias [channels], Mean [channels], Variance [channels] "
    "-> Y as X, MeanOut as Mean, VarianceOut as Variance, SavedMean as Scale, SavedVariance as Scale",
    "epsilon >= 0; epsilon must not be negative",
    "not fuse_with_relu; fuse_with_relu is not built",
    "2 <= len(X) <= 5; X must have 2 to 5 dimensions",
    CHANNELS,
)
batch_norm_shape = normed_shape.extended("-> ReserveSpace as X [0]")


def uses_statistics(attrs: Mapping[str, Any]) -> bool:
    """Tell whether a batch norm takes the running statistics instead of adding to them."""
    return bool(attrs["use_global_stats"]) or (
        bool(attrs["is_test"]) and not attrs["trainable_statistics"]
    )


def statistics_need(attrs: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Statistics that are read, not updated, keep their values."""
    needs = {"MeanOut": ("Mean",), "VarianceOut": ("Variance",)}
    return needs if uses_statistics(attrs) else {}


# What all declarations say whose running statistics are updated
RUNNING: Mapping[str, Any] = {
    "in_place": {"MeanOut": "Mean", "VarianceOut": "Variance"},
    "only_uses": uses_statistics,
    "needs": statistics_need,
}
STATISTICS = "Scale 0.5:1.5 [3], Bias [3], Mean [3], Variance 0.5:2.0 [3]"


class BatchNormAttributes(Operands):
    is_test: bool = False
    momentum: float = 0.9
    epsilon: float = 1e-5
    data_layout: Literal["NCHW", "NHWC", "AnyLayout"] = "NCHW"
    use_mkldnn: bool = False
    fuse_with_relu: bool = False
    use_global_stats: bool = False
    trainable_statistics: bool = False


class BatchNormOperands(BatchNormAttributes):
    x: Input
    scale: Input
    bias: Input
    mean: Input
    variance: Input
    y: Output
    mean_out: Output
    variance_out: Output
    saved_mean: Output
    saved_variance: Output
    reserve_space: Output | None


class BatchNorm(BatchNormOperands):
    momentum_tensor: Input | None


class BatchNormGrad(BatchNorm, reads="x scale bias saved_mean saved_variance"):
    d_y: Input
    d_x: Output | None
    d_scale: Output | None
    d_bias: Output | None


def by_channel(x: Array, data_layout: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes a statistic is taken over, and the shape that spreads it over X."""
    axis = x.ndim - 1 if data_layout == "NHWC" else 1
    axes = tuple(i for i in range(x.ndim) if i != axis)
    return axes, tuple(n if i == axis else 1 for i, n in enumerate(x.shape))


def slope_of_batch(
    normed: Array, d: Array, scale: Array, inverse: Array, data_layout: str, fixed: bool
) -> f.Results:
    """Return a batch norm's gradients from what was normalised and 1 / sqrt(variance + epsilon) of channels.

    Statistics of the batch (not ``fixed``) take the mean of ``d``, and what of it goes along ``normed``, away.
    """
    axes, spread = by_channel(normed, data_layout)
    d_scale, d_bias = (d * normed).sum(axes), d.sum(axes)
    if not fixed:
        share = scale.size / max(normed.size, 1)
        d = d - (d_bias * share).reshape(spread) - normed * (d_scale * share).reshape(spread)
    return {"d_x": d * (scale * inverse).reshape(spread), "d_scale": d_scale, "d_bias": d_bias}


def normed_batch(
    a: Any, mean: Array, variance: Array, inverse: Array | None = None, *, learns: bool = True
) -> f.Results:
    """Return a batch norm's results from statistics by channel; running ones follow these, if it ``learns``.

    ``inverse`` is 1 / sqrt(variance + epsilon), where that is known more exactly.
    """
    _, spread = by_channel(a.x, a.data_layout)
    inverse = 1.0 / f.sqrt(variance + a.epsilon) if inverse is None else inverse
    running = {"mean_out": a.mean, "variance_out": a.variance}
    if learns:
        new = zip(running.items(), (mean, variance), strict=True)
        running = {name: old * a.momentum + by * (1.0 - a.momentum) for (name, old), by in new}
    y = (a.x - mean.reshape(spread)) * (inverse * a.scale).reshape(spread) + a.bias.reshape(spread)
    return {"y": y, "saved_mean": mean, "saved_variance": inverse, **running}


def batch_norm(a: BatchNormOperands) -> f.Results:
    """Y by the statistics of the batch, or by the running ones alone."""
    none = {"reserve_space": f.full((0,), 0.0, a.x.dtype)}
    if uses_statistics(vars(a)):
        return {**none, **normed_batch(a, a.mean, a.variance, learns=False)}
    return {**none, **normed_batch(a, *_moments(a))}


def _moments(a: Any) -> tuple[Array, Array]:
    """Return mean and variance of each channel."""
    axes, spread = by_channel(a.x, a.data_layout)
    mean = a.x.mean(axes)
    centred = a.x - mean.reshape(spread)
    return mean, (centred * centred).mean(axes)


def batch_norm_grad(a: BatchNormGrad) -> f.Results:
    """The gradients, by the statistics that the forward op kept."""
    _, spread = by_channel(a.x, a.data_layout)
    normed = (a.x - a.saved_mean.reshape(spread)) * a.saved_variance.reshape(spread)
    fixed = a.use_global_stats or a.is_test
    return slope_of_batch(normed, a.d_y, a.scale, a.saved_variance, a.data_layout, fixed)


def _from_x(a: BatchNormGrad) -> f.Results:
    """The gradients, from X alone where the statistics are the batch's."""
    if a.use_global_stats or a.is_test:
        return batch_norm_grad(a)
    mean, variance = _moments(a)
    inverse = 1 / f.sqrt(variance + a.epsilon)
    return batch_norm_grad(a.replace(saved_mean=mean, saved_variance=inverse))


_SECOND = of_normed("SavedMean", "SavedVariance")
_SLOPE = Op(
    "batch_norm_grad", BatchNormGrad, formula=batch_norm_grad, in_place={"X@GRAD": "Y@GRAD"}
)

define(
    "batch_norm",
    BatchNorm,
    batch_norm_shape,
    formula=batch_norm,
    numbers={"MomentumTensor": "momentum"},
    **RUNNING,
    samples=(
        sample("X [4 3 2 2]", STATISTICS),
        sample("X [6 3]", STATISTICS),
        sample("X [4 2 2 3]", STATISTICS, data_layout="NHWC"),
        sample("X [4 3 2 2]", STATISTICS, is_test=True),
        sample("X [4 3 2 2]", STATISTICS, use_global_stats=True),
    ),
    slope=differentiable(_SLOPE, _SECOND, formula=twice(_from_x, _SLOPE, _SECOND)),
)


layer_norm_shape = Sized(
    "X [...], Scale, Bias -> Y as X, Mean statistic [rows], Variance statistic [rows]",
    "epsilon >= 0; epsilon must not be negative",
    "0 < begin_norm_axis < len(X); begin_norm_axis must lie inside X's dimensions",
    "rows = prod(X[:begin_norm_axis])",
    "features = prod(X[begin_norm_axis:])",
    "prod(Scale) == features; Scale must have an element for each feature",
    "prod(Bias) == features; Bias must have an element for each feature",
)


class LayerNorm(Operands):
    x: Input
    scale: Input | None
    bias: Input | None
    y: Output
    mean: Output
    variance: Output
    begin_norm_axis: int = 1
    epsilon: float = 1e-5


class LayerNormGrad(LayerNorm, reads="* mean variance"):
    d_y: Input
    d_x: Output | None
    d_scale: Output | None
    d_bias: Output | None


def _by_rows(a: LayerNorm, *arrays: Array) -> list[Array]:
    """Return arrays like X as rows of features."""
    rows, width = (
        math.prod(n) for n in (a.x.shape[: a.begin_norm_axis], a.x.shape[a.begin_norm_axis :])
    )
    return [array.reshape(rows, width) for array in arrays]


def layer_norm(a: LayerNorm) -> f.Results:
    """Each row less its mean, by its deviation."""
    (x,) = _by_rows(a, a.x)
    mean, variance = _moments_of_rows(x)
    y = (x - mean) / f.sqrt(variance + a.epsilon)
    y = y if a.scale is None else y * a.scale.reshape(-1)
    y = y if a.bias is None else y + a.bias.reshape(-1)
    return {"y": y.reshape(a.x.shape), "mean": mean.reshape(-1), "variance": variance.reshape(-1)}


def _moments_of_rows(x: Array) -> tuple[Array, Array]:
    mean = x.mean(1, keepdims=True)
    centred = x - mean
    return mean, (centred * centred).mean(1, keepdims=True)


def layer_norm_grad(a: LayerNormGrad) -> f.Results:
    """The gradients, by the statistics that the forward op kept."""
    x, d = _by_rows(a, a.x, a.d_y)
    deviation = f.sqrt(a.variance.reshape(-1, 1) + a.epsilon)
    normed = (x - a.mean.reshape(-1, 1)) / deviation
    results = {"d_scale": (d * normed).sum(0), "d_bias": d.sum(0)}
    d = d if a.scale is None else d * a.scale.reshape(-1)
    along = (d * normed).mean(1, keepdims=True)
    d_x = (d - d.mean(1, keepdims=True) - normed * along) / deviation
    return {"d_x": d_x.reshape(a.x.shape), **results}


def _from_rows(a: LayerNormGrad) -> f.Results:
    """The gradients, from X alone."""
    mean, variance = _moments_of_rows(*_by_rows(a, a.x))
    return layer_norm_grad(a.replace(mean=mean, variance=variance))


_SECOND_BY_ROW = of_normed("Mean", "Variance")
_SLOPE_BY_ROW = Op("layer_norm_grad", LayerNormGrad, formula=layer_norm_grad)

define(
    "layer_norm",
    LayerNorm,
    layer_norm_shape,
    formula=layer_norm,
    samples=(
        sample("X [4 6], Scale [6], Bias [6]"),
        sample("X [2 3 4], Scale [4], Bias [4]", begin_norm_axis=2),
        sample("X [2 3 4]"),
    ),
    slope=differentiable(
        _SLOPE_BY_ROW, _SECOND_BY_ROW, formula=twice(_from_rows, _SLOPE_BY_ROW, _SECOND_BY_ROW)
    ),
)
