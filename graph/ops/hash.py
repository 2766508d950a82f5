"""Hashes of rows of integers: xxHash64 (Collet, the algorithm's specification 0.1.1), modulo a number."""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import VarType
from .lod import shared
from .operands import Unary
from .registry import Inference, Spec, Specs, define
from .samples import integers, normal, sample


class Hash(Unary):
    num_hash: int = 1
    mod_by: int = 100000


def _shape(op: Inference) -> Mapping[str, Specs]:
    """[rows, columns] to [rows, num_hash, 1], of X's type, to which hashes are cut."""
    x = op.spec("X")
    op.require(len(x.shape) == 2, "X must be [rows, columns]")
    op.require(x.dtype in (VarType.INT32, VarType.INT64), "X must hold int32 or int64")
    count, limit = op.attr("num_hash"), op.attr("mod_by")
    op.require(count > 0, f"num_hash must be above 0, got {count}")
    op.require(limit > 0, f"mod_by must be above 0, got {limit}")
    return {"Out": Spec((x.shape[0], count, 1), x.dtype)}


define(
    "hash",
    Hash,
    _shape,
    lod=shared,
    samples=(
        sample({"X": integers(3, 2, low=-9, high=99)}, num_hash=3, mod_by=1000),
        sample({"X": integers(4, 9, low=0, high=2**40)}),
    ),
    refuses=(
        sample({"X": normal(3, 2)}),
        sample({"X": integers(3, high=9)}),
        sample({"X": integers(3, 2, high=9)}, mod_by=0),
    ),
)
