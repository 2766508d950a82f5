"""Reductions. Calls go to ufunc.reduce, which costs a third of the ``numpy.sum`` wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.operands import Array, Unary
from ....graph.ops.reduction import Cumsum, Reduce, axes_of
from ...device.device import Device
from ..registry import Step, kernel
from .elementwise import divided


@kernel("mean")
def mean(dev: Device, a: Unary) -> list[Step]:
    xp = dev.xp
    return [
        partial(xp.add.reduce, a.x.reshape(-1), 0, None, a.out, True),
        partial(xp.divide, a.out, max(a.x.size, 1), a.out),
    ]


_SHORT = 512  # elements
_PARTS = range(2048, 63, -1)  # elements of a part of a long row


def _part(width: int) -> int:
    """Return how many elements of a row are summed at a time: all, or the largest part; 0 if none fits."""
    if width <= _PARTS[0]:
        return width
    return next((part for part in _PARTS if width % part == 0), 0)


def reduced_view(x: Array, small: Array, axes: tuple[int, ...]) -> Any:
    """View a reduced array with its reduced dimensions kept as 1."""
    return small.reshape(tuple(1 if i in axes else n for i, n in enumerate(x.shape)))


def one_type(node: Node) -> bool:
    """Tell whether a reduction has elements of one type: libraries leave others to NumPy."""
    return len({v.spec.dtype for v in (*node.reads(), *node.writes())}) == 1


def _as(dev: Device, array: Array, dtype: Any) -> tuple[Any, list[Step]]:
    """Return an array in a type, and the calls that convert it."""
    if array.dtype == dtype:
        return array, []
    result = dev.scratch(array.shape, dtype)
    return result, [partial(dev.xp.copyto, result, array, casting="unsafe")]


def _reduce(dev: Device, name: str, a: Reduce) -> tuple[list[Step], int]:
    x, steps = _as(dev, a.x, a.out.dtype)
    axes = axes_of(x.ndim, a.dim, a.reduce_all)
    target = reduced_view(x, a.out, axes)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    if name == "add" and dev.name == "numpy" and x.size and x.dtype.kind == "f":
        return [*steps, *_summed(dev, x, axes, target)], max(count, 1)
    return [*steps, partial(dev.reducer(name), x, axes, None, target, True)], max(count, 1)


def runs(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, bool]]:
    """Join dimensions behind each other that are all reduced, or all kept: sizes, and whether reduced."""
    merged: list[tuple[int, bool]] = []
    for i, n in enumerate(shape):
        if merged and merged[-1][1] == (i in axes):
            merged[-1] = merged[-1][0] * n, merged[-1][1]
        elif n != 1:
            merged.append((n, i in axes))
    return merged


def _summed(dev: Device, x: Array, axes: tuple[int, ...], target: Any) -> list[Step]:
    """Return NumPy's calls that sum along axes of a contiguous array; it begins anew with every short row.

    Rows that are summed are multiplied by ones, which reads memory twice as fast: of long ones, equal parts,
    whose sums are added, since a product's error grows with its length. Of short rows of which columns are
    summed, several are taken for one.
    """
    xp = dev.xp
    merged = runs(x.shape, axes)
    if not merged or not x.flags.c_contiguous:
        return [partial(xp.add.reduce, x, axes, None, target, True)]
    steps: list[Step] = []
    width, summed = merged[-1]
    if summed and (part := _part(width)):
        merged[-1:] = [(width // part, True)] if part < width else []
        ones = dev.keep((part, 1), x.dtype)
        ones.fill(1)
        rows = x.reshape(-1, part)
        done = not any(summed for _, summed in merged)
        x = target.reshape(-1) if done else dev.scratch((len(rows),), x.dtype)
        steps.append(partial(xp.matmul, rows, ones, x.reshape(-1, 1)))
        if done:
            return steps
        width = merged[-1][0]
    count = _SHORT // width
    if len(merged) == 2 and merged[0][1] and merged[0][0] >= 2 * count > 2:
        whole, rest = divmod(merged[0][0], count)
        flat, total = x.reshape(-1), dev.scratch((count * width,), x.dtype)
        wide = flat[: whole * count * width].reshape(whole, -1)
        steps.append(partial(xp.add.reduce, wide, 0, None, total))
        if rest:
            last = flat[whole * count * width :]
            steps.append(partial(xp.add, total[: last.size], last, total[: last.size]))
        parts = total.reshape(count, width)
        return [*steps, partial(xp.add.reduce, parts, 0, None, target.reshape(-1))]
    x = x.reshape([n for n, _ in merged])
    along = tuple(i for i, (_, summed) in enumerate(merged) if summed)
    result = target.reshape([1 if summed else n for n, summed in merged])
    return [*steps, partial(xp.add.reduce, x, along, None, result, True)]


@kernel("reduce_mean")
def reduce_mean(dev: Device, a: Reduce) -> list[Step]:
    steps, count = _reduce(dev, "add", a)
    if a.out.dtype.kind in "iu":  # what is behind the point is dropped
        return [*steps, *divided(dev, a.out, count, a.out)]
    return [*steps, partial(dev.xp.multiply, a.out, 1.0 / count, a.out)]


def _reduced(name: str, dev: Device, a: Reduce) -> list[Step]:
    return _reduce(dev, name, a)[0]


for _op_type, _name in (
    ("reduce_sum", "add"),
    ("reduce_max", "maximum"),
    ("reduce_min", "minimum"),
    ("reduce_prod", "multiply"),
    ("reduce_all", "logical_and"),
    ("reduce_any", "logical_or"),
):
    kernel(_op_type)(partial(_reduced, _name))


def _test_of_all(test: str, combine: str) -> Any:
    def bind(dev: Device, a: Unary) -> list[Step]:
        mask = dev.scratch(a.x.shape, bool)
        target = a.out.reshape((1,) * a.x.ndim)
        axes = tuple(range(a.x.ndim))
        return [
            partial(getattr(dev.xp, test), a.x, mask),
            partial(dev.reducer(combine), mask, axes, None, target, True),
        ]

    return bind


kernel("isfinite")(_test_of_all("isfinite", "logical_and"))  # every element is finite
kernel("isnan")(_test_of_all("isnan", "logical_or"))  # some element is
kernel("isinf")(_test_of_all("isinf", "logical_or"))


def _along(array: Array, axis: int, part: slice) -> Any:
    return array[(slice(None),) * (axis % array.ndim) + (part,)]


@kernel("cumsum")
def cumsum(dev: Device, a: Cumsum) -> list[Step]:
    """Running sums; ``exclusive`` leaves an element out of its own sum."""
    out, x = a.out, a.x
    if out is None:
        return []
    if a.reverse:
        x, out = (_along(array, a.axis, slice(None, None, -1)) for array in (x, out))
    steps: list[Step] = []
    if a.exclusive and x.shape[a.axis]:
        steps.append(partial(_along(out, a.axis, slice(0, 1)).fill, 0))
        x, out = _along(x, a.axis, slice(0, -1)), _along(out, a.axis, slice(1, None))
    if dev.name == "numpy":
        return [*steps, partial(dev.xp.add.accumulate, x, a.axis, None, out)]
    return [*steps, lambda: dev.xp.copyto(out, dev.xp.cumsum(x, axis=a.axis))]


@kernel("squared_l2_norm")
def squared_l2_norm(dev: Device, a: Unary) -> list[Step]:
    flat = a.x.reshape(-1)
    return [partial(dev.xp.matmul, flat.reshape(1, -1), flat.reshape(-1, 1), a.out.reshape(1, 1))]
