"""Normalisation of groups of channels: Wu and He, arXiv 1803.08494."""

from __future__ import annotations

from . import formula as f
from .norm import CHANNELS
from .operands import Array, Input, Operands, Output, Positive
from .registry import Op, define
from .samples import normal, sample
from .shapes import Sized


class GroupNormAttributes(Operands):
    epsilon: float = 1e-5
    groups: Positive = 1
    data_layout: str = "NCHW"


class GroupNorm(GroupNormAttributes):
    x: Input
    scale: Input | None
    bias: Input | None
    y: Output
    mean: Output
    variance: Output


class GroupNormGrad(GroupNorm, reads="y scale bias variance"):
    d_y: Input
    d_x: Output | None
    d_scale: Output | None
    d_bias: Output | None


def _by_group(x: Array, a: GroupNormAttributes) -> Array:
    """Return [samples, groups, channels of one, pixels], a view of X in either layout."""
    if a.data_layout == "NHWC":
        x = x.transpose([0, x.ndim - 1, *range(1, x.ndim - 1)])
    return x.reshape(x.shape[0], a.groups, x.shape[1] // a.groups, -1)


def _as_laid_out(y_NGCS: Array, a: GroupNormAttributes, shape: tuple[int, ...]) -> Array:
    if a.data_layout != "NHWC":
        return y_NGCS.reshape(shape)
    y = y_NGCS.reshape(shape[0], shape[-1], *shape[1:-1])
    return y.transpose([0, *range(2, y.ndim), 1])


def group_norm(a: GroupNorm) -> f.Results:
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + Bias, over the channels and pixels of a group."""
    x = _by_group(a.x, a)
    mean = x.mean((2, 3), keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean((2, 3), keepdims=True)
    y = centred * (1 / f.sqrt(variance + a.epsilon))
    if a.scale is not None:
        y = y * a.scale.reshape(a.groups, -1, 1)
    if a.bias is not None:
        y = y + a.bias.reshape(a.groups, -1, 1)
    return {
        "y": _as_laid_out(y, a, a.x.shape),
        "mean": mean.reshape(x.shape[:2]),
        "variance": variance.reshape(x.shape[:2]),
    }


def group_norm_grad(a: GroupNormGrad) -> f.Results:
    """What was normalised is (Y - Bias) / Scale again, for X is not read; 0 where Scale is."""
    y, d_y = _by_group(a.y, a), _by_group(a.d_y, a)
    scale = None if a.scale is None else a.scale.reshape(a.groups, -1, 1)
    normed = y if a.bias is None else y - a.bias.reshape(a.groups, -1, 1)
    if scale is not None:
        normed = normed * f.where(scale > 0, 1 / scale, f.where(scale < 0, 1 / scale, 0))
    by_channel = {"d_scale": d_y * normed, "d_bias": d_y}
    results = {name: value.sum((0, 3)).reshape(-1) for name, value in by_channel.items()}
    inverse = 1 / f.sqrt(a.variance.reshape(*y.shape[:2], 1, 1) + a.epsilon)
    d = d_y if scale is None else d_y * scale
    mean = d.mean((2, 3), keepdims=True)
    along = (d * normed).mean((2, 3), keepdims=True)
    return {**results, "d_x": _as_laid_out((d - mean - normed * along) * inverse, a, a.y.shape)}


_CHANNELS = {"Scale": normal(4, away_from=(0.0,)), "Bias": normal(4)}

define(
    "group_norm",
    GroupNorm,
    Sized(
        "X [N ...], Scale [channels], Bias [channels] "
        "-> Y as X, Mean statistic [N groups], Variance statistic [N groups]",
        "len(X) > 1; X must have 2 dimensions or more",
        CHANNELS,
        "channels % groups == 0; channels do not split in groups",
    ),
    formula=group_norm,
    samples=(
        sample("X [2 4 3 2]", _CHANNELS, groups=2),
        sample("X [2 3 2 4]", _CHANNELS, groups=2, data_layout="NHWC"),
        sample("X [2 4 5]", groups=1, epsilon=0.1),
    ),
    slope=Op(
        "group_norm_grad",
        GroupNormGrad,
        Sized("Y, Scale, Bias -> X@GRAD as Y, Scale@GRAD as Scale, Bias@GRAD as Bias"),
        formula=group_norm_grad,
    ),
)
