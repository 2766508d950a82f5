"""Attention where no library computes all of it: products by cuBLASLt, with one pass over scores between them.

Scores of as many heads as fit in a part of memory stand in scratch, in float32 for 16-bit operands. The
backward pass makes them again, with their sums. Legend as in ``kernels/array/attention.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    blocks,
    part,
    register,
)
from ..cuda.random import CudaDropout
from ..registry import Step
from .product import product
from .score_rows import sloped, softened, wide_type
from .support import copied, cublaslt

_SCORES = 1 << 26  # in scratch at a time
_LEAST_ROWS = 1024  # of one head, where one head's do not fit


class CublasLtAttention(AttentionOperands):
    """Binds the passes of one attention, block by block."""

    drops = CudaDropout

    def __init__(self, dev: Device, views: Views, mask: Any, a: Settings) -> None:
        super().__init__(dev, views, mask, a)
        self.blocks = list(blocks(self.shape, _SCORES, _LEAST_ROWS))
        self.wide = wide_type(self.q.dtype)
        shapes = [block.shape for block in self.blocks]
        self.scores = Space(dev, shapes, self.wide)
        self.weights = Space(dev, shapes, self.q.dtype)
        self.marks = Space(dev, shapes if self.dropout.draws else [], np.bool_)

    def forward(self, out: Array, top: Any, total: Any) -> Iterator[Step]:
        """Yield the calls of all blocks."""
        for block in self.blocks:
            scores, weights = self.scores(block.shape), self.weights(block.shape)
            mark = self._mark(block)
            yield from self._score(block)
            yield from self.dropout.mark(block.start, mark)
            columns = top[block.at], total[block.at]
            masked, factor = self.masked(block), self.dropout.factor
            yield softened(self.dev, scores, masked, mark, weights, *columns, factor)
            yield from product(self.dev, weights, self.v[block.at[:2]], out[block.at])

    def backward(self, results: Views, d_out: Array, wanted: Views, d_mask: Any) -> Iterator[Step]:
        """Yield the calls of all blocks: ``results`` are not read, ``wanted`` are gradients or None."""
        shapes = [block.shape for block in self.blocks]
        d_weights = Space(self.dev, shapes, self.wide)
        d_scores = Space(self.dev, shapes, self.q.dtype)
        sums = _MaskSums(self.dev, d_mask, self.wide, self.blocks)
        totals = [self._total(array) for array in wanted[1:]]
        yield from sums.begin()
        for block in self.blocks:
            yield from self._score(block)
            weights, slopes = self.weights(block.shape), d_scores(block.shape)
            rows, raw, mark = d_out[block.at], d_weights(block.shape), self._mark(block)
            yield from product(self.dev, rows, _turned(self.v[block.at[:2]]), raw)
            yield from self.dropout.mark(block.start, mark)
            operands = self.scores(block.shape), self.masked(block), mark, weights
            yield sloped(self.dev, *operands, raw, slopes, self.dropout.factor)
            yield from sums.add(block, slopes)
            yield from self._products(block, rows, slopes, wanted[0], totals)
        yield from sums.end()
        for gradient, total in zip(wanted[1:], totals, strict=True):
            if gradient is not None and total is not gradient:
                yield from copied(self.dev, total, gradient)

    def _products(
        self, block: Block, rows: Array, slopes: Array, d_q: Any, totals: list[Any]
    ) -> Iterator[Step]:
        at, more = block.at[:2], block.at[2].start > 0
        d_k, d_v = totals
        if d_q is not None:
            yield from product(self.dev, slopes, self.k[at], d_q[block.at], alpha=self.scale)
        if d_k is not None:
            queries = self.q[block.at]
            yield from product(
                self.dev, _turned(slopes), queries, d_k[at], alpha=self.scale, more=more
            )
        if d_v is not None:
            weights = self.weights(block.shape)
            yield from product(self.dev, _turned(weights), rows, d_v[at], more=more)

    def _score(self, block: Block) -> list[Step]:
        keys, scores = _turned(self.k[block.at[:2]]), self.scores(block.shape)
        return product(self.dev, self.q[block.at], keys, scores, alpha=self.scale)

    def _total(self, gradient: Any) -> Any:
        """Return where the gradient of K or V is added up: not in 16 bits, if a head makes several blocks."""
        parts = any(block.shape[2] < self.shape[2] for block in self.blocks)
        if gradient is None or not parts or gradient.dtype == self.wide:
            return gradient
        return self.dev.scratch(gradient.shape, self.wide)

    def _mark(self, block: Block) -> Any:
        return self.marks(block.shape) if self.dropout.draws else None


class _MaskSums:
    """The gradient of Mask: that of the scores, summed over what it was broadcast along."""

    def __init__(self, dev: Device, d_mask: Any, wide: Array, blocks: list[Block]) -> None:
        self.dev, self.d_mask, self.wide = dev, d_mask, wide
        if d_mask is not None:
            self.total = dev.scratch(d_mask.shape, wide)
            self.terms = Space(dev, [part(d_mask, block).shape for block in blocks], wide)

    def begin(self) -> list[Step]:
        """Return the calls to make first."""
        return [] if self.d_mask is None else [partial(self.total.fill, 0)]

    def add(self, block: Block, slopes: Array) -> list[Step]:
        """Return the calls that add a block's."""
        if self.d_mask is None:
            return []
        target = part(self.total, block)
        axes = tuple(i for i, size in enumerate(target.shape) if size == 1)
        term, xp = self.terms(target.shape), self.dev.xp
        return [
            partial(xp.add.reduce, slopes, axes, self.wide, term, True),
            partial(xp.add, target, term, target),
        ]

    def end(self) -> list[Step]:
        """Return the calls to make last."""
        return [] if self.d_mask is None else copied(self.dev, self.total, self.d_mask)


def _turned(array: Array) -> Any:
    return array.swapaxes(-1, -2)


register(cublaslt, CublasLtAttention)
