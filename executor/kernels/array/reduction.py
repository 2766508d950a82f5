"""Reductions. Calls go to ufunc.reduce, which costs a third of the ``numpy.sum`` wrapper."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ir.graph import Node
from ...device.device import Device
from ..registry import Step, kernel
from .elementwise import divided


@kernel("mean")
def mean(dev: Device, x: Any, out: Any) -> list[Step]:
    xp = dev.xp
    return [
        partial(xp.add.reduce, x.reshape(-1), 0, None, out, True),
        partial(xp.multiply, out, 1.0 / max(x.size, 1), out),
    ]


@kernel("mean_grad")
def mean_grad(dev: Device, x: Any, d_out: Any, d_x: Any) -> list[Step]:
    if d_x is None:
        return []
    spread = d_out.reshape((1,) * x.ndim)
    return [partial(dev.xp.multiply, spread, 1.0 / max(x.size, 1), d_x)]


@kernel("sum")
def sum_(dev: Device, x: list[Any], out: Any) -> list[Step]:
    xp = dev.xp
    aliased = [i for i, term in enumerate(x) if term is out]
    terms = [*(x[i] for i in aliased), *(term for term in x if term is not out)]
    if len(terms) == 1:
        return [] if aliased else [partial(xp.copyto, out, terms[0])]
    first = partial(xp.add, terms[0], terms[1], out)
    return [first, *(partial(xp.add, out, term, out) for term in terms[2:])]


def _axes(x: Any, dim: Any, reduce_all: bool) -> tuple[int, ...]:
    dims = [dim] if isinstance(dim, int) else dim
    if reduce_all or len(dims) == 0:
        return tuple(range(x.ndim))
    return tuple(sorted({d % x.ndim for d in dims}))


def _kept(x: Any, small: Any, axes: tuple[int, ...]) -> Any:
    """View a reduced array with its reduced dimensions kept as 1."""
    return small.reshape(tuple(1 if i in axes else n for i, n in enumerate(x.shape)))


def one_type(node: Node) -> bool:
    """Tell whether a reduction has elements of one type: libraries leave others to NumPy."""
    return len({v.spec.dtype for v in (*node.reads(), *node.writes())}) == 1


def _as(dev: Device, array: Any, dtype: Any) -> tuple[Any, list[Step]]:
    """Return an array in a type, and the calls that convert it."""
    if array.dtype == dtype:
        return array, []
    made = dev.scratch(array.shape, dtype)
    return made, [partial(dev.xp.copyto, made, array, casting="unsafe")]


def _reduce(
    dev: Device, name: str, x: Any, out: Any, dim: Any, reduce_all: bool
) -> tuple[list[Step], int]:
    x, steps = _as(dev, x, out.dtype)
    axes = _axes(x, dim, reduce_all)
    target = _kept(x, out, axes)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return [*steps, partial(dev.reducer(name), x, axes, None, target, True)], max(count, 1)


@kernel("reduce_sum")
def reduce_sum(dev: Device, x: Any, out: Any, *, dim: Any, reduce_all: bool) -> list[Step]:
    return _reduce(dev, "add", x, out, dim, reduce_all)[0]


@kernel("reduce_mean")
def reduce_mean(dev: Device, x: Any, out: Any, *, dim: Any, reduce_all: bool) -> list[Step]:
    steps, count = _reduce(dev, "add", x, out, dim, reduce_all)
    if out.dtype.kind in "iu":  # what is behind the point is dropped
        return [*steps, *divided(dev, out, count, out)]
    return [*steps, partial(dev.xp.multiply, out, 1.0 / count, out)]


@kernel("reduce_max")
def reduce_max(dev: Device, x: Any, out: Any, *, dim: Any, reduce_all: bool) -> list[Step]:
    return _reduce(dev, "maximum", x, out, dim, reduce_all)[0]


@kernel("reduce_min")
def reduce_min(dev: Device, x: Any, out: Any, *, dim: Any, reduce_all: bool) -> list[Step]:
    return _reduce(dev, "minimum", x, out, dim, reduce_all)[0]


@kernel("reduce_prod")
def reduce_prod(dev: Device, x: Any, out: Any, *, dim: Any, reduce_all: bool) -> list[Step]:
    return _reduce(dev, "multiply", x, out, dim, reduce_all)[0]


@kernel("reduce_all")
def reduce_all(dev: Device, x: Any, out: Any, *, dim: Any, reduce_all: bool) -> list[Step]:
    return _reduce(dev, "logical_and", x, out, dim, reduce_all)[0]


@kernel("reduce_any")
def reduce_any(dev: Device, x: Any, out: Any, *, dim: Any, reduce_all: bool) -> list[Step]:
    return _reduce(dev, "logical_or", x, out, dim, reduce_all)[0]


def _tell(test: str, combine: str) -> Any:
    def bind(dev: Device, x: Any, out: Any) -> list[Step]:
        found = dev.scratch(x.shape, bool)
        target = out.reshape((1,) * x.ndim)
        axes = tuple(range(x.ndim))
        return [
            partial(getattr(dev.xp, test), x, found),
            partial(dev.reducer(combine), found, axes, None, target, True),
        ]

    return bind


kernel("isfinite")(_tell("isfinite", "logical_and"))  # every element is finite
kernel("isnan")(_tell("isnan", "logical_or"))  # some element is
kernel("isinf")(_tell("isinf", "logical_or"))


def _along(array: Any, axis: int, part: slice) -> Any:
    return array[(slice(None),) * (axis % array.ndim) + (part,)]


@kernel("cumsum")
def cumsum(
    dev: Device, x: Any, out: Any, *, axis: int, exclusive: bool, reverse: bool
) -> list[Step]:
    """Running sums; ``exclusive`` leaves an element out of its own sum."""
    if out is None:
        return []
    if reverse:
        x, out = (_along(a, axis, slice(None, None, -1)) for a in (x, out))
    steps: list[Step] = []
    if exclusive and x.shape[axis]:
        steps.append(partial(_along(out, axis, slice(0, 1)).fill, 0))
        x, out = _along(x, axis, slice(0, -1)), _along(out, axis, slice(1, None))
    if dev.name == "numpy":
        return [*steps, partial(dev.xp.add.accumulate, x, axis, None, out)]
    return [*steps, lambda: dev.xp.copyto(out, dev.xp.cumsum(x, axis=axis))]


@kernel("reduce_sum_grad", low=True)
def reduce_sum_grad(
    dev: Device, x: Any, d_out: Any, d_x: Any, *, dim: Any, reduce_all: bool
) -> list[Step]:
    d_out, steps = _as(dev, d_out, d_x.dtype)
    return [*steps, partial(dev.xp.copyto, d_x, _kept(x, d_out, _axes(x, dim, reduce_all)))]


@kernel("reduce_mean_grad")
def reduce_mean_grad(
    dev: Device, x: Any, d_out: Any, d_x: Any, *, dim: Any, reduce_all: bool
) -> list[Step]:
    d_out, steps = _as(dev, d_out, d_x.dtype)
    spread = _kept(x, d_out, _axes(x, dim, reduce_all))
    return [*steps, partial(dev.xp.multiply, spread, spread.size / max(x.size, 1), d_x)]


@kernel("reduce_max_grad", "reduce_min_grad")
def reduce_extreme_grad(
    dev: Device, x: Any, out: Any, d_out: Any, d_x: Any, *, dim: Any, reduce_all: bool
) -> list[Step]:
    """Every element equal to the extreme gets the gradient, as in Paddle."""
    axes = _axes(x, dim, reduce_all)
    mask = dev.scratch(x.shape, bool)
    out, copies = _as(dev, out, x.dtype)
    d_out, more = _as(dev, d_out, d_x.dtype)
    return [
        *copies,
        *more,
        partial(dev.xp.equal, x, _kept(x, out, axes), mask),
        partial(dev.xp.multiply, mask, _kept(x, d_out, axes), d_x),
    ]


@kernel("reduce_prod_grad")
def reduce_prod_grad(
    dev: Device, x: Any, out: Any, d_out: Any, d_x: Any, *, dim: Any, reduce_all: bool
) -> list[Step]:
    """d * out / x, as Paddle computes it (undefined where an element is 0)."""
    axes = _axes(x, dim, reduce_all)
    out, copies = _as(dev, out, d_x.dtype)
    d_out, more = _as(dev, d_out, d_x.dtype)
    return [
        *copies,
        *more,
        partial(dev.xp.divide, _kept(x, out, axes), x, d_x),
        partial(dev.xp.multiply, d_x, _kept(x, d_out, axes), d_x),
    ]


@kernel("squared_l2_norm")
def squared_l2_norm(dev: Device, x: Any, out: Any) -> list[Step]:
    flat = x.reshape(-1)
    return [partial(dev.xp.matmul, flat.reshape(1, -1), flat.reshape(-1, 1), out.reshape(1, 1))]


@kernel("squared_l2_norm_grad")
def squared_l2_norm_grad(dev: Device, x: Any, d_out: Any, d_x: Any) -> list[Step]:
    spread = d_out.reshape((1,) * x.ndim)
    return [partial(dev.xp.multiply, x, spread, d_x), partial(dev.xp.multiply, d_x, 2, d_x)]


@kernel("clip_by_norm")
def clip_by_norm(dev: Device, x: Any, out: Any, *, max_norm: float) -> list[Step]:
    """x * max_norm / norm where the norm is above max_norm, else x."""
    xp = dev.xp
    flat = x.reshape(-1)
    norm = dev.scratch((1, 1), x.dtype)
    return [
        partial(xp.matmul, flat.reshape(1, -1), flat.reshape(-1, 1), norm),
        partial(xp.sqrt, norm, norm),
        partial(xp.maximum, norm, max_norm, out=norm),
        partial(xp.divide, max_norm, norm, norm),
        partial(xp.multiply, flat, norm.reshape(1), out.reshape(-1)),
    ]
