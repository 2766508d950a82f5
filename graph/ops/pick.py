"""Ops that pick elements along a dimension, from several tensors or of a shard, and add at coordinates."""

from __future__ import annotations

import numpy as np

from . import formula as f
from .indexing import places
from .lod import no_sequences
from .operands import Input, Inputs, Operands, Output, Positive, Unary
from .registry import Op, define, slope
from .rules import product
from .samples import integers, normal, sample
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
    samples=(
        sample({"X": normal(5, 3), "Index": integers(6, high=5)}),
        sample({"X": normal(2, 4, 3), "Index": integers(3, high=4)}, dim=-2),
    ),
    refuses=(sample({"X": normal(5, 3), "Index": integers(6, high=5)}, dim=2),),
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
    samples=(
        sample({"X": normal(3, 5), "Index": integers(3, 4, high=5)}),
        sample({"X": normal(2, 1), "Index": integers(2, 3, high=1)}),
    ),
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


_ROWS = [normal(4, 3), normal(4, 3)]

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
        sample({"Ids": integers(4, 1, high=2), "X": _ROWS}),
        sample({"Ids": integers(2, 1, high=3), "X": [normal(2, 2, 2)] * 3}),
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
        sample({"X": normal(3, 4), "Index": integers(5, 2, high=3), "Updates": normal(5)}),
        sample(
            {
                "X": normal(3, 2, 2),
                "Index": integers(2, 4, 1, high=3),
                "Updates": normal(2, 4, 2, 2),
            }
        ),
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
        sample({"X": integers(6, 1, high=20)}, index_num=20, nshards=2, shard_id=1),
        sample({"X": integers(9, high=7)}, index_num=7, nshards=3, shard_id=0, ignore_value=-7),
    ),
)
