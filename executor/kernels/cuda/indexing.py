"""Embeddings, gathers and scatters. Gradients add rows up in the order of their positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
def lookup(dev: Device, w: Any, ids: Any, out: Any, *, padding_idx: int) -> list[Step]:
    """A row of W for each id; an id outside the rows gives NaN."""
    rows = out.reshape(ids.size, w.shape[1])
    return picked(dev, w, ids.reshape(-1), rows, _padding(padding_idx, w.shape[0]))


@cuda("lookup_table_grad", "lookup_table_v2_grad")
def lookup_grad(dev: Device, ids: Any, d_out: Any, d_w: Any, *, padding_idx: int) -> list[Step]:
    """Each row of W gets the sum of what its ids got."""
    if d_w is None:
        return []
    sums = Sums(dev, ids.reshape(-1), d_w.shape[0], _padding(padding_idx, d_w.shape[0]))
    return [*sums.steps, *sums.into(d_w, d_out)]


@cuda("gather")
def gather(dev: Device, x: Any, index: Any, out: Any) -> list[Step]:
    """Rows of X."""
    return picked(dev, x, index.reshape(-1), out)


@cuda("gather_grad")
def gather_grad(
    dev: Device, x: Any, index: Any, d_out: Any, d_x: Any, *, overwrite: bool
) -> list[Step]:
    """Of a row gathered twice the last gradient counts, or (without ``overwrite``) their sum."""
    if d_x is None:
        return []
    sums = Sums(dev, index.reshape(-1), x.shape[0])
    return [*sums.steps, *sums.into(d_x, d_out, last=overwrite)]


def _places(dev: Device, x: Any, index: Any) -> tuple[Any, int, list[Step]]:
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
def gather_nd(dev: Device, x: Any, index: Any, out: Any) -> list[Step]:
    """Elements, or slices, of X by their coordinates."""
    if not out.size:
        return []
    places, rows, steps = _places(dev, x, index)
    per = out.size // places.size
    return [*steps, *picked(dev, x.reshape(rows, per), places, out.reshape(places.size, per))]


@cuda("gather_nd_grad")
def gather_nd_grad(dev: Device, x: Any, index: Any, d_out: Any, d_x: Any) -> list[Step]:
    """Each element gets the sum of what went to its copies."""
    if d_x is None or not d_x.size:
        return []
    places, rows, steps = _places(dev, d_x, index)
    sums = Sums(dev, places, rows)
    return [*steps, *sums.steps, *sums.into(d_x, d_out)]


@cuda("scatter")
def scatter(
    dev: Device, x: Any, ids: Any, updates: Any, out: Any, *, overwrite: bool
) -> list[Step]:
    """Of rows named twice the last wins, or (without ``overwrite``) their sum takes the place of X's row."""
    steps = moved(dev, out, x)
    sums = Sums(dev, ids, x.shape[0])
    return [*steps, *sums.steps, *sums.into(out, updates, keep=True, last=overwrite)]


@cuda("scatter_grad")
def scatter_grad(dev: Device, ids: Any, d_out: Any, d_x: Any, d_updates: Any) -> list[Step]:
    """Rows that were replaced pass nothing on to X."""
    steps: list[Step] = []
    if d_updates is not None:
        steps += picked(dev, d_out, ids, d_updates)
    if d_x is not None:
        steps += moved(dev, d_x, d_out)
        if ids.size and d_x.size:
            steps.append(_cleared(dev, ids, d_x))
    return steps


def _cleared(dev: Device, ids: Any, target: Any) -> Step:
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
def one_hot(dev: Device, x: Any, out: Any, *, depth: int, allow_out_of_range: bool) -> list[Step]:
    """1 at the index, 0 elsewhere; an index outside ``depth`` gives a row of NaN (-1 among integers).

    If such indices are allowed, they give a row of 0.
    """
    if not out.size:
        return []
    kind = c_type(out.dtype)
    odd = "-1" if out.dtype.kind in "iu" else "__int_as_float(0x7fc00000)"
    odd = f"element<{kind}>({'0' if allow_out_of_range else odd})"
    parameters = [(f"{kind}*", "out"), (f"const {c_type(x.dtype)}*", "index")]
    parameters += [("unsigned", n) for n in ("count", "depth", "magic", "shift")]
    body = f"""
  for (unsigned i = thread_index(); i < count; i += thread_count()) {{
    const unsigned k = over(i, magic, shift);
    const long long at = index[k];
    const bool here = at == (long long)(i - k * depth);
    out[i] = at < 0 || at >= depth ? {odd} : element<{kind}>(here ? 1 : 0);
  }}"""
    loose = "_loose" * allow_out_of_range
    name = f"one_hot_{kind}_{x.itemsize}{loose}".replace(" ", "_")
    kernel = CudaKernel(name, tuple(parameters), body, ("index.cuh",))
    words = [out.size, depth, *divisor(depth)]
    return [launch(dev, kernel, enough_blocks(dev, out.size), [out, x, *words])]
