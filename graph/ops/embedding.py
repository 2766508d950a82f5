"""Embedding lookups. ``is_sparse`` is accepted: the gradient is dense and has the same numbers.

``is_distributed`` and ``remote_prefetch`` matter to parameter servers only; without endpoints rows come from W.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...strategies.types import INTEGERS
from .registry import Grad, Inference, Op, Specs, define
from .rules import grads_like, of_shape
from .samples import integers, normal, sample

_ATTRS: dict[str, Any] = {
    "is_sparse": False,
    "is_distributed": False,
    "padding_idx": -1,
    "remote_prefetch": False,
    "trainer_id": 0,
    "height_sections": [],
    "epmap": [],
    "table_names": [],
}


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


for _name, _last in (("lookup_table", (1,)), ("lookup_table_v2", ())):
    _extra = {"grad_inplace": False} if _name == "lookup_table" else {}
    define(
        Op(
            type=_name,
            inputs=("W", "Ids"),
            outputs=("Out",),
            attrs={**_ATTRS, **_extra},
            shape=lookup_shape,
            grad=Grad(f"{_name}_grad", ("W", "Ids", "Out@GRAD"), ("W@GRAD",)),
            samples=(
                sample({"W": normal(7, 3), "Ids": integers(4, 2, *_last, high=7)}),
                sample({"W": normal(7, 3), "Ids": integers(9, *_last, high=7)}, padding_idx=2),
            ),
            refuses=(
                sample({"W": normal(7, 3), "Ids": normal(4, 2, *_last)}),
                sample({"W": normal(7, 3), "Ids": integers(4, *_last, high=7)}, epmap=["ps:1"]),
            ),
        )
    )
    define(
        Op(
            type=f"{_name}_grad",
            inputs=("W", "Ids", "Out@GRAD"),
            outputs=("W@GRAD",),
            attrs={**_ATTRS, **_extra},
            shape=grads_like("W"),
        )
    )
