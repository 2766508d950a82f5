"""Embeddings, gathers and scatters. Gradients add rows up in the order of their positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....graph.ops.embedding import LookupTable, LookupTableGrad, padding_row
from ....graph.ops.formula import outside
from ....graph.ops.indexing import Gather, GatherGrad, GatherNd, GatherNdGrad, Scatter, ScatterGrad
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import divisors, each, ints, longs, read, refusal, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .by_index import Sums, picked, rows_of
from .copies import moved
from .support import cuda


@cuda("lookup_table", "lookup_table_v2")
def lookup(dev: Device, a: LookupTable) -> list[Step]:
    """A row of W for each id."""
    rows, ids = a.out.reshape(a.ids.size, a.w.shape[1]), a.ids.reshape(-1)
    padding = padding_row(a.padding_idx, a.w.shape[0])
    return picked(dev, a.w, ids, rows, padding, "lookup_table")


@cuda("lookup_table_grad", "lookup_table_v2_grad")
def lookup_grad(dev: Device, a: LookupTableGrad) -> list[Step]:
    """Each row of W gets the sum of what its ids got."""
    sums = Sums(dev, a.ids.reshape(-1), a.d_w.shape[0], padding_row(a.padding_idx, a.d_w.shape[0]))
    return [*sums.steps, *sums.into(a.d_w, a.d_out)]


@cuda("gather")
def gather(dev: Device, a: Gather) -> list[Step]:
    """Rows of X."""
    return picked(dev, a.x, a.index.reshape(-1), a.out, op="gather")


@cuda("gather_grad")
def gather_grad(dev: Device, a: GatherGrad) -> list[Step]:
    """Of a row gathered twice the last gradient counts, or (without ``overwrite``) their sum."""
    sums = Sums(dev, a.index.reshape(-1), a.x.shape[0])
    return [*sums.steps, *sums.into(a.d_x, a.d_out, last=a.overwrite)]


def places_of(dev: Device, x: Array, index: Array, op: str) -> tuple[Any, int, list[Step]]:
    """Number the places that coordinates can name; returns their numbers, and how many places there are.

    The place of a coordinate that is refused is -1.
    """
    depth, sizes = index.shape[-1], x.shape[: index.shape[-1]]
    places = dev.scratch((math.prod(index.shape[:-1]),), np.int32)
    if not places.size:
        return places, math.prod(sizes), []
    arguments = [*read(index=index), *written(places=places)]
    arguments += ints(**{f"size{k}": size for k, size in enumerate(sizes)})
    arguments += refusal(dev, *(outside(op, size) for size in sizes)) if depth else []
    lines = "".join(
        f"""
    at = index[(long long)i * {depth} + {k}];
    place = place * size{k} + (int)at;
    if (at < 0 || at >= size{k}) {{
      fits = false;
      refuse(word, noted, assertion{k or ""}, at);
    }}"""
        for k in range(depth)
    )
    body = f"""
    long long at;
    int place = 0;
    bool fits = true;{lines}
    places[i] = fits ? place : -1;"""
    step = each(dev, "places", body, arguments, places.size, ("assert.cuh",), index="int")
    return places, math.prod(sizes), [step]


@cuda("gather_nd")
def gather_nd(dev: Device, a: GatherNd) -> list[Step]:
    """Elements, or slices, of X by their coordinates."""
    if not a.out.size:
        return []
    places, rows, steps = places_of(dev, a.x, a.index, "gather_nd")
    per = a.out.size // places.size
    return [*steps, *picked(dev, a.x.reshape(rows, per), places, a.out.reshape(places.size, per))]


@cuda("gather_nd_grad")
def gather_nd_grad(dev: Device, a: GatherNdGrad) -> list[Step]:
    """Each element gets the sum of what went to its copies."""
    if not a.d_x.size:
        return []
    places, rows, steps = places_of(dev, a.d_x, a.index, "gather_nd_grad")
    sums = Sums(dev, places, rows)
    return [*steps, *sums.steps, *sums.into(a.d_x, a.d_out)]


@cuda("scatter")
def scatter(dev: Device, a: Scatter) -> list[Step]:
    """Of rows named twice the last wins, or (without ``overwrite``) their sum takes the place of X's row."""
    steps = [*rows_of(dev, "scatter", a.ids, a.x.shape[0]), *moved(dev, a.out, a.x)]
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
    per = target.size // target.shape[0]
    body = f"""
    const unsigned k = over(i, per_magic, per_shift);
    const long long row = ids[k];
    if (row >= 0 && row < rows) target[row * per + (i - k * per)] = {c_type(target.dtype)}();"""
    arguments = [*written(target=target), *read(ids=ids), *divisors(per=per)]
    arguments += longs(rows=target.shape[0])
    return each(dev, "clear_rows", body, arguments, ids.size * per, ("index.cuh",))
