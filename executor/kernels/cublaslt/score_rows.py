"""What happens to rows of attention's scores between its products: one generated kernel forward, one back.

Legend: B batch, H heads, T queries, S keys; scores of a block are [B, H, T, S] without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ...codegen import cuda_launches as gpu
from ...codegen.cuda_source import c_type
from ...codegen.dimensions import strides_of
from ...device.device import Device
from ..cuda.support import on_boundary
from ..registry import Step

_WARP_ROW = 1024  # elements that a warp holds in registers
_MARK = np.empty(0, np.bool_)
_BLOCK_ROW = 8192  # elements that a block of 256 threads holds

_ROWS = """
  constexpr int G = {group}, N = {count}, V = {vector};
  typedef {wide} A;
  typedef {kind} E;
  typedef {mask} M;
  const int lane = threadIdx.x % G, groups = blockDim.x / G;
  long long r = (long long)blockIdx.x * groups + threadIdx.x / G;
  for (; r < rows; r += (long long)gridDim.x * groups) {{
    const long long begin = r * size;
    A x[N * V], top, total;
    const M* of_mask = mask ? mask + row_at(r, heads, queries, {{mask_b, mask_h, mask_t}}) : mask;
    load_scores<G, N, V>(x, scores + begin, of_mask, mask_s, size, lane);
    block_soften<G, N, V>(x, size, lane, top, total);
    const bool* of_mark = mark ? mark + begin : mark;
"""
_FORWARD = """
    store_row<G, N, V>(weights + begin, x, of_mark, factor / total, size, lane);
    if (lane == 0) {
      const long long at = row_at(r, heads, queries, {kept_b, kept_h, kept_t});
      tops[at] = top;
      totals[at] = total;
    }
  }
"""
_BACKWARD = """
    A d[N * V], share = 0;
    load_scores<G, N, V>(d, d_weights + begin, (const E*)0, 0, size, lane);
#pragma unroll
    for (int i = 0; i < N * V; i++) {
      const int j = (lane + i / V * G) * V + i % V;
      if (j >= size) continue;
      x[i] /= total;
      d[i] = of_mark && of_mark[j] ? (A)0 : d[i] * factor;
      share += x[i] * d[i];
    }
    share = row_join<G, Total<A>>(share);
#pragma unroll
    for (int i = 0; i < N * V; i++) d[i] = x[i] * (d[i] - share);
    store_row<G, N, V>(weights + begin, x, of_mark, factor, size, lane);
    store_row<G, N, V>(d_scores + begin, d, (const bool*)0, (A)1, size, lane);
  }
"""


def _group(size: int) -> int:
    """Return how many threads share a row."""
    return 32 if size <= _WARP_ROW else 256 if size <= _BLOCK_ROW else 1024


def rounded_up(size: int) -> int:
    """Return the length of rows for which a kernel is made: few lengths, so that few are compiled."""
    return 1 << max(size - 1, 31).bit_length()


def _launched(
    dev: Device,
    scores: Array,
    mask: Any,
    mark: Any,
    weights: Array,
    more: Sequence[gpu.Argument],
    factor: float,
    gradients: Sequence[Array] = (),
) -> Step:
    """Launch the pass forward, or with ``gradients`` the one back; ``more`` are its own parameters."""
    _, heads, queries, size = scores.shape
    rows = scores.size // size
    aligned = all(on_boundary(dev, array) for array in (scores, weights, *gradients))
    vector = 4 if size % 4 == 0 and aligned else 1
    width = rounded_up(size)
    group, block = _group(width), max(_group(width), 256)
    like = weights if mask is None else mask
    kinds = {
        name: c_type(array.dtype)
        for name, array in (("wide", scores), ("kind", weights), ("mask", like))
    }
    head = _ROWS.format(group=group, count=-(-width // (group * vector)), vector=vector, **kinds)
    mask_b, mask_h, mask_t, mask_s = [0] * 4 if mask is None else strides_of(mask)
    arguments = [
        *gpu.read(scores=scores, mask=gpu.Maybe(mask, like), mark=gpu.Maybe(mark, _MARK)),
        *gpu.written(weights=weights),
        *more,
        *gpu.longs(rows=rows, mask_b=mask_b, mask_h=mask_h, mask_t=mask_t),
        *gpu.ints(size=size, heads=heads, queries=queries, mask_s=mask_s),
        *gpu.numbers(scores, factor=factor),
    ]
    name, body = ("attention_rows_back", _BACKWARD) if gradients else ("attention_rows", _FORWARD)
    blocks = gpu.enough_blocks(dev, rows * group, block)
    return gpu.run(dev, name, head + body, arguments, blocks, ("attention.cuh",), block)


def softened(
    dev: Device,
    scores: Array,
    mask: Any,
    mark: Any,
    weights: Array,
    top: Any,
    total: Any,
    factor: float,
) -> Step:
    """Return the launch for weights = softmax(scores + mask) * factor, zero where ``mark`` is set.

    ``top`` and ``total`` [B, H, T, 1] take each row's maximum and the sum of exp(scores - maximum). ``mask``
    broadcasts to scores.
    """
    columns = strides_of(top)[:3]
    assert columns == strides_of(total)[:3]
    strides = {f"kept_{axis}": step for axis, step in zip("bht", columns, strict=True)}
    more = [*gpu.written(tops=top, totals=total), *gpu.longs(**strides)]
    return _launched(dev, scores, mask, mark, weights, more, factor)


def sloped(
    dev: Device,
    scores: Array,
    mask: Any,
    mark: Any,
    weights: Array,
    d_weights: Array,
    d_scores: Array,
    factor: float,
) -> Step:
    """Return the launch that computes the weights again, and the gradient of scores + mask from theirs."""
    more, grads = (
        [*gpu.read(d_weights=d_weights), *gpu.written(d_scores=d_scores)],
        (d_weights, d_scores),
    )
    return _launched(dev, scores, mask, mark, weights, more, factor, grads)


def wide_type(dtype: Any) -> Any:
    """Return the type in which scores of operands of a type are computed and kept in scratch."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)
