"""Ops that pick elements along a dimension, from several tensors or of a shard, and add at coordinates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...strategies.types import INTEGERS
from . import formula as f
from .indexing import places
from .lod import no_sequences
from .operands import Input, Inputs, Operands, Output, Positive, Unary
from .registry import Inference, Op, Specs, define, slope
from .rules import match, merge_dims, normal_axis, of_shape, one_dtype, product, same
from .samples import integers, normal, sample
from .shapes import Sized


def index_select_shape(op: Inference) -> Mapping[str, Specs]:
    """The layers of X along ``dim`` that Index, a vector, names."""
    x, index = op.spec("X"), op.spec("Index")
    axis = normal_axis(op, op.attr("dim"), len(x.shape))
    op.require(index.dtype in INTEGERS, "Index must hold integers")
    op.require(len(index.shape) == 1, "Index must be a vector")
    return {"Out": of_shape((*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]), x)}


class IndexSelect(Unary):
    index: Input
    dim: int = 0


def index_select(a: IndexSelect) -> f.Results:
    index = f.checked(a.index, a.x.shape[a.dim], "index")
    return {"out": f.take(a.x, index, a.dim)}


define(
    "index_select",
    IndexSelect,
    index_select_shape,
    formula=index_select,
    samples=(
        sample({"X": normal(5, 3), "Index": integers(6, high=5)}),
        sample({"X": normal(2, 4, 3), "Index": integers(3, high=4)}, dim=-2),
    ),
    refuses=(
        sample({"X": normal(5, 3), "Index": integers(6, high=5)}, dim=2),
        sample({"X": normal(5, 3), "Index": integers(6, 1, high=5)}),
        sample({"X": normal(5, 3), "Index": normal(6)}),
    ),
    slope=slope("x index d_out", "d_x"),
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
    slope=slope("x index d_out", "d_x"),
)


def multiplex_shape(op: Inference) -> Mapping[str, Specs]:
    """Row i is that of the operand which Ids names in row i."""
    specs, ids = op.specs("X"), op.spec("Ids")
    op.require(len(specs) > 1, "X must be two tensors or more")
    op.require(ids.dtype in INTEGERS, "Ids must hold integers")
    op.require(len(ids.shape) == 2 and ids.shape[1] in (1, -1), "Ids must be a column")
    shape: tuple[int | None, ...] = specs[0].shape
    for spec in specs[1:]:
        fits = len(spec.shape) == len(shape) > 1 and spec.dtype == specs[0].dtype
        pairs = zip(shape, spec.shape, strict=False)
        shape = tuple(None if a is None else merge_dims(a, b) for a, b in pairs)
        op.require(fits and None not in shape, "operands must have one shape and type")
    known = tuple(d for d in shape if d is not None)
    op.require(merge_dims(known[0], ids.shape[0]) is not None, "Ids must have a row for each of X")
    return {"Out": of_shape(known, specs[0])}


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
    multiplex_shape,
    formula=multiplex,
    lod=no_sequences,
    samples=(
        sample({"Ids": integers(4, 1, high=2), "X": _ROWS}),
        sample({"Ids": integers(2, 1, high=3), "X": [normal(2, 2, 2)] * 3}),
    ),
    refuses=(
        sample({"Ids": integers(4, 1, high=2), "X": [normal(4, 3)]}),
        sample({"Ids": integers(4, 1, high=2), "X": [normal(4, 3), normal(4, 2)]}),
        sample({"Ids": integers(3, 1, high=2), "X": _ROWS}),
    ),
    slope=slope("ids x d_out", "d_x"),
)


def scatter_nd_add_shape(op: Inference) -> Mapping[str, Specs]:
    """X, and at the coordinates in Index the sums of Updates."""
    x, index = op.spec("X"), op.spec("Index")
    op.require(index.dtype in INTEGERS, "Index must hold integers")
    depth = index.shape[-1] if index.shape else -1
    op.require(
        0 <= depth <= len(x.shape),
        f"Index's last dimension must be known and not above {len(x.shape)}",
    )
    one_dtype(op, "X", "Updates")
    match(op, Updates=(*index.shape[:-1], *x.shape[depth:]))
    return {"Out": x}


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
    scatter_nd_add_shape,
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
    refuses=(
        sample({"X": normal(3), "Index": integers(5, 2, high=3), "Updates": normal(5)}),
        sample({"X": normal(3, 4), "Index": integers(5, 1, high=3), "Updates": normal(5)}),
        sample({"X": normal(3, 4), "Index": normal(5, 2), "Updates": normal(5)}),
    ),
    slope=Op(
        "scatter_nd_add_grad",
        ScatterNdAddGrad,
        lambda op: {"X@GRAD": op.spec("Out@GRAD"), "Updates@GRAD": op.spec("Updates")},
        views={"X@GRAD": "Out@GRAD"},
    ),
)


def shard_index_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X, which holds indices below ``index_num``."""
    shards, shard = op.attr("nshards"), op.attr("shard_id")
    op.require(op.spec("X").dtype in INTEGERS, "X must hold integers")
    op.require(0 <= shard < shards, f"shard_id {shard} is not one of {shards}")
    return same()(op)


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
    shard_index_shape,
    formula=shard_index,
    samples=(
        sample({"X": integers(6, 1, high=20)}, index_num=20, nshards=2, shard_id=1),
        sample({"X": integers(9, high=7)}, index_num=7, nshards=3, shard_id=0, ignore_value=-7),
    ),
    refuses=(
        sample({"X": integers(6, 1, high=20)}, index_num=20, nshards=2, shard_id=2),
        sample({"X": normal(6, 1)}, index_num=20, nshards=2, shard_id=0),
    ),
)
