"""Embeddings, gathers and scatters. Gradients add rows up in the order of their positions."""

from __future__ import annotations

from typing import Any

from ....graph.ops.embedding import LookupTable, LookupTableGrad, padding_row
from ....graph.ops.indexing import Gather, GatherGrad, Scatter, ScatterGrad
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import divisors, each, longs, read, written
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
