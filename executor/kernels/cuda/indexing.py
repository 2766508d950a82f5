"""Embeddings, gathers and scatters. Gradients add rows up in the order of their positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....graph.ops.creation import OneHot
from ....graph.ops.embedding import LookupTable, LookupTableGrad
from ....graph.ops.indexing import Gather, GatherGrad, GatherNd, GatherNdGrad, Scatter, ScatterGrad
from ....graph.ops.operands import Array
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...cuda.runtime import Step
from ...device.device import Device
from .by_index import NO_PADDING, Sums, picked
from .copies import divisor, moved
from .support import cuda, enough_blocks, launch


def _padding(padding_idx: int, rows: int) -> int:
    return padding_idx if padding_idx >= NO_PADDING else padding_idx + rows


@cuda("lookup_table", "lookup_table_v2")
def lookup(dev: Device, a: LookupTable) -> list[Step]:
    """A row of W for each id; an id outside the rows gives NaN."""
    rows = a.out.reshape(a.ids.size, a.w.shape[1])
    return picked(dev, a.w, a.ids.reshape(-1), rows, _padding(a.padding_idx, a.w.shape[0]))


@cuda("lookup_table_grad", "lookup_table_v2_grad")
def lookup_grad(dev: Device, a: LookupTableGrad) -> list[Step]:
    """Each row of W gets the sum of what its ids got."""
    if a.d_w is None:
        return []
    sums = Sums(dev, a.ids.reshape(-1), a.d_w.shape[0], _padding(a.padding_idx, a.d_w.shape[0]))
    return [*sums.steps, *sums.into(a.d_w, a.d_out)]


@cuda("gather")
def gather(dev: Device, a: Gather) -> list[Step]:
    """Rows of X."""
    return picked(dev, a.x, a.index.reshape(-1), a.out)


@cuda("gather_grad")
def gather_grad(dev: Device, a: GatherGrad) -> list[Step]:
    """Of a row gathered twice the last gradient counts, or (without ``overwrite``) their sum."""
    if a.d_x is None:
        return []
    sums = Sums(dev, a.index.reshape(-1), a.x.shape[0])
    return [*sums.steps, *sums.into(a.d_x, a.d_out, last=a.overwrite)]


def places_of(dev: Device, x: Array, index: Array) -> tuple[Any, int, list[Step]]:
    """Number the places that coordinates can name; returns their numbers, and how many places there are."""
    depth = index.shape[-1]
    places = dev.scratch((math.prod(index.shape[:-1]),), np.int32)
    kind = c_type(index.dtype)
    parameters = [("int*", "places"), (f"const {kind}*", "index"), ("int", "count")]
    parameters += [("int", f"size{k}") for k in range(depth)]
    lines = "".join(
        f"at = index[(long long)i * {depth} + {k}]; fits &= at >= 0 && at < size{k}; "
        f"place = place * size{k} + (int)at;"
        for k in range(depth)
    )
    body = f"""
  for (int i = thread_index(); i < count; i += thread_count()) {{
    long long at;
    int place = 0;
    bool fits = true;
    {lines}
    places[i] = fits ? place : -1;
  }}"""
    kernel = CudaKernel(f"places_{depth}_{index.itemsize}", tuple(parameters), body)
    sizes = x.shape[:depth]
    words = [places.size, *sizes]
    blocks = enough_blocks(dev, places.size)
    steps = [launch(dev, kernel, blocks, [places, index, *words])] if places.size else []
    return places, math.prod(sizes), steps


@cuda("gather_nd")
def gather_nd(dev: Device, a: GatherNd) -> list[Step]:
    """Elements, or slices, of X by their coordinates."""
    if not a.out.size:
        return []
    places, rows, steps = places_of(dev, a.x, a.index)
    per = a.out.size // places.size
    return [*steps, *picked(dev, a.x.reshape(rows, per), places, a.out.reshape(places.size, per))]


@cuda("gather_nd_grad")
def gather_nd_grad(dev: Device, a: GatherNdGrad) -> list[Step]:
    """Each element gets the sum of what went to its copies."""
    if a.d_x is None or not a.d_x.size:
        return []
    places, rows, steps = places_of(dev, a.d_x, a.index)
    sums = Sums(dev, places, rows)
    return [*steps, *sums.steps, *sums.into(a.d_x, a.d_out)]


@cuda("scatter")
def scatter(dev: Device, a: Scatter) -> list[Step]:
    """Of rows named twice the last wins, or (without ``overwrite``) their sum takes the place of X's row."""
    steps = moved(dev, a.out, a.x)
    sums = Sums(dev, a.ids, a.x.shape[0])
    return [*steps, *sums.steps, *sums.into(a.out, a.updates, keep=True, last=a.overwrite)]


@cuda("scatter_grad")
def scatter_grad(dev: Device, a: ScatterGrad) -> list[Step]:
    """Rows that were replaced pass nothing on to X."""
    steps: list[Step] = []
    if a.d_updates is not None:
        steps += picked(dev, a.d_out, a.ids, a.d_updates)
    if a.d_x is not None:
        steps += moved(dev, a.d_x, a.d_out)
        if a.ids.size and a.d_x.size:
            steps.append(_cleared(dev, a.ids, a.d_x))
    return steps


def _cleared(dev: Device, ids: Any, target: Array) -> Step:
    """Return the call that makes rows zero."""
    kind, per = c_type(target.dtype), target.size // target.shape[0]
    parameters = [(f"{kind}*", "target"), (f"const {c_type(ids.dtype)}*", "ids")]
    parameters += [("unsigned", n) for n in ("count", "per", "magic", "shift")]
    body = f"""
  for (unsigned i = thread_index(); i < count; i += thread_count()) {{
    const unsigned k = over(i, magic, shift);
    const long long row = ids[k];
    if (row >= 0 && row < rows) target[row * per + (i - k * per)] = {kind}();
  }}"""
    parameters.append(("long long", "rows"))
    name = f"clear_rows_{kind}_{ids.itemsize}".replace(" ", "_")
    kernel = CudaKernel(name, tuple(parameters), body, ("index.cuh",))
    words = [ids.size * per, per, *divisor(per), target.shape[0]]
    return launch(dev, kernel, enough_blocks(dev, ids.size * per), [target, ids, *words])


@cuda("one_hot", "one_hot_v2")
def one_hot(dev: Device, a: OneHot) -> list[Step]:
    """1 at the index, 0 elsewhere; an index outside ``depth`` gives a row of NaN (-1 among integers).

    If such indices are allowed, they give a row of 0.
    """
    if not a.out.size:
        return []
    kind = c_type(a.out.dtype)
    odd = "-1" if a.out.dtype.kind in "iu" else "__int_as_float(0x7fc00000)"
    odd = f"element<{kind}>({'0' if a.allow_out_of_range else odd})"
    parameters = [(f"{kind}*", "out"), (f"const {c_type(a.x.dtype)}*", "index")]
    parameters += [("unsigned", n) for n in ("count", "depth", "magic", "shift")]
    body = f"""
  for (unsigned i = thread_index(); i < count; i += thread_count()) {{
    const unsigned k = over(i, magic, shift);
    const long long at = index[k];
    const bool here = at == (long long)(i - k * depth);
    out[i] = at < 0 || at >= depth ? {odd} : element<{kind}>(here ? 1 : 0);
  }}"""
    loose = "_loose" * a.allow_out_of_range
    name = f"one_hot_{kind}_{a.x.itemsize}{loose}".replace(" ", "_")
    kernel = CudaKernel(name, tuple(parameters), body, ("index.cuh",))
    words = [a.out.size, a.depth, *divisor(a.depth)]
    return [launch(dev, kernel, enough_blocks(dev, a.out.size), [a.out, a.x, *words])]
