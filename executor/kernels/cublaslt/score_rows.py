"""What happens to rows of attention's scores between its products: one generated kernel forward, one back.

Legend: B batch, H heads, T queries, S keys; scores of a block are [B, H, T, S] without gaps.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...device.device import Device
from ..cuda.support import enough_blocks, launch, on_boundary
from ..registry import Step

_WARP_ROW = 1024  # elements that a warp holds in registers
_BLOCK_ROW = 8192  # elements that a block of 256 threads holds

_ROWS = """
  constexpr int G = {group}, N = {count}, V = {vector};
  typedef {wide} A;
  typedef {kind} E;
  const int lane = threadIdx.x % G, groups = blockDim.x / G;
  long long r = (long long)blockIdx.x * groups + threadIdx.x / G;
  for (; r < rows; r += (long long)gridDim.x * groups) {{
    const long long begin = r * size;
    A x[N * V], top, total;
    const E* of_mask = mask ? mask + row_at(r, heads, queries, {{mask_b, mask_h, mask_t}}) : mask;
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
_COMMON = ("long long", "rows"), ("int", "size"), ("int", "heads"), ("int", "queries")
_MASK = tuple((("int" if i == "s" else "long long"), f"mask_{i}") for i in "bhts")
_KEPT = tuple(("long long", f"kept_{i}") for i in "bht")


@cache
def _kernel(kind: str, wide: str, size: int, vector: int, *, back: bool) -> CudaKernel:
    group = _group(size)
    count = -(-size // (group * vector))
    reads = (f"const {wide}*", "scores"), (f"const {kind}*", "mask"), ("const bool*", "mark")
    writes: tuple[tuple[str, str], ...] = ((f"{kind}*", "weights"),)
    if back:
        writes += ((f"const {wide}*", "d_weights"), (f"{kind}*", "d_scores"))
    else:
        writes += ((f"{wide}*", "tops"), (f"{wide}*", "totals"), *_KEPT)
    head = _ROWS.format(group=group, count=count, vector=vector, wide=wide, kind=kind)
    return CudaKernel(
        name="attention_rows_back" if back else "attention_rows",
        parameters=(*reads, *writes, *_COMMON, *_MASK, (wide, "factor")),
        body=head + (_BACKWARD if back else _FORWARD),
        includes=("attention.cuh",),
        block=max(group, 256),
    )


def _group(size: int) -> int:
    """Return how many threads share a row."""
    return 32 if size <= _WARP_ROW else 256 if size <= _BLOCK_ROW else 1024


def rounded_up(size: int) -> int:
    """Return the length of rows for which a kernel is made: few lengths, so that few are compiled."""
    return 1 << max(size - 1, 31).bit_length()


def _steps(array: Array) -> list[int]:
    """Return strides in elements, 0 along what is repeated."""
    pairs = zip(array.shape, array.strides, strict=True)
    return [0 if n == 1 else s // array.dtype.itemsize for n, s in pairs]


def _launched(
    dev: Device,
    scores: Array,
    weights: Array,
    mask: Any,
    operands: list[Any],
    factor: float,
    *,
    back: bool,
) -> Step:
    size, rows = scores.shape[3], scores.size // scores.shape[3]
    rows_of = (scores, weights, *(operands[1:3] if back else ()))
    aligned = all(on_boundary(dev, array) for array in rows_of)
    vector = 4 if size % 4 == 0 and aligned else 1
    kernel = _kernel(
        c_type(weights.dtype), c_type(scores.dtype), rounded_up(size), vector, back=back
    )
    group = _group(rounded_up(size))
    strides = [0, 0, 0, 0] if mask is None else _steps(mask)
    arguments = [
        *(scores, mask, *operands[:1], weights, *operands[1:]),
        *(rows, size, scores.shape[1], scores.shape[2], *strides, factor),
    ]
    blocks = enough_blocks(dev, rows * group, kernel.block)
    return launch(dev, kernel, blocks, arguments, kernel.block)


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
    strides = _steps(top)[:3]
    assert strides == _steps(total)[:3]
    return _launched(dev, scores, weights, mask, [mark, top, total, *strides], factor, back=False)


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
    """Return the launch that makes the weights again, and from their gradient that of scores + mask."""
    return _launched(dev, scores, weights, mask, [mark, d_weights, d_scores], factor, back=True)


def wide_type(dtype: Any) -> Any:
    """Return the type in which scores of operands of a type are computed and kept in scratch."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)
