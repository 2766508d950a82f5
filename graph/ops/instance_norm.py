"""Normalisation of each channel of each sample: Ulyanov, Vedaldi and Lempitsky, arXiv 1607.08022."""

from __future__ import annotations

from . import formula as f
from .double_gradient import of_normed, twice
from .operands import Input, Operands, Output
from .registry import Op, define, differentiable
from .samples import sample
from .shapes import Sized


class InstanceNorm(Operands):
    x: Input
    scale: Input | None
    bias: Input | None
    y: Output
    saved_mean: Output
    saved_variance: Output
    epsilon: float = 1e-5


class InstanceNormGrad(InstanceNorm, reads="x scale saved_mean saved_variance"):
    d_y: Input
    d_x: Output | None
    d_scale: Output | None
    d_bias: Output | None


def instance_norm(a: InstanceNorm) -> f.Results:
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + Bias, over what follows the channel."""
    n, c = a.x.shape[:2]
    x_NCS = a.x.reshape(n, c, -1)
    mean = x_NCS.mean(-1, keepdims=True)
    centred = x_NCS - mean
    inverse = 1 / f.sqrt((centred * centred).mean(-1, keepdims=True) + a.epsilon)
    y = centred * inverse
    if a.scale is not None:
        y = y * a.scale.reshape(c, 1)
    if a.bias is not None:
        y = y + a.bias.reshape(c, 1)
    return {
        "y": y.reshape(a.x.shape),
        "saved_mean": mean.reshape(-1),
        "saved_variance": inverse.reshape(-1),
    }


_gradient = f.gradient(instance_norm, InstanceNorm)


def _from_x_alone(a: InstanceNormGrad) -> f.Results:
    """The gradients, with statistics that are computed again."""
    return _gradient(a.replace(saved_mean=None, saved_variance=None))


_SLOPE = Op(
    "instance_norm_grad",
    InstanceNormGrad,
    Sized("X, Scale -> X@GRAD as X, Scale@GRAD as Scale, Bias@GRAD as Scale"),
)
_SECOND = of_normed("SavedMean", "SavedVariance")
_CHANNELS = "Scale [3], Bias [3]"

define(
    "instance_norm",
    InstanceNorm,
    Sized(
        "X [N C ...], Scale [C], Bias [C] "
        "-> Y as X, SavedMean statistic [N*C], SavedVariance statistic [N*C]",
        "2 <= len(X) <= 5; X must have 2 to 5 dimensions",
        "(Scale is None) == (Bias is None); Scale and Bias come together, or not at all",
    ),
    formula=instance_norm,
    samples=(sample("X [2 3 4 2]", _CHANNELS), sample("X [2 3 4]", epsilon=0.1)),
    slope=differentiable(_SLOPE, _SECOND, formula=twice(_from_x_alone, _SLOPE, _SECOND)),
)
