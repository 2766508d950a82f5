"""Reductions and running sums as compiled loops: NumPy begins anew with every row, and rows are often short."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops import expr as e
from ....graph.ops.manipulation import ExpandGrad
from ....graph.ops.operands import Array
from ....graph.ops.ranges import ExpandAsGrad
from ....graph.ops.reduction import Cumsum, Reduce, axes_of
from ...codegen.loops import bind_loop
from ...codegen.native import Launch
from ...codegen.text_loops import bind_text
from ...device.device import Device
from ..array.manipulation import tiles
from ..array.reduction import reduced_view, runs
from ..registry import Step, by_arrays, kernel
from .elementwise import in_float32

_X = e.argument("x")


def _summed(x: Array, axes: tuple[int, ...], out: Array) -> list[Step]:
    return [*bind_loop([(e.copy(_X), reduced_view(x, out, axes))], {"x": x})]


def _faster(x: Array, axes: tuple[int, ...]) -> bool:
    """Tell whether a loop sums faster than NumPy, which has ways of its own for rows and for columns."""
    return bool(x.size) and len(runs(x.shape, axes)) > 2


@kernel("reduce_sum", on=("llvm",), takes=in_float32)
def reduce_sum(dev: Device, a: Reduce) -> list[Step]:
    axes = axes_of(a.x.ndim, a.dim, a.reduce_all)
    if not _faster(a.x, axes):
        return by_arrays("reduce_sum", dev, a)
    return _summed(a.x, axes, a.out)


@kernel("reduce_mean", on=("llvm",), takes=in_float32)
def reduce_mean(dev: Device, a: Reduce) -> list[Step]:
    axes = axes_of(a.x.ndim, a.dim, a.reduce_all)
    if not _faster(a.x, axes):
        return by_arrays("reduce_mean", dev, a)
    share = a.out.size / a.x.size
    return [*_summed(a.x, axes, a.out), partial(np.multiply, a.out, share, a.out)]


def extreme(
    dev: Device, name: str, x: Array, axes: tuple[int, ...], out: Array
) -> list[Step] | list[Launch]:
    """Return the calls for the largest ("max") or least ("min") along axes, which keep size 1."""
    one_row = len(runs(x.shape, axes)) < 2 or not x.size  # NumPy is faster there
    if one_row or not x.dtype == out.dtype == np.float32:
        return [partial(dev.reducer(f"{name}imum"), x, axes, None, out, True)]
    return bind_loop([(e.copy(_X), out)], {"x": x}, name)


def _extreme(name: str, dev: Device, a: Reduce) -> list[Step] | list[Launch]:
    axes = axes_of(a.x.ndim, a.dim, a.reduce_all)
    return extreme(dev, name, a.x, axes, reduced_view(a.x, a.out, axes))


for _name in ("max", "min"):
    kernel(f"reduce_{_name}", on=("llvm",), takes=in_float32)(partial(_extreme, _name))


def _sums_of_copies(op_type: str) -> None:
    @kernel(op_type, on=("llvm",), takes=in_float32)
    def sums(dev: Device, a: ExpandGrad | ExpandAsGrad) -> list[Step]:
        """Each element gets the sum of what went to its copies."""
        _, large = tiles(a.x, a.d_out)
        axes = tuple(range(0, large.ndim, 2))
        if not _faster(large, axes):
            return by_arrays(op_type, dev, a)
        return _summed(large, axes, a.d_x)


_sums_of_copies("expand_grad")
_sums_of_copies("expand_as_grad")

# Sums go along n elements, ``step`` apart, from ``first`` on; if ``late``, an element is not in its own sum.
_ROW_BY_ROW = """
    for o in range(outer):
        here = o * n * inner + first
        if late:
            for j in range(inner):
                store(y, here + j, np.float32(0.0))
        else:
            for j in range(inner):
                store(y, here + j, load(x, here + j))
        for i in range(1, n):
            before, here = here, here + step
            at = before if late else here
            for j in range(inner):
                store(y, here + j, load(y, before + j) + load(x, at + j))
"""
_TOGETHER = 8  # rows: an addition waits for the one before it in its own row alone


def _along() -> str:
    """Return the loop for summands that lie side by side."""

    def rows(count: int) -> list[str]:
        lines = [
            f"t{k} = select(late != 0, np.float32(0.0), np.float32(-0.0))" for k in range(count)
        ]
        lines += ["for i in range(n):", "    at = r * n + first + i * step"]
        for k in range(count):
            add = f"t{k} = t{k} + load(x, at + {k} * n)"
            put = f"store(y, at + {k} * n, before{k} if late else t{k})"
            lines += [f"    before{k} = t{k}", f"    {add}", f"    {put}"]
        return lines

    many = [
        f"for r in range(0, outer - outer % {_TOGETHER}, {_TOGETHER}):",
        *_deeper(rows(_TOGETHER)),
    ]
    rest = [f"for r in range(outer - outer % {_TOGETHER}, outer):", *_deeper(rows(1))]
    return "\n".join(_deeper([*many, *rest])) + "\n"


def _deeper(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


@kernel("cumsum", on=("llvm",), takes=in_float32, gapless=True)
def cumsum(dev: Device, a: Cumsum) -> list[Step]:
    """Sums in NumPy's order."""
    x, out = a.x, a.out
    if out is None or np.may_share_memory(x, out):
        return by_arrays("cumsum", dev, a)
    axis = a.axis % x.ndim
    n, inner = x.shape[axis], int(np.prod(x.shape[axis + 1 :]))
    first, step = ((n - 1) * inner, -inner) if a.reverse else (0, inner)
    sizes = {"outer": x.size // (n * inner), "n": n, "inner": inner}
    along = {"first": first, "step": step, "late": int(a.exclusive)}
    return [
        bind_text(_along() if inner == 1 else _ROW_BY_ROW, {"x": x, "y": out}, **sizes, **along)
    ]
