"""Reductions over any dimensions: one launch, or two where few results are formed of many elements."""

from __future__ import annotations

import math

from ....graph.ops import expr as e
from ....graph.ops.operands import Array, Unary
from ....graph.ops.reduction import Reduce, axes_of
from ...codegen.cuda_loops import bind_cuda
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.reduction import one_type
from .support import cuda, floating

_X = e.argument("x")
_FINITE = e.call("isfinite", _X)


def reduced(
    dev: Device, join: str, x: Array, out: Array, axes: tuple[int, ...], value: e.Expr | None = None
) -> list[Step]:
    """Return the launches that join a ``value`` of each element of x (it itself, unless told) over axes.

    ``join`` is a class of ``reduce.cuh``.
    """
    target = out.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])
    return bind_cuda(dev, [(e.copy(_X) if value is None else value, target)], {"x": x}, join)


def _register(op_type: str, join: str) -> None:
    @cuda(op_type, takes=one_type)
    def bind(dev: Device, a: Reduce) -> list[Step]:
        return reduced(dev, join, a.x, a.out, axes_of(a.x.ndim, a.dim, a.reduce_all))


for _op_type, _join in (
    ("reduce_sum", "Sum"),
    ("reduce_max", "Max"),
    ("reduce_min", "Min"),
    ("reduce_prod", "Product"),
    ("reduce_all", "All"),
    ("reduce_any", "Any"),
):
    _register(_op_type, _join)


def _mean(dev: Device, x: Array, out: Array, axes: tuple[int, ...]) -> list[Step]:
    """Of whole numbers what is behind the point is dropped."""
    count = max(math.prod(x.shape[i] for i in axes), 1)
    if x.dtype.kind not in "iu":
        return reduced(dev, "Sum", x, out, axes, _X * (1.0 / count))
    total = dev.scratch(out.shape, "int64")
    by = e.constant(count)
    mean = e.floor_divide(_X - e.call("fmod", _X, by), by)
    return [*reduced(dev, "Sum", x, total, axes), *bind_cuda(dev, [(mean, out)], {"x": total})]


@cuda("reduce_mean", takes=one_type)
def reduce_mean(dev: Device, a: Reduce) -> list[Step]:
    return _mean(dev, a.x, a.out, axes_of(a.x.ndim, a.dim, a.reduce_all))


@cuda("mean")
def mean(dev: Device, a: Unary) -> list[Step]:
    return _mean(dev, a.x, a.out, tuple(range(a.x.ndim)))


def _whole(op_type: str, join: str, value: e.Expr) -> None:
    @cuda(op_type, takes=floating if op_type == "squared_l2_norm" else None)
    def bind(dev: Device, a: Unary) -> list[Step]:
        return reduced(dev, join, a.x, a.out, tuple(range(a.x.ndim)), value)


_whole("squared_l2_norm", "Sum", _X * _X)
_whole("isfinite", "All", _FINITE)
_whole("isnan", "Any", e.call("not_equal", _X, _X))
_whole(
    "isinf", "Any", e.call("logical_and", e.call("equal", _X, _X), e.call("logical_not", _FINITE))
)
