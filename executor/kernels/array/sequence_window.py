"""Kernels that pick from windows of sequences. They compute on the host: their loops follow offsets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ....graph.ops import sequence_window as ops
from ....graph.ops.operands import Array
from ....strategies.errors import SequenceError
from ..registry import each_step


def _pairs(a: ops.SequenceTopKAvgPooling, values: Array) -> Iterator[tuple[Array, slice]]:
    """Return the values of each pair of sequences, [channels, rows, columns], and where its rows are.

    Raises:
        SequenceError: a sequence of X has another length.
    """
    ends = (pairwise(lod[-1]) for lod in (a.x_lod, a.row_lod, a.column_lod))
    for i, ((begin, end), (top, bottom), (left, right)) in enumerate(zip(*ends, strict=True)):
        shape = (a.channel_num, bottom - top, right - left)
        if end - begin != np.prod(shape):
            raise SequenceError(
                f"sequence_topk_avg_pooling: sequence {i} of X has {end - begin} numbers, not "
                f"{' * '.join(map(str, shape))} (channels, rows, columns)"
            )
        yield values.reshape(-1)[begin:end].reshape(shape), slice(top, bottom)


@each_step("sequence_topk_avg_pooling", on=("numpy",))
def topk(a: ops.SequenceTopKAvgPooling) -> None:
    """The largest of each row, added up and divided by how many there should be."""
    rows, most, counts = a.row.shape[0], a.topks[-1], np.array(a.topks)
    place = a.pos.reshape(rows, a.channel_num, most)
    place.fill(-1)
    for values, own in _pairs(a, a.x):
        best = np.argsort(-values, axis=2, kind="stable")[..., :most].transpose(1, 0, 2)
        place[own, :, : best.shape[2]] = best
        largest = np.zeros((*best.shape[:2], most + 1), values.dtype)
        largest[..., 1 : best.shape[2] + 1] = np.take_along_axis(values.transpose(1, 0, 2), best, 2)
        means = largest.cumsum(2)[..., counts] / counts
        a.out[own] = means.reshape(len(best), a.out.shape[1])


@each_step("sequence_topk_avg_pooling_grad", on=("numpy",))
def topk_grad(a: ops.SequenceTopKAvgPoolingGrad) -> None:
    """Each of the largest gets the gradients of the sums that it is part of."""
    rows, most, counts = a.row.shape[0], a.topks[-1], np.array(a.topks)
    shares = (np.arange(most) < counts[:, None]) / counts[:, None]
    place = a.pos.reshape(rows, a.channel_num, most)
    d_out = a.d_out.reshape(rows, a.channel_num, counts.size)
    assert a.d_x is not None
    a.d_x.fill(0)
    for d_values, own in _pairs(a, a.d_x):
        count = min(most, d_values.shape[2])
        d_best = (d_out[own] @ shares.astype(d_out.dtype))[..., :count].transpose(1, 0, 2)
        best = place[own, :, :count].transpose(1, 0, 2).astype(np.int64)
        np.put_along_axis(d_values, best, d_best, 2)
