"""Embedding lookups. ``is_sparse`` is accepted: the gradient is dense and has the same numbers.

``is_distributed`` and ``remote_prefetch`` matter to parameter servers only; without endpoints rows come from W.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...strategies.types import INTEGERS
from .operands import Input, Operands, Output
from .registry import Inference, Op, Specs, define
from .rules import of_shape
from .samples import integers, normal, sample


class Lookup(Operands):
    w: Input
    ids: Input
    is_sparse: bool = False
    is_distributed: bool = False
    padding_idx: int = -1
    remote_prefetch: bool = False
    trainer_id: int = 0
    height_sections: Sequence[int] = []
    epmap: Sequence[str] = []
    table_names: Sequence[str] = []


class LookupTable(Lookup):
    out: Output


class LookupTableGrad(Lookup):
    d_out: Input
    d_w: Output | None


class FirstLookupTable(LookupTable):
    grad_inplace: bool = False


class FirstLookupTableGrad(LookupTableGrad):
    grad_inplace: bool = False


def lookup_shape(op: Inference) -> Mapping[str, Specs]:
    """A row of W for every id; the first form of the op drops the ids' last dimension, which is 1."""
    w, ids = op.spec("W"), op.spec("Ids")
    op.require(len(w.shape) == 2, "W must be a matrix")
    op.require(ids.dtype in INTEGERS, "Ids must be integers")
    op.require(not op.attr("epmap"), "rows on parameter servers are not built")
    shape = ids.shape
    if op.op.type == "lookup_table":
        op.require(len(shape) > 1 and shape[-1] in (1, -1), "the last dimension of Ids must be 1")
        shape = shape[:-1]
    return {"Out": of_shape((*shape, w.shape[1]), w)}


for _name, _last, _record, _gradient in (
    ("lookup_table", (1,), FirstLookupTable, FirstLookupTableGrad),
    ("lookup_table_v2", (), LookupTable, LookupTableGrad),
):
    define(
        Op(
            type=_name,
            linear=("W",),
            record=_record,
            shape=lookup_shape,
            samples=(
                sample({"W": normal(7, 3), "Ids": integers(4, 2, *_last, high=7)}),
                sample({"W": normal(7, 3), "Ids": integers(9, *_last, high=7)}, padding_idx=2),
            ),
            refuses=(
                sample({"W": normal(7, 3), "Ids": normal(4, 2, *_last)}),
                sample({"W": normal(7, 3), "Ids": integers(4, *_last, high=7)}, epmap=["ps:1"]),
            ),
        ),
        Op(type=f"{_name}_grad", record=_gradient),
    )
