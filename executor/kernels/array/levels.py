"""Levels that a function of operands computes (``graph/ops/levels.py``): on the host, where they are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....graph.ops.operands import Array
from ....graph.ops.registry import OPS
from ..registry import each_step


def _write(ends: Callable[[Any], Array], a: Any) -> None:
    a.out[...] = ends(a)


for _op in OPS.values():
    if _op.ends is not None:
        each_step(_op.type, on=("numpy",))(partial(_write, _op.ends))
