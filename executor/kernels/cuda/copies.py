"""Copies and fills in device memory: between any strides, in units as wide as both sides allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ...codegen.cuda_launches import MOST, divisors, enough_blocks, ints, run
from ...codegen.dimensions import CopyDimension, joined_of_copy
from ...cuda.runtime import Step
from ...device.device import Device
from .support import on_boundary

UNITS = {
    1: "unsigned char",
    2: "unsigned short",
    4: "unsigned",
    8: "unsigned long long",
    16: "ulonglong2",
}  # bytes -> C type
_IN_FLIGHT = 4  # units that a thread loads before it stores
_LEAST_TILE = 8  # rows or columns that pay for a tile


def moved(dev: Device, target: Array | None, source: Array) -> list[Step]:
    """Return the copy of ``source`` to ``target``: one type, one shape (but for ones), any strides."""
    if target is None or not target.size:
        return []
    dimensions = joined_of_copy(target, source)
    if dimensions == [CopyDimension(target.size, 1, 1)] and target.shape == source.shape:
        if dev.cuda.address(target) == dev.cuda.address(source):
            return []
        if dev.guard is None:
            return [dev.cuda.copying(target, source)]
    if _too_many(dimensions):
        return [s for half in _halves(target, source) for s in moved(dev, *half)]
    row = next((d for d in dimensions if d.source == 1 and d.to > 1), None)
    column = next((d for d in dimensions if d.to == 1 and d.source > 1), None)
    if row and column and min(row.size, column.size) >= _LEAST_TILE:
        return [_by_tiles(dev, target, source, row, column, dimensions)]
    return [_unit_by_unit(dev, target, source, dimensions)]


def in_order(dev: Device, array: Array) -> tuple[Any, list[Step]]:
    """Return an array without gaps, a copy unless it is that itself, and the calls that copy it."""
    if array.flags.c_contiguous:
        return array, []
    copy = dev.scratch(array.shape, array.dtype)
    return copy, moved(dev, copy, array)


def filled(dev: Device, target: Array | None, value: Any) -> list[Step]:
    """Return the call that gives every element of an array, of any strides, one value."""
    if target is None or not target.size:
        return []
    dimensions = joined_of_copy(target, None)
    if _too_many(dimensions):
        return [s for half, _ in _halves(target, target) for s in filled(dev, half, value)]
    bits = np.array(value).astype(target.dtype).tobytes() * 8
    return [_unit_by_unit(dev, target, int.from_bytes(bits[:8], "little"), dimensions)]


def filled_around(dev: Device, whole: Any, part: Any, value: Any) -> list[Step]:
    """Return the calls that fill an array but for the elements of a box, a view of it: each once."""
    if not part.size:
        return filled(dev, whole, value)
    steps, rest = [], whole
    ahead = dev.cuda.address(part) - dev.cuda.address(whole)
    for axis, (size, stride) in enumerate(zip(part.shape, whole.strides, strict=True)):
        start = ahead // stride if size < whole.shape[axis] else 0
        ahead -= start * stride
        before = (slice(None),) * axis
        for margin in (slice(0, start), slice(start + size, None)):
            steps += filled(dev, rest[(*before, margin)], value)
        rest = rest[(*before, slice(start, start + size))]
    return steps


def _too_many(dimensions: Sequence[CopyDimension]) -> bool:
    elements = math.prod(d.size for d in dimensions)
    return (
        max(elements, *(abs(d.to) for d in dimensions), *(abs(d.source) for d in dimensions))
        >= MOST
    )


def _halves(target: Array, source: Array) -> list[tuple[Any, Any]]:
    """Cut both arrays in two where the target is longest apart."""
    axis = max(
        (i for i in range(target.ndim) if target.shape[i] > 1), key=lambda i: target.strides[i]
    )
    middle = target.shape[axis] // 2
    before = (slice(None),) * axis
    low, high = (*before, slice(0, middle)), (*before, slice(middle, None))
    if source.shape[axis] == 1:
        return [(target[low], source), (target[high], source)]
    return [(target[low], source[low]), (target[high], source[high])]


def widest(
    dev: Device, itemsize: int, run: int, steps: Sequence[int], arrays: Sequence[Any]
) -> int:
    """Return how many bytes to move at once.

    ``run`` elements lie side by side; ``steps``: all other distances, in elements.
    """
    for width in (16, 8, 4, 2):
        many = width // itemsize
        fits = many > 1 and all(n % many == 0 for n in (run, *steps))
        if fits and all(on_boundary(dev, a, width) for a in arrays):
            return width
    return itemsize


def _unit_by_unit(
    dev: Device, target: Array, source: Array | int, dimensions: list[CopyDimension]
) -> Step:
    """``source``: an array, or the bits of a number."""
    number = isinstance(source, int)
    inner, outer = dimensions[-1], dimensions[:-1]
    width = target.itemsize
    if inner.to == 1 and (number or inner.source == 1):
        arrays = [target] if number else [target, source]
        width = widest(dev, width, inner.size, [n for d in outer for n in (d.to, d.source)], arrays)
    many = width // target.itemsize
    outer = [CopyDimension(d.size, d.to // many, d.source // many) for d in outer]
    dimensions = [*outer, inner._replace(size=inner.size // many)]
    count = math.prod(d.size for d in dimensions)
    unit, rank = UNITS[width], len(dimensions)
    arguments = [(f"{unit}* target", target), ("unsigned count", count)]
    arguments.append(("unsigned long long bits" if number else f"const {unit}* source", source))
    for k, d in enumerate(dimensions):
        arguments += [
            *divisors(**{f"size{k}": d.size}),
            *ints(**{f"to{k}": d.to, f"from{k}": d.source}),
        ]
    name, body = f"{'fill' if number else 'copy'}_{width}_{rank}", _strided(unit, rank, number)
    blocks = enough_blocks(dev, -(-count // _IN_FLIGHT))
    return run(dev, name, body, arguments, blocks, ("index.cuh",))


def _strided(unit: str, rank: int, number: bool) -> str:
    lines = []
    for k in reversed(range(1, rank)):
        lines += [f"q = over(left, size{k}_magic, size{k}_shift);", f"r = left - q * size{k};"]
        lines += ["left = q;", f"t += (long long)r * to{k};", f"s += (long long)r * from{k};"]
    lines += ["t += (long long)left * to0;", "s += (long long)left * from0;"]
    at = " ".join(lines)
    read = "spread<Unit>(bits)" if number else "source[s]"
    return f"""
  typedef {unit} Unit;
  const unsigned threads = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += {_IN_FLIGHT} * threads) {{
    Unit held[{_IN_FLIGHT}];
    long long place[{_IN_FLIGHT}];
    #pragma unroll
    for (int k = 0; k < {_IN_FLIGHT}; k++) {{
      unsigned left = i + k * threads, q, r;
      if (left < count) {{
        long long t = 0, s = 0;
        {at}
        held[k] = {read};
        place[k] = t;
      }}
    }}
    #pragma unroll
    for (int k = 0; k < {_IN_FLIGHT}; k++)
      if (i + k * threads < count) target[place[k]] = held[k];
  }}"""


def _by_tiles(
    dev: Device,
    target: Array,
    source: Array,
    row: CopyDimension,
    column: CopyDimension,
    dims: list[CopyDimension],
) -> Step:
    """Through shared memory: the source is read along rows, the target written along columns."""
    outer = [d for d in dims if d not in (row, column)]
    width = target.itemsize
    side = _side(width)
    across, down = -(-column.size // side), -(-row.size // side)
    blocks = across * down * math.prod(d.size for d in outer)
    unit = UNITS[width]
    arguments = [(f"{unit}* target", target), (f"const {unit}* source", source)]
    arguments += ints(rows=row.size, columns=column.size, to_row=row.to, from_column=column.source)
    arguments += ints(down=down, across=across)
    for k, d in enumerate(reversed(outer)):
        arguments += ints(**{f"size{k}": d.size, f"to{k}": d.to, f"from{k}": d.source})
    return run(dev, f"transpose_{width}_{len(outer)}", _tiled(width, len(outer)), arguments, blocks)


def _side(width: int) -> int:
    return 64 if width <= 4 else 32


def _tiled(width: int, outer: int) -> str:
    unit, side = UNITS[width], _side(width)
    lines = [
        f"at = left % size{k}; left /= size{k}; to += (long long)at * to{k}; from += (long long)at * from{k};"
        for k in range(outer)
    ]
    return f"""
  __shared__ {unit} tile[{side}][{side + max(1, 4 // width)}];
  int left = blockIdx.x, at = left % across;
  left /= across;
  const int c0 = at * {side}, r0 = left % down * {side};
  left /= down;
  {unit}* to = target;
  const {unit}* from = source;
  {" ".join(lines)}
  const int x = threadIdx.x % {side}, y0 = threadIdx.x / {side};
  #pragma unroll
  for (int k = 0; k < {side * side // 256}; k++) {{
    const int y = y0 + k * {256 // side};
    if (c0 + y < columns && r0 + x < rows) tile[y][x] = from[(long long)(c0 + y) * from_column + r0 + x];
  }}
  __syncthreads();
  #pragma unroll
  for (int k = 0; k < {side * side // 256}; k++) {{
    const int y = y0 + k * {256 // side};
    if (r0 + y < rows && c0 + x < columns) to[(long long)(r0 + y) * to_row + c0 + x] = tile[x][y];
  }}"""
