"""Ops by which a value changes where or in which order its elements lie."""

from __future__ import annotations

from .operands import Unary
from .registry import define
from .rules import same
from .samples import sample

transfer_layout = define("transfer_layout", Unary, same("X"), samples=(sample("X [2 3 4 5]"),))


class Memcpy(Unary):
    dst_place_type: int = 0


memcpy = define("memcpy", Memcpy, same("X"), samples=(sample("X [2 3]", dst_place_type=1),))
