"""Ops that pick elements along a dimension, from several tensors or of a shard, and add at coordinates."""

from __future__ import annotations

import numpy as np

from . import formula as f
from .indexing import places
from .lod import no_sequences
from .operands import Input, Inputs, Operands, Output, Positive, Unary
from .registry import Op, define, slope
from .rules import product
from .samples import sample
from .shapes import Sized


class IndexSelect(Unary):
    index: Input
    dim: int = 0


def index_select(a: IndexSelect) -> f.Results:
    index = f.checked(a.index, a.x.shape[a.dim], "index")
    return {"out": f.take(a.x, index, a.dim)}


define(
    "index_select",
    IndexSelect,
    Sized(
        "X, Index integers [K] -> Out [*before K *after]",
        "at = front(dim, X)",
        "before, after = X[:at], X[at + 1 :]",
    ),
    formula=index_select,
    samples=(sample("X [5 3], Index 0:5 [6]"), sample("X [2 4 3], Index 0:4 [3]", dim=-2)),
    refuses=(sample("X [5 3], Index 0:5 [6]", dim=2),),
    slope=slope("(x) index d_out", "d_x"),
)


class IndexSample(Unary):
    index: Input


def index_sample(a: IndexSample) -> f.Results:
    """Elements are numbered row after row."""
    rows, width = a.x.shape
    first = f.table(np.arange(rows)[:, None] * width, a.index.dtype)
    return {"out": f.take(a.x.reshape(-1), first + f.checked(a.index, width, "index"))}


define(
    "index_sample",
    IndexSample,
    Sized("X [N C], Index integers [N K] -> Out [N K]"),
    formula=index_sample,
    samples=(sample("X [3 5], Index 0:5 [3 4]"), sample("X [2 1], Index 0:1 [2 3]")),
    slope=slope("(x) index d_out", "d_x"),
)


class Multiplex(Operands):
    ids: Input
    x: Inputs
    out: Output


def multiplex(a: Multiplex) -> f.Results:
    ids = f.checked(a.ids, len(a.x), "index").reshape(-1, *[1] * (a.x[0].ndim - 1))
    chosen = a.x[-1]
    for k, x in enumerate(a.x[:-1]):
        chosen = f.where(f.equal(ids, k), x, chosen)
    return {"out": chosen}


define(
    "multiplex",
    Multiplex,
    Sized(
        "Ids integers [rows 1], X as X [rows columns ...] -> Out as X [rows columns ...]",
        "len(X) > 1; X must be two tensors or more",
    ),
    formula=multiplex,
    lod=no_sequences,
    samples=(
        sample("Ids 0:2 [4 1], X* [4 3] [4 3]"),
        sample("Ids 0:3 [2 1], X* [2 2 2] [2 2 2] [2 2 2]"),
    ),
    slope=slope("ids (x) d_out", "d_x"),
)


class ScatterNdAdd(Unary):
    index: Input
    updates: Input


def scatter_nd_add(a: ScatterNdAdd) -> f.Results:
    """What is named twice gets both."""
    numbers = places(a.out, a.index)  # its gradients know that shape, not always that of X
    updates = a.updates.reshape(*numbers.shape, *a.out.shape[a.index.shape[-1] :])
    added = f.row_sums(numbers, updates, product(a.out.shape[: a.index.shape[-1]]))
    return {"out": a.x + added.reshape(a.out.shape)}


class ScatterNdAddGrad(ScatterNdAdd, reads="index updates"):
    d_out: Input
    d_x: Output | None
    d_updates: Output | None


define(
    "scatter_nd_add",
    ScatterNdAdd,
    Sized(
        "X, Index integers, Updates as X [*updates] -> Out",
        "known(Index[-1]) and Index[-1] <= len(X); "
        "Index's last dimension must be known and not above X's dimensions",
        "updates = Index[:-1] + X[Index[-1] :]",
    ),
    formula=scatter_nd_add,
    in_place={"Out": "X"},
    samples=(
        sample("X [3 4], Index 0:3 [5 2], Updates [5]"),
        sample("X [3 2 2], Index 0:3 [2 4 1], Updates [2 4 2 2]"),
    ),
    slope=Op(
        "scatter_nd_add_grad",
        ScatterNdAddGrad,
        lambda op: {"X@GRAD": op.spec("Out@GRAD"), "Updates@GRAD": op.spec("Updates")},
        views={"X@GRAD": "Out@GRAD"},
        shapes_of=("Updates",),
    ),
)


class ShardIndex(Unary):
    index_num: Positive = 0
    nshards: Positive = 0
    shard_id: int = 0
    ignore_value: int = -1


def shard_index(a: ShardIndex) -> f.Results:
    """An index of the shard, counted from its first; ``ignore_value`` in place of others."""
    size = -(-a.index_num // a.nshards)
    x = f.checked(a.x, a.index_num, "index") - a.shard_id * size
    return {"out": f.where((x >= 0) & (x < size), x, a.ignore_value)}


define(
    "shard_index",
    ShardIndex,
    Sized("X integers -> Out", "0 <= shard_id < nshards; shard_id is none of the shards"),
    formula=shard_index,
    samples=(
        sample("X 0:20 [6 1]", index_num=20, nshards=2, shard_id=1),
        sample("X 0:7 [9]", index_num=7, nshards=3, shard_id=0, ignore_value=-7),
    ),
)
