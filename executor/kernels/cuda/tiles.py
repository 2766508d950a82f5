"""Launches over the channels of a batch norm, whose elements lie in columns or in planes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....graph.ops.operands import Array
from ....strategies.errors import Unsupported
from ...codegen.cuda_launches import MOST, Argument, call, divisor, ints, longs, names, run
from ...cuda.runtime import Step
from ...device.device import Device
from .rows import Tiles, accumulator, share_columns, share_planes, vector

INCLUDES = ("reduce.cuh", "activation.cuh", "norm.cuh")
PER_BLOCK = 8  # channels that a block puts chunks together for


class Channels:
    """The channels of arrays that lie alike, and how blocks share them.

    ``count`` of them, of ``total`` elements each, of which a chunk has ``size``.
    """

    def __init__(self, dev: Device, data_layout: str, *arrays: Any) -> None:
        images = [a for a in arrays if a is not None]
        x = images[0]
        axis = x.ndim - 1 if data_layout == "NHWC" else 1
        self.dev = dev
        self.count = x.shape[axis]
        self.total = x.size // max(self.count, 1)
        self.plane = 1 if axis == x.ndim - 1 else math.prod(x.shape[2:])
        if self.plane == 1 or all(_channels_last(a) for a in images):
            self.cut = share_columns(self.total, self.count, vector(dev, self.count, *images))
            self.tile = _columns(self.cut, self.total, self.count)
            self.size = self.cut.chunk
            return
        assert all(a.flags.c_contiguous for a in images), "images of one norm lie in two orders"
        size = vector(dev, self.plane, *images)
        self.cut = share_planes(x.shape[0], self.count, self.plane, size)
        self.tile = _planes(self.cut, self.total, self.count, self.plane)
        self.size = self.cut.chunk * size

    @property
    def chunks(self) -> int:
        """How many parts a channel's sums are formed in."""
        return self.cut.chunks

    @property
    def blocks(self) -> int:
        """How many blocks put the chunks of all channels together."""
        return -(-self.count // PER_BLOCK)

    def over(self, function: str, kinds: Sequence[str], arguments: Sequence[Argument]) -> Step:
        """Return the launch of a function that goes over all elements."""
        return self.tile.launch(self.dev, function, kinds, arguments)

    def each(self, function: str, kinds: Sequence[str], arguments: Sequence[Argument]) -> Step:
        """Return the launch of a function that makes a few numbers for each channel."""
        return call(self.dev, function, kinds, arguments, self.blocks, INCLUDES)

    def scratch(self, like: Array, numbers: int = 1) -> Any:
        """Return scratch for some numbers for each channel, in the type in which elements are added."""
        return self.dev.scratch((numbers * self.count,), accumulator(like.dtype))


class Tile(NamedTuple):
    """A C type of tiles, the parameters of its constructor, and the grid."""

    type: str
    arguments: tuple[Argument, ...]
    cut: Tiles

    def launch(
        self, dev: Device, function: str, kinds: Sequence[str], arguments: Sequence[Argument]
    ) -> Step:
        """Return the launch of a function on the tiles."""
        tile = f"{self.type}({names(self.arguments)})"
        body = f"{function}<{', '.join(kinds)}>({names(arguments)}, {tile});"
        # A tile may have a parameter of the name of one of the function's: they are the same number.
        distinct = tuple(dict((*arguments, *self.arguments)).items())
        return run(dev, function, body, distinct, self.cut.grid, INCLUDES)


def columns(dev: Device, rows: int, width: int, *arrays: Any) -> Tile:
    """Return how to go over the columns of arrays."""
    return _columns(share_columns(rows, width, vector(dev, width, *arrays)), rows, width)


def _columns(cut: Tiles, rows: int, width: int) -> Tile:
    arguments = (*longs(rows=rows), *ints(channels=width), *longs(chunk=cut.chunk))
    return Tile(f"Columns<{cut.text}>", arguments, cut)


def _planes(cut: Tiles, total: int, channels: int, plane: int) -> Tile:
    if total // cut.vector >= MOST:  # which the multiplier divides
        text = f"a batch norm is for fewer than {MOST * cut.vector:,} elements a channel"
        raise Unsupported(f"{text}, not {total:,}")
    per = max(plane // cut.vector, 1)
    multiplier, bits = divisor(per)
    arguments = (
        *longs(rows=total // cut.vector),
        *ints(channels=channels),
        *longs(chunk=cut.chunk),
        *ints(plane=plane),
        ("unsigned multiplier", multiplier),
        *ints(bits=bits),
    )
    return Tile(f"Planes<{cut.vector}>", arguments, cut)


def _channels_last(array: Array) -> bool:
    moved = (0, *range(2, array.ndim), 1)
    return bool(array.transpose(moved).flags.c_contiguous)
