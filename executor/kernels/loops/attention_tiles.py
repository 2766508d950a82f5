"""Attention with oneDNN's products and compiled loops for all between them, in tiles that stay in cache.

oneDNN is slow with rows that lie apart, as heads of a projection do, so what a block reads is laid side by side
first. Back, a tile is some rows by some keys: weights and their gradients never leave the cache, and oneDNN
adds products to the gradients of Q, K and V where they are.

Legend as in ``attention.py``; C keys of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ...device.device import Device
from ..array.attention import (
    AttentionOperands,
    Block,
    Settings,
    Space,
    Views,
    add_part,
    blocks,
    part,
    register,
    spans,
)
from ..onednn.linear import product
from ..onednn.primitive import SUM
from ..onednn.support import onednn
from ..registry import Step
from . import tiles as loops
from .attention import soften
from .random import CompiledDropout

FORWARD_BYTES = 1 << 19  # of the scores of a block: half of a usual second-level cache
LEAST_ROWS = 128  # with fewer, products read K and V too often
TILE_BYTES = 1 << 18  # back: of weights, and as many of slopes
PAGE = 4096
TILE_ROWS = 256  # with fewer, products spend too much on putting keys in oneDNN's order


@dataclass
class _Near:
    """Where what belongs to a block, or to its heads, lies side by side: arrays by name."""

    spaces: dict[str, Space]

    def __call__(self, name: str, *shape: int) -> Any:
        return self.spaces[name](shape)


class TiledAttention(AttentionOperands):
    """Binds the passes of one attention. Calls that are alike, for all heads, are bound once."""

    drops = CompiledDropout

    def __init__(self, dev: Device, views: Views, mask: Any, a: Settings) -> None:
        super().__init__(dev, views, mask, a)
        # Whether keys behind a block's last query are left out; marks of dropout are counted for all keys.
        self.skips = a.causal and not self.dropout.draws
        self.products: dict[tuple[Any, ...], list[Step]] = {}

    def forward(self, out: Array, top: Any, total: Any) -> Iterator[Step]:
        """Yield the calls of all blocks. Out is divided by the rows' sums: it is narrower than the scores."""
        pieces = list(blocks(self.shape, FORWARD_BYTES // self.q.itemsize, LEAST_ROWS))
        widths = {"q": self.q.shape[3], "out": self.v.shape[3], "scores": self.shape[3]}
        near = self._near(pieces, widths, {"k": self.k.shape[3], "v": self.v.shape[3]})
        for block in pieces:
            rows, at = block.shape[:3], block.at
            query, result = near("q", *rows, widths["q"]), near("out", *rows, widths["out"])
            keys, values, copies = self._keys(near, block)
            seen = slice(0, self._keys_seen(block))
            keys, values = keys[:, :, seen], values[:, :, seen]
            scores, mark = near("scores", *rows, seen.stop), self._mark(near, block)
            yield loops.copies([(self.q[at], query, self.scale), *copies])
            yield from self._product(query, _turned(keys), scores)
            yield soften(scores, _along(self.masked(block), seen), top[at], total[at])
            yield from self.dropout.mark(block.start, mark)
            yield from self.dropout.zero(scores, mark)
            yield from self._product(scores, values, result)
            yield loops.divided(result, out[at], self.dropout.factor, total[at])

    def backward(self, results: Views, d_out: Array, wanted: Views, d_mask: Any) -> Iterator[Step]:
        """Yield the calls of all blocks: ``results`` are Out and two columns, ``wanted`` gradients or None."""
        size = TILE_BYTES // self.q.itemsize
        pieces = list(blocks(self.shape, size, TILE_ROWS))
        most = max((math.prod(block.shape[:3]) for block in pieces), default=1)
        tiles = spans(self.shape[3], max(size // most, 1))
        near = self._near_back(pieces, tiles, d_mask)
        if d_mask is not None:
            yield partial(d_mask.fill, 0)
        for block in pieces:
            keys, values, copies = self._keys(near, block)
            rows = _Rows(near, block, self.q.shape[3], self.v.shape[3])
            yield loops.copies([(self.q[block.at], rows.q, self.scale), *copies])
            views = (d_out, *results)
            yield loops.shares([a[block.at] for a in views], rows.d_out, rows.columns)
            yield from self.dropout.mark(block.start, self._mark(near, block))
            for span in tiles:
                if span.start >= self._keys_seen(block):
                    break
                yield from self._tile(near, block, span, rows, (keys, values), wanted, d_mask)
            moves = [] if wanted[0] is None else [(rows.d_q, wanted[0][block.at], self.scale)]
            yield from self._written(near, block, moves, wanted)

    def _tile(
        self,
        near: _Near,
        block: Block,
        span: slice,
        rows: _Rows,
        heads: Any,
        wanted: Views,
        d_mask: Any,
    ) -> Iterator[Step]:
        keys, values = (a[:, :, span] for a in heads)
        shape = (*block.shape[:3], keys.shape[2])
        weights, d_scores = near("weights", *shape), near("d_scores", *shape)
        mark, mask = self._mark(near, block), _along(self.masked(block), span)
        yield from self._product(rows.q, _turned(keys), weights)
        yield from self._product(rows.d_out, _turned(values), d_scores)
        yield loops.slopes(
            weights, d_scores, mask, _along(mark, span), rows.columns, self.dropout.factor
        )
        if d_mask is not None:
            sums = near.spaces["sums"]
            yield from add_part(self.dev, _along(part(d_mask, block), span), d_scores, sums)
        first = block.at[2].start <= (span.start if self.skips else 0)  # block that sees these keys
        d_k, d_v = self._sums(near, block)
        if wanted[2] is not None:
            yield from self._product(_turned(weights), rows.d_out, d_v[:, :, span], more=not first)
        if wanted[1] is not None:
            yield from self._product(_turned(d_scores), rows.q, d_k[:, :, span], more=not first)
        if wanted[0] is not None:
            yield from self._product(d_scores, keys, rows.d_q, more=span.start > 0)

    def _keys_seen(self, block: Block) -> int:
        """Return how many keys a block's rows look at."""
        return block.at[2].stop if self.skips else self.shape[3]

    def _written(
        self, near: _Near, block: Block, moves: list[loops.Copy], wanted: Views
    ) -> Iterator[Step]:
        """The gradients go where they belong: that of Q from each block, the others from a head's last."""
        if block.at[2].stop == self.shape[2]:
            sums = zip(self._sums(near, block), wanted[1:], strict=True)
            moves = moves + [(a, d[block.at[:2]], 1.0) for a, d in sums if d is not None]
        if moves:
            yield loops.copies(moves)

    def _near(self, pieces: Sequence[Block], rows: dict[str, int], keys: dict[str, int]) -> _Near:
        """Return scratch: elements for each row of a block, and for each key of its heads."""
        dtype = self.q.dtype
        spaces = {
            name: Space(self.dev, [(*b.shape[:3], width) for b in pieces], dtype)
            for name, width in rows.items()
        }
        for name, width in keys.items():
            shapes = [(*b.shape[:2], b.shape[3], width) for b in pieces]
            spaces[name] = Space(self.dev, shapes, dtype)
        marked = [b.shape for b in pieces if self.dropout.draws]
        spaces["marks"] = Space(self.dev, marked, np.bool_)
        return _Near(spaces)

    def _near_back(self, pieces: Sequence[Block], tiles: list[slice], d_mask: Any) -> _Near:
        K, V = self.k.shape[3], self.v.shape[3]
        rows = {"q": K, "d_q": K, "d_out": V, "top": 1, "part": 1, "share": 1}
        near = self._near(pieces, rows, {"k": K, "v": V, "d_k": K, "d_v": V})
        shapes = [(*b.shape[:3], s.stop - s.start) for b in pieces for s in tiles]
        near.spaces["weights"], near.spaces["d_scores"] = self._beside(shapes)
        sums = [] if d_mask is None else [part(d_mask, b).shape for b in pieces]
        near.spaces["sums"] = Space(self.dev, sums, self.q.dtype)
        return near

    def _beside(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Space, Space]:
        """Return space for two tiles whose addresses differ in their last bits.

        A loop that writes one while it reads the other would wait, were they the same: a processor takes
        what it reads for what it just wrote.
        """
        page = PAGE // self.q.itemsize
        size = -(-max(map(math.prod, shapes), default=0) // page) * page + page // 2
        both = Space(self.dev, [(2, size)], self.q.dtype)
        return both.half(0, size), both.half(1, size)

    def _keys(self, near: _Near, block: Block) -> tuple[Any, Any, list[loops.Copy]]:
        """Return K and V of the block's heads, side by side, and the copies if it is the first with them."""
        sides = [(a[block.at[:2]], name) for a, name in ((self.k, "k"), (self.v, "v"))]
        keys, values = (near(name, *a.shape) for a, name in sides)
        if block.at[2].start > 0:
            return keys, values, []
        return keys, values, [(sides[0][0], keys, 1.0), (sides[1][0], values, 1.0)]

    def _sums(self, near: _Near, block: Block) -> tuple[Any, Any]:
        rows = (*block.shape[:2], self.shape[3])
        return near("d_k", *rows, self.k.shape[3]), near("d_v", *rows, self.v.shape[3])

    def _mark(self, near: _Near, block: Block) -> Any:
        return near("marks", *block.shape) if self.dropout.draws else None

    def _product(self, left: Array, right: Array, out: Array, *, more: bool = False) -> list[Step]:
        """Return the call for out = left @ right, or with ``more`` for out += left @ right."""
        key = (more, *((a.ctypes.data, a.shape, a.strides) for a in (left, right, out)))
        if key not in self.products:
            stacks = [a.reshape(-1, *a.shape[2:]) for a in (left, right, out)]
            a, b, c = (m[0] if len(m) == 1 else m for m in stacks)
            with self.dev.in_turn():
                self.products[key] = product(self.dev, a, b, c, post_ops=(SUM,) if more else ())
        return self.products[key]


class _Rows:
    """What the backward pass holds of a block's rows, side by side."""

    def __init__(self, near: _Near, block: Block, width: int, out_width: int) -> None:
        rows = block.shape[:3]
        self.q, self.d_q = near("q", *rows, width), near("d_q", *rows, width)
        self.d_out = near("d_out", *rows, out_width)
        self.columns = [near(name, *rows, 1) for name in ("top", "part", "share")]


def _turned(array: Array) -> Any:
    return array.swapaxes(-1, -2)


def _along(array: Array, span: slice) -> Any:
    """Return the part of a mask, or of marks, that belongs to a span of keys."""
    return array if array is None or array.shape[3] == 1 else array[..., span]


register(partial(onednn, needs=("llvm",)), TiledAttention)
