"""From arrays to products as cuBLASLt knows them: transposes, batches and sums are found in the strides.

Legend: M rows of the result, N columns, K inner size, L a leading dimension.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....graph.ops.operands import Array
from ...codegen.dimensions import strides_of
from ...cuda.gemm import Gemm, Operands
from ...device.device import Device
from ..cuda.support import on_boundary
from ..registry import Step
from .support import copied

_ROWS, _COLUMNS = -2, -1


class Stored(NamedTuple):
    """How a matrix lies in memory: by rows of ``ld`` elements, itself or its transpose."""

    transposed: bool
    ld: int


def stored(matrix: Array) -> Stored | None:
    """Return how the last two dimensions of an array lie; None if neither has its elements side by side."""
    (rows, columns), (down, along) = matrix.shape[-2:], strides_of(matrix)[-2:]
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return Stored(False, columns if rows == 1 else down)
    if (down == 1 or rows == 1) and (along >= rows or columns == 1):
        return Stored(True, rows if columns == 1 else along)
    return None


def product(
    dev: Device, a: Array, b: Array, c: Array, *, alpha: float = 1.0, more: bool = False
) -> list[Step]:
    """Return the calls for c = alpha * a @ b, for stacks of matrices; ``more``: for c += that.

    Sizes of 1 in leading dimensions are repeated. The result is summed over the leading dimensions that
    ``c`` has not, or that have one element in it.
    """
    a, b, c = _folded(*_ranked(a, b, c))
    leads = [n for pair in zip(a.shape[:-2], b.shape[:-2], strict=True) for n in [max(pair)]]
    summed = any(n > 1 == m for n, m in zip(leads, c.shape[:-2], strict=True))
    kind = _result_type(a, c, summed=summed)
    with dev.in_turn():
        if kind == c.dtype and stored(c) is not None:
            return _products(dev, (a, b, c), leads, alpha, more)
        near = dev.scratch(c.shape, kind)
        before = copied(dev, c, near) if more else []
        return [*before, *_products(dev, (a, b, near), leads, alpha, more), *copied(dev, near, c)]


def _result_type(a: Array, c: Array, *, summed: bool) -> np.dtype[Any]:
    """Return the type in which the library can write what becomes ``c``; sums are not rounded on the way."""
    low = a.dtype.itemsize == 2
    wide = np.dtype(np.float32) if low else a.dtype
    fits = c.dtype in (a.dtype, wide) and not (summed and c.dtype.itemsize == 2)
    return c.dtype if fits else wide


def finished(
    dev: Device,
    a: Array,
    b: Array,
    c: Array,
    epilogue: str,
    *,
    bias: Any = None,
    aux: Any = None,
    more: bool = False,
) -> list[Step] | None:
    """Return the calls for a product of matrices with an epilogue; None if there is no such product."""
    layout = stored(c)
    if layout is None or layout.transposed or None in (stored(a), stored(b)):
        return None
    if c.dtype != a.dtype or (bias is not None and not bias.flags.c_contiguous):
        return None
    # Of what an epilogue reads or writes the library is not told how it is aligned: it may load vectors.
    if not all(on_boundary(dev, array) for array in (bias, aux) if array is not None):
        return None
    ld_aux = 0 if aux is None else aux.shape[1] * (8 if aux.dtype == np.uint8 else 1)
    gemm = _gemm(dev, a, b, c, more=more, epilogue=epilogue, ld_aux=ld_aux)
    operands = Operands(a, b, c, bias, aux)
    if not dev.cuda.blas.takes(gemm, operands):
        return None
    with dev.in_turn():
        return [_bound(dev, gemm, operands)]


def _bound(dev: Device, gemm: Gemm, operands: Operands) -> Step:
    blas = dev.cuda.blas
    return blas.bind(gemm, operands, dev.scratch((blas.workspace,), np.uint8))


def _ranked(*arrays: Any) -> list[Any]:
    """Return arrays with as many dimensions as the one with most."""
    rank = max(array.ndim for array in arrays)
    return [array.reshape((1,) * (rank - array.ndim) + array.shape) for array in arrays]


def _folded(a: Array, b: Array, c: Array) -> tuple[Any, Any, Any]:
    """Make leading dimensions part of the rows or of the inner size, where memory allows."""
    i = 0
    while i < c.ndim - 2:
        sizes = a.shape[i], b.shape[i], c.shape[i]
        if sizes == (1, 1, 1):
            a, b, c = (m[(slice(None),) * i + (0,)] for m in (a, b, c))
        elif sizes[0] == sizes[2] and sizes[1] == 1 and _joins(i, (a, _ROWS), (c, _ROWS)):
            a, b, c = _joined(a, i), b[(slice(None),) * i + (0,)], _joined(c, i)
        elif sizes[0] == sizes[1] and sizes[2] == 1 and _joins(i, (a, _COLUMNS), (b, _ROWS)):
            c = c[(slice(None),) * i + (0,)]
            a, b = _joined(a.swapaxes(-1, -2), i).swapaxes(-1, -2), _joined(b, i)
        else:
            i += 1
            continue
        i = 0
    return a, b, c


def _joins(i: int, *sides: tuple[Any, int]) -> bool:
    """Tell whether dimension ``i`` and one of the last two lie as one dimension would, in all arrays."""
    return all(
        array.shape[axis] == 1
        or strides_of(array)[i] == strides_of(array)[axis] * array.shape[axis]
        for array, axis in sides
    )


def _joined(array: Array, i: int) -> Any:
    """Make dimension ``i`` and the rows one."""
    order = [k for k in range(array.ndim - 2) if k != i]
    moved = array.transpose([*order, i, array.ndim - 2, array.ndim - 1])
    return moved.reshape(*moved.shape[:-3], -1, moved.shape[-1])


def _products(
    dev: Device, sides: tuple[Any, Any, Any], leads: Sequence[int], alpha: float, more: bool
) -> list[Step]:
    """One product for each batch that strides can describe, one after the other."""
    steps: list[Step] = []
    a, b, c = sides
    near = []
    for matrix in (a, b):
        if stored(matrix) is None:
            scratch = dev.scratch(matrix.shape, matrix.dtype)
            steps += copied(dev, matrix, scratch)
            matrix = scratch
        near.append(matrix)
    groups = _batches((*near, c), leads)
    batch = max(groups, key=lambda g: math.prod(leads[i] for i in g), default=())
    written: set[tuple[int, ...]] = set()
    for at in _others(leads, batch):
        one = [m[_place(m, at)] for m in (*near, c)]
        place = tuple(0 if c.shape[i] == 1 else n for i, n in enumerate(at) if n is not None)
        again = more or place in written
        written.add(place)
        steps.append(_batched(dev, *one, alpha=alpha, more=again))
    return steps


def _batches(sides: Sequence[Any], leads: Sequence[int]) -> list[tuple[int, ...]]:
    """Group leading dimensions along which all arrays go on as they would along one."""
    groups: list[tuple[int, ...]] = []
    steps = [strides_of(side) for side in sides]
    for i, size in enumerate(leads):
        if size == 1 or sides[2].shape[i] == 1:
            continue  # along a sum products come one after the other
        last = groups[-1][-1] if groups else None
        if last is not None and all(s[last] == s[i] * size for s in steps):
            groups[-1] = (*groups[-1], i)
        else:
            groups.append((i,))
    return groups


def _others(leads: Sequence[int], batch: Sequence[int]) -> Iterator[tuple[int | None, ...]]:
    """Yield every index into the leading dimensions outside the batch (None: inside)."""
    spans = [[None] if i in batch else range(n) for i, n in enumerate(leads)]
    yield from itertools.product(*spans)


def _place(matrix: Array, at: Sequence[int | None]) -> tuple[Any, ...]:
    """Return an index that keeps the batch's dimensions, and of repeated ones the only element."""
    sizes = matrix.shape[:-2]
    return tuple(
        slice(None) if i is None else min(i, n - 1) for i, n in zip(at, sizes, strict=True)
    )


def _batched(dev: Device, a: Array, b: Array, c: Array, *, alpha: float, more: bool) -> Step:
    """One product of the library, of arrays whose leading dimensions are a batch."""
    layout = stored(c)
    assert layout is not None
    if layout.transposed:
        a, b, c = b.swapaxes(-1, -2), a.swapaxes(-1, -2), c.swapaxes(-1, -2)
    with dev.in_turn():
        return _bound(dev, _gemm(dev, a, b, c, alpha=alpha, more=more), Operands(a, b, c))


def _gemm(
    dev: Device,
    a: Array,
    b: Array,
    c: Array,
    *,
    alpha: float = 1.0,
    more: bool = False,
    epilogue: str = "none",
    ld_aux: int = 0,
) -> Gemm:
    ways = [stored(m) for m in (a, b, c)]
    assert all(ways)
    (turned_a, lda), (turned_b, ldb), (_, ldd) = (way for way in ways if way is not None)
    strides = [strides_of(m)[-3] if m.ndim > 2 else 0 for m in (a, b, c)]
    kind = a.dtype.name
    compute = dev.math if kind == "float32" else "float64" if kind == "float64" else "float32"
    return Gemm(
        m=c.shape[-2],
        n=c.shape[-1],
        k=a.shape[-1],
        a_type=kind,
        b_type=b.dtype.name,
        d_type=c.dtype.name,
        lda=lda,
        ldb=ldb,
        ldd=ldd,
        transpose_a=turned_a,
        transpose_b=turned_b,
        batch=math.prod(c.shape[:-2]),
        stride_a=strides[0],
        stride_b=strides[1],
        stride_d=strides[2],
        compute=compute,
        alpha=alpha,
        beta=float(more),
        epilogue=epilogue,
        ld_aux=ld_aux,
    )
