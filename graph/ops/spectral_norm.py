"""Weights by their largest singular value: Miyato et al., arXiv 1802.05957."""

from __future__ import annotations

from . import formula as f
from .operands import Array, Input, NotNegative, Operands, Output
from .registry import define, slope
from .samples import sample
from .shapes import Sized


class SpectralNorm(Operands):
    weight: Input
    u: Input
    v: Input
    out: Output
    dim: int = 0
    power_iters: NotNegative = 1
    eps: float = 1e-12


def _unit(x: Array, eps: float) -> Array:
    return x / (f.sqrt((x * x).sum(keepdims=True)) + eps)


def spectral_norm(a: SpectralNorm) -> f.Results:
    """Out = W / (u W v), after ``power_iters`` rounds of v = W^T u and u = W v; these pass no gradient."""
    dim = a.dim % a.weight.ndim
    order = [dim, *(i for i in range(a.weight.ndim) if i != dim)]
    w = a.weight.transpose(order).reshape(a.weight.shape[dim], -1)
    u, v, fixed = a.u.reshape(-1, 1), a.v.reshape(-1, 1), f.constant(w)
    for _ in range(a.power_iters):
        v = _unit(fixed.transpose(1, 0) @ u, a.eps)
        u = _unit(fixed @ v, a.eps)
    sigma = (f.constant(u) * (w @ f.constant(v))).sum()
    return {"out": a.weight / sigma}


define(
    "spectral_norm",
    SpectralNorm,
    Sized(
        "Weight, U [height], V [width] -> Out",
        "2 <= len(Weight) <= 5; Weight must have 2 to 5 dimensions",
        "at = front(dim, Weight)",
        "height, width = Weight[at], prod(Weight[:at] + Weight[at + 1 :])",
    ),
    formula=spectral_norm,
    samples=(
        sample("Weight [3 4], U [3], V [4]", power_iters=0),
        sample("Weight [2 3 2], U [3], V [4]", dim=1, power_iters=0),
    ),
    slope=slope("weight u v d_out", "d_weight"),
)
