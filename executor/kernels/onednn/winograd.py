"""Convolutions of 3 x 3 windows by Winograd's minimal filtering: 4 multiply-adds for what takes 9.

Lavin and Gray, arXiv 1509.09308, F(2 x 2, 3 x 3): of each tile of 4 x 4 pixels d and of a filter g are made
B'dB and GgG'; A'mA of the sums over channels m of their products, place by place, are 2 x 2 results. The
gradient of filters goes the same way back, G'[AyA' * B'dB]G; that of images is a convolution with turned
filters. So there are 16 products of matrices, which are the library's; what is added before and behind them are
compiled loops over channels, which lie side by side. Results are rounded otherwise than a direct convolution's,
by about as much.

Some tiles are worked on at a time, so that what is multiplied stays in cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product as pairs
from typing import Any, NamedTuple

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.conv import ConvOperands, windows
from ...codegen.native import launch
from ...device.device import Device
from ...host.writes import address
from ..array.conv import Product, geometry
from ..registry import Step
from .linear import product
from .primitive import SUM

_TILES = 128  # at a time: their products read all filters once
_LINE = 16  # elements of a line of the cache
_LEAST = 16  # channels: fewer fill no vector

_B = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))  # B'
_G = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_A = ((1, 1, 1, 0), (0, 1, -1, -1))  # A'


def _turned(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*matrix, strict=True)]


def _sum(factors: Sequence[float], terms: Sequence[str]) -> str:
    """Return the source of a sum of terms whose factors are 1, 1/2 or 0, with either sign."""
    signs = {f: "-" if f < 0 else "+" for f in factors}
    parts = {
        size: " ".join(
            f"{signs[f]} {t}" for f, t in zip(factors, terms, strict=True) if abs(f) == size
        )
        for size in (1, 0.5)
    }
    half = f"+ np.float32(0.5) * ({parts[0.5].removeprefix('+ ')})" if parts[0.5] else ""
    return f"{parts[1]} {half}".strip().removeprefix("+ ")


def _both(matrix: Sequence[Sequence[float]]) -> list[str]:
    """Return the lines that make r[i][j] = (matrix d matrix')[i][j] of d[i][j]."""
    rows, columns = len(matrix), len(matrix[0])
    lines = [
        f"h{i}{j} = {_sum(matrix[i], [f'd{k}{j}' for k in range(columns)])}"
        for i, j in pairs(range(rows), range(columns))
    ]
    return lines + [
        f"r{i}{j} = {_sum(matrix[j], [f'h{i}{k}' for k in range(columns)])}"
        for i, j in pairs(range(rows), range(rows))
    ]


# Of tiles ``words[2]`` to ``words[3]`` the pixels (side x side of them, from ``2 * row - top`` on) and their
# matrices [16, tiles, channels]. ``words[1]`` is a line of channels for pixels outside of an image.
_TILE = """
def run(words):
    images, spare, matrices = f32(words[0]), (words[1] - words[0]) // 4, f32(words[4])
    high, wide, tall, broad = words[5], words[6], words[7], words[8]
    top, left, channels, apart = words[9], words[10], words[11], words[12]
    by_image, by_row, by_pixel = words[13], words[14], words[15]
    for tile in range(words[2], words[3]):
        n, place = tile // (tall * broad), tile % (tall * broad)
        row, column = 2 * (place // broad) - top, 2 * (place % broad) - left
{places}
        o = (tile - words[2]) * channels
        for c in range(channels):
{body}
"""
_PLACE = """
y, x = row + {i}, column + {j}
p{i}{j} = n * by_image + y * by_row + x * by_pixel
if y < 0 or y >= high or x < 0 or x >= wide:
    p{i}{j} = spare
"""
# Filters [rows, columns, 3, 3], or their gradients, and their matrices [16, rows, columns].
_FILTER = """
def run(words):
    filters, matrices, apart = f32(words[0]), f32(words[1]), words[2]
    rows, columns, by_row, by_column = words[3], words[4], words[7], words[8]
    by_line, by_tap = words[9], words[10]
    for row in range(rows):
        for column in range(columns):
            f, o = row * by_row + column * by_column, row * columns + column
{body}
"""


def _lines(depth: int, lines: Iterator[str] | Sequence[str]) -> str:
    pad = "    " * depth
    return "\n".join(pad + line for text in lines for line in text.strip("\n").split("\n"))


def _tiles(side: int, matrix: Sequence[Sequence[float]], back: bool) -> str:
    """Return the source that makes matrices of tiles, or (``back``) tiles of matrices."""
    pixels = [*pairs(range(side), repeat=2)]
    tiles = [f"images, p{i}{j} + c" for i, j in pixels]
    parts = [f"matrices, {4 * i + j} * apart + o + c" for i, j in pairs(range(4), repeat=2)]
    read, written = (parts, tiles) if back else (tiles, parts)
    ends = [*pairs(range(4), repeat=2)], pixels
    inputs, outputs = ends if back else ends[::-1]
    body = [
        *(f"d{i}{j} = load({at})" for (i, j), at in zip(inputs, read, strict=True)),
        *_both(matrix),
        *(f"store({at}, r{i}{j})" for (i, j), at in zip(outputs, written, strict=True)),
    ]
    places = [_PLACE.format(i=i, j=j) for i, j in pixels]
    return _TILE.format(places=_lines(2, places), body=_lines(3, body))


def _filters(matrix: Sequence[Sequence[float]], back: bool) -> str:
    """Return the source that makes matrices of filters, or (``back``) filters of matrices."""
    taps = [f"filters, f + {i} * by_line + {j} * by_tap" for i, j in pairs(range(3), repeat=2)]
    parts = [f"matrices, {4 * i + j} * apart + o" for i, j in pairs(range(4), repeat=2)]
    ends = (taps, range(3)), (parts, range(4))
    (read, side), (written, result) = reversed(ends) if back else ends
    body = [
        *(f"d{i}{j} = load({at})" for (i, j), at in zip(pairs(side, repeat=2), read, strict=True)),
        *_both(matrix),
        *(
            f"store({at}, r{i}{j})"
            for (i, j), at in zip(pairs(result, repeat=2), written, strict=True)
        ),
    ]
    return _FILTER.format(body=_lines(3, body))


_PIXELS = _tiles(4, _B, back=False)  # B'dB
_RESULTS = _tiles(2, _A, back=True)  # A'mA
_SLOPES = _tiles(2, _turned(_A), back=False)  # AyA'
_FILTERS = _filters(_G, back=False)  # GgG'
_FILTER_SLOPES = _filters(_turned(_G), back=True)  # G'mG


class _Grid(NamedTuple):
    """Tiles of 2 x 2 results in all images; ``pads``: how far windows begin before an image."""

    images: int
    tall: int
    broad: int
    pads: tuple[int, int]

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Return the first and last tile of each block."""
        count = self.images * self.tall * self.broad
        for begin in range(0, count, _TILES):
            yield begin, min(begin + _TILES, count)

    def call(self, source: str, images: Any, spare: Any, begin: int, matrices: Any) -> Step:
        """Return the call that goes from images, channels last, to the matrices of tiles or back."""
        _, high, wide, channels = images.shape
        pads = self.pads if source is _PIXELS else (0, 0)
        steps = [stride // images.itemsize for stride in images.strides[:3]]
        end = begin + matrices.shape[1]
        apart = matrices.strides[0] // matrices.itemsize
        words = [address(images), address(spare), begin, end, address(matrices)]
        words += [high, wide, self.tall, self.broad, *pads, channels, apart, *steps]
        return launch(source, words, images, spare, matrices)


def _matrices(dev: Device, rows: int, columns: int) -> Any:
    """Return 16 matrices that do not begin in the same lines of the cache."""
    size = rows * columns
    return dev.scratch((16, size + _LINE), np.float32)[:, :size].reshape(16, rows, columns)


def _of_filters(source: str, filters: Any, matrices: Any) -> Step:
    """Return the call that goes from filters [rows, columns, 3, 3] to matrices [16, rows, columns] or back."""
    steps = [stride // filters.itemsize for stride in (matrices.strides[0], *filters.strides)]
    words = [address(filters), address(matrices), steps[0], *filters.shape, *steps[1:]]
    return launch(source, words, filters, matrices)


def _last(dev: Device, images: Any) -> tuple[Any, list[Step], list[Step]]:
    """View images with channels last: themselves or a copy; return the calls that read into it and back."""
    view = images.transpose(0, 2, 3, 1)
    if view.strides[-1] == view.itemsize:
        return view, [], []
    copy = dev.scratch(view.shape, view.dtype)
    return copy, [partial(np.copyto, copy, view)], [partial(np.copyto, view, copy)]


def takes(node: Node) -> bool:
    """Tell whether a convolution of images has the windows, and enough channels to fill vectors."""
    (x,), (w,) = node.inputs["Input"], node.inputs["Filter"]
    assert x is not None and w is not None
    images, filters = x.spec.shape, w.spec.shape
    if filters[2:] != (3, 3) or node.attrs["groups"] != 1 or min(filters[:2]) < _LEAST:
        return False
    pads, dilations = windows(node.attrs, images[2:], filters[2:])
    steps = {*node.attrs["strides"], *dilations}
    return steps == {1} and max(map(max, pads)) <= 2


def by_winograd(dev: Device, a: ConvOperands, operands: Product) -> list[Step]:
    """Return the calls of one of a convolution's three products."""
    result, x, w, y = operands
    geo = geometry(a, operands)
    before = geo.pads[0][0], geo.pads[1][0]
    if result == "w":
        return _slopes_of_filters(dev, x, w, y, before)
    source, target = (x, y) if result == "y" else (y, x)
    if result == "x":
        before = 2 - before[0], 2 - before[1]
    source, steps, _ = _last(dev, source)
    target, _, finish = _last(dev, target)
    images, high, wide, results = target.shape
    grid = _Grid(images, -(-high // 2), -(-wide // 2), before)
    channels = source.shape[-1]
    w = w.swapaxes(0, 1) if result == "y" else w[..., ::-1, ::-1]
    filters = _matrices(dev, *w.shape[:2])
    steps = [*steps, _of_filters(_FILTERS, w, filters)]
    tiles, sums = _matrices(dev, _TILES, channels), _matrices(dev, _TILES, results)
    spare = dev.keep((max(channels, results),), np.float32), dev.scratch((results,), np.float32)
    for begin, end in grid.blocks():
        some = slice(0, end - begin)
        steps.append(grid.call(_PIXELS, source, spare[0], begin, tiles[:, some]))
        steps += product(dev, tiles[:, some], filters, sums[:, some])
        steps.append(grid.call(_RESULTS, target, spare[1], begin, sums[:, some]))
    return [*steps, *finish]


def _slopes_of_filters(dev: Device, x: Any, w: Any, y: Any, before: tuple[int, int]) -> list[Step]:
    x, steps, _ = _last(dev, x)
    y, more, _ = _last(dev, y)
    images, high, wide, results = y.shape
    grid = _Grid(images, -(-high // 2), -(-wide // 2), before)
    channels = x.shape[-1]
    total = _matrices(dev, results, channels)
    tiles, slopes = _matrices(dev, _TILES, channels), _matrices(dev, _TILES, results)
    spare = dev.keep((max(channels, results),), np.float32)
    steps += more
    for begin, end in grid.blocks():
        some = slice(0, end - begin)
        steps.append(grid.call(_PIXELS, x, spare, begin, tiles[:, some]))
        steps.append(grid.call(_SLOPES, y, spare, begin, slopes[:, some]))
        factors = slopes[:, some].swapaxes(1, 2), tiles[:, some]
        steps += product(dev, *factors, total, post_ops=(SUM,) if begin else ())
    return [*steps, _of_filters(_FILTER_SLOPES, w, total)]
