"""Ops that join the replicas. They are nodes like any other; the executor runs them on its group."""

from __future__ import annotations

from collections.abc import Mapping

from .registry import Inference, Op, Specs, define


def all_reduce_shape(op: Inference) -> Mapping[str, Specs]:
    """Every sum is like its summand; one bucket holds one dtype."""
    specs = op.specs("X")
    op.require(len({spec.dtype for spec in specs}) == 1, "a bucket holds gradients of one dtype")
    return {"Out": specs}


fused_all_reduce = define(
    Op(
        type="fused_all_reduce",
        inputs=("X*",),
        outputs=("Out*",),
        attrs={"bucket": 0},
        shape=all_reduce_shape,
        in_place={"Out": "X"},
    )
)
