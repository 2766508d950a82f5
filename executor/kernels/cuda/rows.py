"""How the threads of a GPU share rows and columns out, from shapes alone: the bits of a sum depend on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....graph.ops.operands import Array
from ...codegen.cuda_launches import BLOCK, Argument, call, ints, longs
from ...cuda.runtime import Dims, Step
from ...device.device import Device
from .support import on_boundary

_VECTOR_BYTES = 16
_WARP_COLUMNS = 1024  # the longest row that a warp takes
_MOST_HELD = 8  # vectors of a row that a thread keeps in registers
_PARTS = 1024  # blocks that keep a GPU busy


def accumulator(dtype: Any) -> np.dtype[Any]:
    """Return in which type elements are added up."""
    if dtype.name in ("float16", "bfloat16", "float32"):
        return np.dtype(np.float32)
    return np.dtype(np.float64 if dtype.name == "float64" else np.int64)


def vector(dev: Device, length: int, *arrays: Any) -> int:
    """Return how many elements can be loaded at once, of rows of this length in each of the arrays.

    Those of the least type fill 16 bytes; the vectors of the others are as many elements.
    """
    operands = [a for a in arrays if a is not None]
    size = _VECTOR_BYTES // min(min(a.dtype.itemsize for a in operands), 8)
    fits = all(on_boundary(dev, a, size * a.dtype.itemsize) for a in operands)
    return size if length % size == 0 and fits else 1


class Sharing(NamedTuple):
    """How rows are shared out: to groups of ``group`` threads, in vectors, ``vectors`` of them in registers.

    ``vectors`` is 0 where a row is too long; ``blocks`` of ``block`` threads take the rows in turn.
    """

    group: int
    vector: int
    vectors: int
    blocks: int
    block: int

    @property
    def text(self) -> str:
        """The template arguments G, V and N."""
        return f"{self.group}, {self.vector}, {self.vectors}"


def share_rows(
    rows: int, width: int, size: int, *, together: int = 1, most_blocks: int = 1 << 16
) -> Sharing:
    """Return how to share out rows of ``width`` elements in vectors of ``size``.

    ``together``: rows that a thread keeps in registers at once; 0: a long row is looked at once, and not kept.
    """
    count = -(-max(width, 1) // size)
    if width <= _WARP_COLUMNS and count <= 32 * _MOST_HELD:
        block = BLOCK if rows >= BLOCK // 32 else 32 * max(rows, 1)
        blocks = max(min(-(-rows * 32 // block), most_blocks), 1)
        return Sharing(32, size, -(-count // 32), blocks, block)
    block = next((b for b in (128, 256, 512) if count <= 4 * b), 1024)
    if not together:  # several blocks on a multiprocessor, where there are enough
        block = min(block, BLOCK) if rows >= _PARTS else block
        return Sharing(block, size, 0, max(min(rows, most_blocks), 1), block)
    vectors = -(-count // block)
    fits = vectors <= 4 or vectors * together <= _MOST_HELD
    return Sharing(block, size, vectors if fits else 0, max(min(rows, most_blocks), 1), block)


class Rows:
    """The rows of an array along an axis; ``shared`` is how threads share them.

    ``others``: arrays whose rows are loaded with them. ``together``: see :func:`share_rows`. ``warps``: a warp
    takes a row of any length.
    """

    def __init__(
        self,
        dev: Device,
        x: Array,
        axis: int,
        *others: Any,
        together: int = 1,
        warps: bool = False,
    ) -> None:
        axis %= x.ndim
        self.dev = dev
        self.width = x.shape[axis]
        self.stride = math.prod(x.shape[axis + 1 :])
        self.rows = math.prod(x.shape[:axis]) * self.stride
        if self.stride == 1 and not warps:
            size = vector(dev, self.width, x, *others)
            self.shared = share_rows(self.rows, self.width, size, together=together)
        else:  # a thread takes a row that lies across others
            group = 32 if self.stride == 1 else 1
            blocks = max(min(-(-self.rows * group // BLOCK), 1 << 16), 1)
            self.shared = Sharing(group, 1, 0, blocks, BLOCK)

    def launch(
        self,
        function: str,
        kinds: Sequence[str],
        arrays: Sequence[Argument],
        includes: tuple[str, ...],
        more: Sequence[Argument] = (),
    ) -> list[Step]:
        """Return the launch of a function of arrays, rows, width, stride and more."""
        if not self.rows or not self.width:
            return []
        sizes = [*longs(rows=self.rows), *ints(width=self.width, stride=self.stride)]
        how = (self.shared.blocks, includes, self.shared.block)
        return [call(self.dev, function, kinds, [*arrays, *sizes, *more], *how)]


class Tiles(NamedTuple):
    """How [rows, width] is cut: into tiles of columns, and these into chunks of rows."""

    vector: int
    across: int  # threads side by side
    chunk: int  # rows
    grid: Dims

    @property
    def chunks(self) -> int:
        """How many partial results each column has."""
        return self.grid[1]

    @property
    def text(self) -> str:
        """The template arguments V and LX."""
        return f"{self.vector}, {self.across}"


def share_columns(rows: int, width: int, size: int) -> Tiles:
    """Return how to cut columns in vectors of ``size``."""
    across = min(32, 1 << (-(-max(width, 1) // size) - 1).bit_length())
    tiles = -(-max(width, 1) // (across * size))
    return Tiles(size, across, *_chunks(rows, tiles, BLOCK // across))


def _chunks(rows: int, tiles: int, down: int) -> tuple[int, Dims]:
    """Return how many rows a chunk has and the grid; ``down``: rows that a block takes at once."""
    chunk = max(-(-rows // max(_PARTS // tiles, 1)), 4 * down, 1)
    return chunk, (tiles, max(-(-rows // chunk), 1), 1)


def share_planes(images: int, channels: int, plane: int, size: int) -> Tiles:
    """Return how to cut [images, channels, plane], whose channels are summed: a block has one of them."""
    return Tiles(size, 1, *_chunks(images * plane // size, channels, BLOCK))
