"""Counts of elements by value, and products of all elements so far."""

from __future__ import annotations

import numpy as np

from ...strategies.types import VarType
from . import formula as f
from .operands import Input, Operands, Output, Positive, Unary
from .registry import define, slope
from .samples import sample
from .shapes import Sized, names_dimensions


class Histogram(Operands):
    x: Input
    weight: Input | None
    out: Output
    bins: Positive = 100
    min: float = 0.0
    max: float = 0.0
    density: bool = False


def histogram(a: Histogram) -> f.Results:
    """How many elements lie in each of ``bins`` parts of [min, max]; if these are equal, of the data's range.

    The last part has its end, too; what lies outside does not count. All elements alike: 1 below and 1 above.
    """
    x, bins = a.x.reshape(-1), a.bins
    if x.dtype.kind != "f":
        x = x.astype(np.float64)
    if a.min == a.max and x.size:
        low, high = x.min(0, keepdims=True), x.max(0, keepdims=True)
    else:
        low, high = (f.full((1,), number, x.dtype) for number in (a.min, a.max))
    alike = f.equal(low, high)
    low, high = f.where(alike, low - 1, low), f.where(alike, high + 1, high)
    width = high - low
    part = f.minimum(f.floor((x - low) * bins / width), bins - 1)
    index = f.where((x >= low) & (x <= high), part, bins).astype(np.int64)
    number = f.full((x.size,), 1, np.float64)
    if a.weight is not None:
        number = a.weight.reshape(-1).astype(np.float64)
    counts = f.row_sums(index, number, bins + 1)[:bins]
    if a.density:
        counts = counts * bins / (counts.sum() * width.astype(np.float64))
    return {"out": counts.astype(a.out.dtype)}


_X = "X [4 5]"
define(
    "histogram",
    Histogram,
    Sized(
        "X numbers, Weight [*like_x] -> Out kind [bins]",
        "like_x = X",
        "min <= max",
        f"kind = {int(VarType.FP32)} if density or Weight is not None else {int(VarType.INT64)}",
    ),
    formula=histogram,
    samples=(
        sample(_X, bins=4),
        sample("X 0:9 [30]", bins=5, min=2.0, max=7.0),
        sample(_X, "Weight uniform [4 5]", bins=3, min=-1.0, max=1.0, density=True),
    ),
)


class Cumprod(Unary):
    dim: int = -1


def cumprod(a: Cumprod) -> f.Results:
    """The product of the elements so far along a dimension, in as many steps as its size has bits."""
    axis, out, step = a.dim % a.x.ndim, a.x, 1
    while step < a.x.shape[axis]:
        cut = tuple(slice(None, -step) if i == axis else slice(None) for i in range(a.x.ndim))
        widths = [(step if i == axis else 0, 0) for i in range(a.x.ndim)]
        out = out * f.padded(out[cut], widths, 1.0)
        step *= 2
    return {"out": out}


define(
    "cumprod",
    Cumprod,
    Sized("X -> Out", names_dimensions("dim")),
    formula=cumprod,
    samples=(sample("X [3 5]"), sample("X [2 7 2]", dim=1)),
    refuses=(sample("X [3 5]", dim=2),),
    slope=slope("x d_out", "d_x"),
)
