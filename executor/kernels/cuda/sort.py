"""Sorting along a dimension: each element's place is the number of those before it."""

from __future__ import annotations

import math

from ....graph.ir.graph import Node
from ....graph.ops.indexing import Argsort, ArgsortGrad
from ....graph.ops.operands import Array
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...cuda.runtime import Step
from ...device.device import Device
from .support import cuda, enough_blocks, launch

_LONGEST = 4096  # elements; all are compared with all


def _short(node: Node) -> bool:
    """Tell whether what is sorted has a known length that pays for comparing all with all."""
    (x,) = (v for v in node.inputs["X"] if v is not None)
    return 0 <= x.spec.shape[node.attrs["axis"]] <= _LONGEST


@cuda("argsort", takes=_short)
def argsort(dev: Device, a: Argsort) -> list[Step]:
    """Equal elements keep their order; what is not a number counts as the largest. One block a line."""
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
    parameters = [(f"const {kind}*", "x"), (f"{kind}*", "out"), ("long long*", "indices")]
    parameters += [("int", "length"), ("int", "inner")]
    name = f"argsort_{kind}_{'down' if a.descending else 'up'}".replace(" ", "_")
    kernel = CudaKernel(name, tuple(parameters), body)
    return [launch(dev, kernel, a.x.size // length, [a.x, a.out, a.indices, length, inner])]


@cuda("argsort_grad")
def argsort_grad(dev: Device, a: ArgsortGrad) -> list[Step]:
    """Each element's gradient goes back to where the element stood."""
    if not a.d_x.size:
        return []
    kind, length, inner = c_type(a.d_x.dtype), a.d_x.shape[a.axis], _inner(a.d_x, a.axis)
    parameters = [(f"{kind}*", "d_x"), (f"const {kind}*", "d_out")]
    parameters += [("const long long*", "indices"), ("long long", "count")]
    body = f"""
  for (long long i = thread_index(); i < count; i += thread_count()) {{
    const long long line = i / {length * inner} * {length * inner} + i % {inner};
    d_x[line + indices[i] * {inner}] = d_out[i];
  }}"""
    kernel = CudaKernel(f"argsort_grad_{kind}".replace(" ", "_"), tuple(parameters), body)
    arguments = [a.d_x, a.d_out, a.indices, a.d_x.size]
    return [launch(dev, kernel, enough_blocks(dev, a.d_x.size), arguments)]


def _inner(x: Array, axis: int) -> int:
    """Return how far apart the elements along a dimension are."""
    return math.prod(x.shape[axis % x.ndim + 1 :])
