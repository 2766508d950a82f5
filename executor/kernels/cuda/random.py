"""Kernels that draw the numbers of ``executor/device/philox.py``, from the step and row that the GPU knows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops import expr as e
from ....graph.ops import random
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import longs, run, written
from ...codegen.cuda_loops import bind_cuda
from ...codegen.cuda_random import STREAM_HEAD, Place, bind_draws, stream_arguments
from ...device.device import Device
from ...device.philox import Stream
from ..array.part_dropout import Dropout
from ..array.random import drawn_with
from ..registry import Step
from .support import cuda, floating

_UNIFORM = "out = element<{kind}>(__fadd_rn(__fmul_rn((float)(w0 >> 8) * 0x1p-24f, span), low));"
_UNIFORM_DOUBLE = "out = __dadd_rn(__dmul_rn((double)w0 * 0x1p-32, span), low);"
_NORMAL = "out = element<{kind}>(__dadd_rn(__dmul_rn(normal(w0, w1), deviation), mean));"


def no_diagonal(node: Node) -> bool:
    return floating(node) and not node.attrs["diag_num"]


def drawn_uniform(
    dev: Device, stream: Stream, out: Array, low: float, high: float, sample: int
) -> list[Step]:
    """Return the draw between two numbers; products and sums are rounded one by one, as on the host."""
    place = Place("out", out)
    double = out.dtype == np.float64
    text = _UNIFORM_DOUBLE if double else _UNIFORM.format(kind=place.kind)
    kind = "double" if double else "float"
    numbers = [(f"{kind} span", high - low), (f"{kind} low", low)]
    return bind_draws(dev, stream, [place], text, numbers, sample=sample)


def drawn_normal(
    dev: Device, stream: Stream, out: Array, mean: float, std: float, sample: int
) -> list[Step]:
    """Return the draw from a normal distribution."""
    place = Place("out", out)
    numbers = [("double deviation", std), ("double mean", mean)]
    text = _NORMAL.format(kind=place.kind)
    return bind_draws(dev, stream, [place], text, numbers, draws=2, sample=sample)


@cuda("uniform_random", "uniform_random_at", takes=no_diagonal)
def uniform_random(dev: Device, a: random.UniformRandom) -> list[Step]:
    """Evenly between two numbers."""
    return drawn_uniform(dev, drawn_with(dev, a.seed), a.out, a.min, a.max, 0)


@cuda("gaussian_random", "gaussian_random_at", takes=floating)
def gaussian_random(dev: Device, a: random.GaussianRandom) -> list[Step]:
    """Normally distributed."""
    return drawn_normal(dev, drawn_with(dev, a.seed), a.out, a.mean, a.std, 0)


_TILE = 2048  # draws of a block of threads
_ATTEMPTS = """
  const unsigned long long b = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  const Words radius = philox(b, 0, step, key), angle = philox(b, 1, step, key);
  double drawn[8];
  int good = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    drawn[i] = normal(radius.at[i], angle.at[i]);
    good += fabs(drawn[i]) <= 2.0 && (long long)(8 * b + i) < n;
  }
  __shared__ int held[256];
  held[threadIdx.x] = good;
  for (int by = 1; by < 256; by *= 2) {  // sums of all threads up to each
    __syncthreads();
    const int before = threadIdx.x >= by ? held[threadIdx.x - by] : 0;
    __syncthreads();
    held[threadIdx.x] += before;
  }
"""
_COUNT = "  if (threadIdx.x == 255) counts[blockIdx.x] = held[255];\n"
_KEEP = """
  long long at = counts[blockIdx.x] + held[threadIdx.x] - good;
  for (int i = 0; i < 8; i++)
    if (fabs(drawn[i]) <= 2.0 && (long long)(8 * b + i) < n) {
      if (at < kept) out[at] = element<KIND>(__dadd_rn(__dmul_rn(drawn[i], deviation), mean));
      at++;
    }
"""


@cuda("truncated_gaussian_random", takes=floating)
def truncated_gaussian_random(dev: Device, a: random.TruncatedGaussianRandom) -> list[Step]:
    """The first draws within two deviations: blocks count theirs, then each knows where they go."""
    if not a.out.size:
        return []
    draws = a.out if a.out.flags.c_contiguous else dev.scratch(a.out.shape, a.out.dtype)
    attempts = 2 * a.out.size + 16
    tiles = -(-attempts // _TILE)
    counts = dev.scratch((tiles,), np.int64)
    counted = written(counts=counts)
    arguments = [*stream_arguments(dev, drawn_with(dev, a.seed), attempts, 0), *counted]
    head, include = STREAM_HEAD + _ATTEMPTS, ("philox.cuh",)
    drawn = [*written(out=draws), *longs(kept=a.out.size)]
    drawn += [("double deviation", a.std), ("double mean", a.mean)]
    keep = head + _KEEP.replace("KIND", Place("out", a.out).kind)
    scan = "block_sums_before(counts, tiles);"
    steps = [
        run(dev, "count_draws", head + _COUNT, arguments, tiles, include),
        run(dev, "scan_counts", scan, [*counted, *longs(tiles=tiles)], 1, ("scan.cuh",)),
        run(dev, "keep_draws", keep, [*arguments, *drawn], tiles, include),
    ]
    copies = [] if draws is a.out else bind_cuda(dev, [(e.argument("x"), a.out)], {"x": draws})
    return [*steps, *copies]


@cuda("dropout")
def dropout(dev: Device, a: random.Dropout) -> list[Step]:
    """One pass; a dropped inf or nan is gone, and a mask that is not asked for is not written."""
    keep = 1.0 - a.dropout_prob
    factor = random.factor_of(a.dropout_prob, a.is_test, a.dropout_implementation)
    ones = [] if a.mask is None else [(e.Expr("const", (), 1), a.mask)]
    if a.is_test or keep >= 1.0:
        product = e.argument("x") * factor
        return bind_cuda(dev, [(product, a.out), *ones], {"x": a.x})
    places = [Place("x", a.x, written=False), Place("out", a.out)]
    kind = "double" if a.x.dtype == np.float64 else "float"
    text = f"const bool kept = w0 < limit;\nout = element<{places[1].kind}>(kept ? wide(x) * factor : 0);"
    if a.mask is not None:
        places.append(Place("mask", a.mask))
        text += "\nmask = kept;"
    numbers = [("unsigned limit", _limit(keep)), (f"{kind} factor", factor)]
    stream = Stream(dev, a.seed, per_row=True, every_step=not a.fix_seed)
    return bind_draws(dev, stream, places, text, numbers, sample=math.prod(a.x.shape[1:]))


def _limit(keep: float) -> int:
    """Return the first word that is dropped."""
    return int(np.uint32(keep * 2**32))


class CudaDropout(Dropout):
    """Dropout inside a fused op whose parts are generated kernels."""

    def mark(self, start: int, space: Any) -> list[Step]:
        if not self.draws:
            return []
        numbers = [("unsigned limit", _limit(self.keep))]
        place = Place("space", space)
        how: dict[str, Any] = {"sample": self.row, "start": start}
        return bind_draws(self.dev, self.stream, [place], "space = w0 >= limit;", numbers, **how)

    def zero(self, array: Array, space: Any) -> list[Step]:
        choice = e.where(e.argument("dropped"), 0, e.argument("x"))
        operands = {"dropped": space, "x": array}
        return bind_cuda(self.dev, [(choice, array)], operands) if self.draws else []
