"""Sorting along a dimension: each element's place is the number of those before it."""

from __future__ import annotations

import math

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.indexing import Argsort, ArgsortGrad
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import Maybe, each, ints, read, run, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .support import cuda

_PLACES = np.empty(0, np.int64)
_LONGEST = 4096  # elements; all are compared with all


def _short(node: Node) -> bool:
    """Tell whether lines have a known length so short that comparing all with all is faster."""
    (x,) = (v for v in node.inputs["X"] if v is not None)
    return 0 <= x.spec.shape[node.attrs["axis"]] <= _LONGEST


@cuda("argsort", takes=_short)
def argsort(dev: Device, a: Argsort) -> list[Step]:
    """Sort stably, NaN last; one block sorts a line."""
    if not a.x.size:
        return []
    kind, length = c_type(a.x.dtype), a.x.shape[a.axis]
    inner = _inner(a.x, a.axis)
    first, second = ("there", "here") if a.descending else ("here", "there")
    body = f"""
  __shared__ {kind} line[{_LONGEST}];
  const long long at = (long long)(blockIdx.x / inner) * length * inner + blockIdx.x % inner;
  for (int i = threadIdx.x; i < length; i += blockDim.x) line[i] = x[at + (long long)i * inner];
  __syncthreads();
  for (int i = threadIdx.x; i < length; i += blockDim.x) {{
    const auto here = wide(line[i]);
    int before = 0;
    for (int k = 0; k < length; k++) {{
      const auto there = wide(line[k]);
      const bool less = {second} < {first} || ({first} != {first} && {second} == {second});
      const bool same = there == here || (there != there && here != here);
      before += less || (same && k < i);
    }}
    if (out) out[at + (long long)before * inner] = line[i];
    if (indices) indices[at + (long long)before * inner] = i;
  }}"""
    arguments = [*read(x=a.x), *written(out=Maybe(a.out, a.x), indices=Maybe(a.indices, _PLACES))]
    arguments += ints(length=length, inner=inner)
    return [run(dev, "argsort", body, arguments, a.x.size // length)]


@cuda("argsort_grad")
def argsort_grad(dev: Device, a: ArgsortGrad) -> list[Step]:
    """Each element's gradient goes back to where the element stood."""
    if not a.d_x.size:
        return []
    length, inner = a.d_x.shape[a.axis], _inner(a.d_x, a.axis)
    body = f"""
    const long long line = i / {length * inner} * {length * inner} + i % {inner};
    d_x[line + indices[i] * {inner}] = d_out[i];"""
    arguments = [*written(d_x=a.d_x), *read(d_out=a.d_out, indices=a.indices)]
    return [each(dev, "argsort_grad", body, arguments, a.d_x.size, index="long long")]


def _inner(x: Array, axis: int) -> int:
    """Return how far apart the elements along a dimension are."""
    return math.prod(x.shape[axis % x.ndim + 1 :])
