"""Scaled dot-product attention, block by block: the matrix of scores never stands in memory.

A block is some rows of scores that fit in the cache: rows of one head, several heads, or several samples.
Legend: B batch, H heads, T queries, S keys, D size of a head; every operand is viewed as [B, H, T or S, D].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.attention import FusedDotProductAttention, FusedDotProductAttentionGrad
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, kernel
from .expression import placed
from .part_dropout import Dropout

BLOCK_BYTES = 1 << 19  # of scores, where heads are short: what stays in the cache
LEAST_ROWS = 512  # where they are long: with fewer, products read K and V too often

Views = tuple[Any, Any, Any]
Settings = FusedDotProductAttention | FusedDotProductAttentionGrad  # the attributes of either op


@dataclass(frozen=True)
class Block:
    """A part of the scores: which samples, heads and rows, and where its elements begin among all."""

    at: tuple[slice, slice, slice]
    start: int
    shape: tuple[int, int, int, int]


def blocks(shape: tuple[int, int, int, int], size: int, least_rows: int) -> Iterator[Block]:
    """Yield blocks of scores of ``shape`` [B, H, T, S]; the elements of each lie together.

    They have ``size`` elements at most, where that is not less than ``least_rows`` rows.
    """
    B, H, T, S = shape
    if 0 in shape:
        return
    near = size // S
    rows = max(near, least_rows)
    heads, samples = max(near // T, 1), max(near // (T * H), 1)
    for b in spans(B, samples):
        for h in spans(H, heads):
            for t in spans(T, rows):
                start = ((b.start * H + h.start) * T + t.start) * S
                sizes = (b.stop - b.start, h.stop - h.start, t.stop - t.start, S)
                yield Block((b, h, t), start, sizes)


def spans(size: int, most: int) -> list[slice]:
    """Cut a dimension into spans of nearly one size, none longer than ``most``."""
    count = -(-size // most)
    ends = [size * i // count for i in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def heads_first(array: Array, layout: str) -> Any:
    """Return an operand as a view [B, H, rows, D]."""
    if layout != "bhtd":
        return array.swapaxes(1, 2)
    if array.ndim == 3:
        return array[:, None]
    return array[(None,) * (4 - array.ndim)]


def operands(q: Any, k: Any, v: Any, layout: str) -> Views:
    """Return Q, K and V (or their gradients) as views [B, H, rows, D]; None stays None."""
    if layout == "packed":
        q, k, v = (None,) * 3 if q is None else (q[:, :, i] for i in range(3))
    views = (None if a is None else heads_first(a, layout) for a in (q, k, v))
    return tuple(views)  # type: ignore[return-value]  # three of them


def columns(rows: Array) -> Any:
    """Return a number per row of scores as a view [B, H, T, 1]."""
    return heads_first(rows[..., None], "bhtd")


def mask_view(mask: Any, rank: int, axis: int) -> Any:
    """Return Mask as a view that broadcasts to scores [B, H, T, S], which have ``rank`` dimensions."""
    return None if mask is None else heads_first(placed(mask, rank, axis), "bhtd")


def part(mask: Any, block: Block) -> Any:
    """Return the part of a mask that belongs to a block."""
    at = zip((*block.at, slice(None)), mask.shape, strict=True)
    return mask[tuple(slice(None) if size == 1 else span for span, size in at)]


def scaled(dev: Device, array: Array, factor: float, out: Array) -> list[Step]:
    """Return the call for out = array * factor (none if that is ``array`` already)."""
    same = factor == 1.0 and out is array
    return [] if same else [partial(dev.xp.multiply, array, factor, out)]


class Space:
    """Scratch for one block at a time: arrays of one buffer, which is as large as the largest."""

    def __init__(self, dev: Device, shapes: Iterable[tuple[int, ...]], dtype: Any) -> None:
        size = max((math.prod(shape) for shape in shapes), default=0)
        self.flat = dev.scratch((size,), dtype)

    def __call__(self, shape: tuple[int, ...]) -> Any:
        """Return an array of this shape."""
        return self.flat[: math.prod(shape)].reshape(shape)

    def half(self, which: int, size: int) -> Space:
        """Return the part of ``size`` elements that begins after ``which`` such parts."""
        space = copy(self)
        space.flat = self.flat[which * size : (which + 1) * size]
        return space


class AttentionOperands:
    """Operands of one attention: Q, K, V [B, H, rows, width], Mask, the scale, and what is dropped."""

    drops = Dropout

    def __init__(self, dev: Device, views: Views, mask: Any, a: Settings) -> None:
        self.dev, self.mask, self.scale = dev, mask, a.scale
        self.q, self.k, self.v = views
        self.shape = (*self.q.shape[:3], self.k.shape[2])  # of the scores
        self.dropout = self.drops(dev, math.prod(self.shape[1:]), a.dropout)

    def masked(self, block: Block) -> Any:
        """Return the part of Mask that belongs to a block; None without a mask."""
        return None if self.mask is None else part(self.mask, block)


class Attention(AttentionOperands):
    """Binds the passes of one attention over blocks. A subclass may compute rows of scores otherwise."""

    def __init__(self, dev: Device, views: Views, mask: Any, a: Settings) -> None:
        super().__init__(dev, views, mask, a)
        self.blocks = list(blocks(self.shape, BLOCK_BYTES // self.q.dtype.itemsize, LEAST_ROWS))
        self.scores = self.space(self.shape[3])
        self.queries = self.space(self.q.shape[3])
        self.marks = self.space(self.shape[3] if self.dropout.draws else 0, np.bool_)
        self.near_k, self.near_v = self._tall(self.k), self._tall(self.v)

    def space(self, width: int, dtype: Any = None) -> Space:
        """Return scratch with ``width`` elements for each row of a block."""
        shapes = [(*block.shape[:3], width) for block in self.blocks]
        return Space(self.dev, shapes, dtype or self.q.dtype)

    def forward(self, out: Array, top: Any, total: Any) -> Iterator[Step]:
        """Yield the calls of all blocks. Out is divided by the rows' sums: it is narrower than the scores."""
        xp = self.dev.xp
        for block in self.blocks:
            rows, scores, mark = out[block.at], self.scores(block.shape), self._mark(block)
            yield from self._score(block)
            yield from self.soften(scores, self.masked(block), top[block.at], total[block.at])
            yield from self.dropout.mark(block.start, mark)
            yield from self.dropout.zero(scores, mark)
            values, copies = self._near(block, self.v, self.near_v)
            yield from copies
            yield from self.product(scores, values, rows)
            yield partial(xp.divide, rows, total[block.at], rows)
            yield from scaled(self.dev, rows, self.dropout.factor, rows)

    def backward(self, results: Views, d_out: Array, wanted: Views, d_mask: Any) -> Iterator[Step]:
        """Yield the calls of all blocks: ``results`` are Out and two columns, ``wanted`` gradients or None."""
        slopes = self.space(self.shape[3])
        tall = [self._tall(*like) for like in ((self.k,), (self.v,), (self.k, self.v))]
        values, shares = self.space(d_out.shape[3]), self.space(1)
        sums = Space(
            self.dev,
            [() if d_mask is None else part(d_mask, b).shape for b in self.blocks],
            d_out.dtype,
        )
        unwritten = (d_mask,) if self.blocks else (*wanted, d_mask)
        yield from (partial(a.fill, 0) for a in unwritten if a is not None)
        for block in self.blocks:
            d_rows = values((*block.shape[:3], d_out.shape[3]))
            share, d_scores = shares((*block.shape[:3], 1)), slopes(block.shape)
            yield from self._score(block)
            yield from self._shares(block, results[0], d_out, d_rows, share)
            yield from self._weigh(block, results, d_rows, d_scores, share)
            if d_mask is not None:
                yield from add_part(self.dev, part(d_mask, block), d_scores, sums)
            yield from self._products(block, d_rows, d_scores, wanted, tall)

    def product(self, left: Array, right: Array, out: Array) -> list[Step]:
        """Return the calls for out = left @ right."""
        return [partial(self.dev.xp.matmul, left, right, out)]

    def soften(self, scores: Array, mask: Any, top: Any, total: Any) -> list[Step]:
        """Return the calls for exp(scores + mask - top), in place, with top and total of each row."""
        xp = self.dev.xp
        return [
            *([] if mask is None else [partial(xp.add, scores, mask, scores)]),
            partial(self.dev.reducer("maximum"), scores, -1, None, top, True),
            partial(xp.subtract, scores, top, scores),
            partial(xp.exp, scores, scores),
            partial(xp.add.reduce, scores, -1, None, total, True),
        ]

    def soften_again(self, scores: Array, mask: Any, top: Any, total: Any) -> list[Step]:
        """Return the calls that turn scores into the weights of the forward pass."""
        xp = self.dev.xp
        return [
            *([] if mask is None else [partial(xp.add, scores, mask, scores)]),
            partial(xp.subtract, scores, top, scores),
            partial(xp.exp, scores, scores),
            partial(xp.divide, scores, total, scores),
        ]

    def slope(self, weights: Array, d_weights: Array, share: Any) -> list[Step]:
        """Return the calls for d_weights = weights * (d_weights - share), the gradient of softmax."""
        return [
            partial(self.dev.xp.subtract, d_weights, share, d_weights),
            partial(self.dev.xp.multiply, d_weights, weights, d_weights),
        ]

    def _mark(self, block: Block) -> Any:
        return self.marks(block.shape) if self.dropout.draws else None

    def _queries(self, block: Block) -> Any:
        return self.queries((*block.shape[:3], self.q.shape[3]))

    def _score(self, block: Block) -> list[Step]:
        """Scores of scaled queries."""
        query = self._queries(block)
        keys, copies = self._near(block, self.k, self.near_k)
        return [
            *copies,
            partial(self.dev.xp.multiply, self.q[block.at], self.scale, query),
            *self.product(query, keys.swapaxes(-1, -2), self.scores(block.shape)),
        ]

    def _shares(
        self, block: Block, out: Array, d_out: Array, d_rows: Array, share: Any
    ) -> list[Step]:
        """share = sum(d_out * out) of each row, which is sum(d_weights * weights); d_rows = d_out * factor."""
        xp = self.dev.xp
        return [
            partial(xp.multiply, d_out[block.at], out[block.at], d_rows),
            partial(xp.add.reduce, d_rows, -1, None, share, True),
            partial(xp.multiply, d_out[block.at], self.dropout.factor, d_rows),
        ]

    def _weigh(
        self, block: Block, results: Views, d_rows: Array, d_scores: Array, share: Any
    ) -> Iterator[Step]:
        """Weights again, where the scores are, with dropped ones zero; and the gradient of the scores."""
        scores, mark = self.scores(block.shape), self._mark(block)
        top, total = (a[block.at] for a in results[1:])
        values, copies = self._near(block, self.v, self.near_v)
        yield from self.soften_again(scores, self.masked(block), top, total)
        yield from copies
        yield from self.product(d_rows, values.swapaxes(-1, -2), d_scores)
        yield from self.dropout.mark(block.start, mark)
        yield from self.dropout.zero(d_scores, mark)
        yield from self.slope(scores, d_scores, share)
        yield from self.dropout.zero(scores, mark)

    def _is_part(self, block: Block) -> bool:
        return block.shape[2] < self.shape[2]

    def _tall(self, *like: Any) -> Space:
        """Space for K or V of one head, if its rows of scores make several blocks."""
        width = max((a.shape[3] for a in like if a is not None), default=0)
        shapes = [(*b.shape[:2], self.shape[3], width) for b in self.blocks if self._is_part(b)]
        return Space(self.dev, shapes, self.q.dtype)

    def _near(self, block: Block, operand: Any, space: Space) -> tuple[Any, list[Step]]:
        """Return K or V of a block; for several blocks its rows are laid side by side by the first of them."""
        array = operand[block.at[:2]]
        if not self._is_part(block):
            return array, []
        near = space(array.shape)
        first = block.at[2].start == 0
        return near, [partial(self.dev.xp.copyto, near, array)] if first else []

    def _products(
        self, block: Block, d_rows: Array, d_scores: Array, wanted: Views, spaces: Sequence[Space]
    ) -> Iterator[Step]:
        d_q, d_k, d_v = wanted
        if d_q is not None:
            rows = d_q[block.at]
            keys, _ = self._near(block, self.k, self.near_k)
            yield from self.product(d_scores, keys, rows)
            yield from scaled(self.dev, rows, self.scale, rows)
        pairs = ((d_k, d_scores, self._queries(block)), (d_v, self.scores(block.shape), d_rows))
        for (gradient, left, right), space in zip(pairs, spaces, strict=False):
            if gradient is not None:
                target = gradient[block.at[:2]]
                yield from self._sum(block, left.swapaxes(-1, -2), right, target, space, spaces[2])

    def _sum(
        self, block: Block, left: Array, right: Array, target: Array, space: Space, more: Space
    ) -> Iterator[Step]:
        """Add a product to the gradient of K or V: summed near, and copied out by the last block of a head."""
        xp = self.dev.xp
        if not self._is_part(block):
            yield from self.product(left, right, target)
            return
        total, term = space(target.shape), more(target.shape)
        if block.at[2].start == 0:
            yield from self.product(left, right, total)
        else:
            yield from self.product(left, right, term)
            yield partial(xp.add, total, term, total)
        if block.at[2].stop == self.shape[2]:
            yield partial(xp.copyto, target, total)


def add_part(dev: Device, target: Array, d_scores: Array, sums: Space) -> list[Step]:
    """Add the gradient of a block of scores to Mask's, summed over what Mask was broadcast along."""
    axes = tuple(i for i, size in enumerate(target.shape) if size == 1)
    total = sums(target.shape)
    return [
        partial(dev.xp.add.reduce, d_scores, axes, None, total, True),
        partial(dev.xp.add, target, total, target),
    ]


def register(on: Callable[[str], Callable[[Any], Any]], attention: Callable[..., Any]) -> None:
    """Register the kernels of both ops that work as ``attention`` does."""
    on("fused_dot_product_attention")(partial(_forward, attention))
    on("fused_dot_product_attention_grad")(partial(_backward, attention))


def results_layout(layout: str) -> str:
    """Return how Out and its gradient lie, given how the operands do."""
    return "bhtd" if layout == "bhtd" else "bthd"


def _forward(attention: Callable[..., Any], dev: Device, a: FusedDotProductAttention) -> list[Step]:
    bound = _bound(attention, dev, a)
    out = heads_first(a.out, results_layout(a.layout))
    return list(bound.forward(out, columns(a.softmax_max), columns(a.softmax_sum)))


def _backward(
    attention: Callable[..., Any], dev: Device, a: FusedDotProductAttentionGrad
) -> list[Step]:
    layout = results_layout(a.layout)
    bound = _bound(attention, dev, a)
    wanted = operands(a.d_q, a.d_k, a.d_v, a.layout)
    d_mask = mask_view(a.d_mask, a.softmax_max.ndim + 1, a.mask_axis)
    if all(d is None for d in (*wanted, d_mask)):
        return []
    results = (heads_first(a.out, layout), columns(a.softmax_max), columns(a.softmax_sum))
    return list(bound.backward(results, heads_first(a.d_out, layout), wanted, d_mask))


def _bound(attention: Callable[..., Any], dev: Device, a: Settings) -> Any:
    views = operands(a.q, a.k, a.v, a.layout)
    mask = mask_view(a.mask, a.softmax_max.ndim + 1, a.mask_axis)
    return attention(dev, views, mask, a)


register(kernel, Attention)
