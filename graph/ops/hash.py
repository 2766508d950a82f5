"""Hashes of rows of integers: xxHash64 (Collet, the algorithm's specification 0.1.1), modulo a number."""

from __future__ import annotations

from ...strategies.types import VarType
from .lod import shared
from .operands import Positive, Unary
from .registry import define
from .samples import integers, sample
from .shapes import Sized


class Hash(Unary):
    num_hash: Positive = 1
    mod_by: Positive = 100000


define(
    "hash",
    Hash,
    Sized(
        "X [rows columns] -> Out [rows num_hash 1]",
        lambda op: op.require(
            op.spec("X").dtype in (VarType.INT32, VarType.INT64), "X must hold int32 or int64"
        ),
    ),
    lod=shared,
    samples=(
        sample("X -9:99 [3 2]", num_hash=3, mod_by=1000),
        sample({"X": integers(4, 9, low=0, high=2**40)}),
    ),
)
