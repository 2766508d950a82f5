"""Expressions of gates (``graph/ops/gates.py``) as array calls on the rows of a step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ....graph.ops import expr as e
from ....graph.ops import gates
from ....graph.ops.operands import Array
from ...codegen.array_schedule import ArraySchedule, schedule

_BY_KEYWORD = ("maximum", "minimum")  # NumPy takes their third argument as another operand


def run(xp: Any, order: ArraySchedule, arrays: Mapping[str, Any]) -> None:
    """Compute the results of a schedule; ``arrays`` holds results, operands and scratch, by name."""
    for fn, operands, out in order.each:
        values = [arrays[x] if isinstance(x, str) else x for x in operands]
        if fn in _BY_KEYWORD:
            getattr(xp, fn)(*values, out=arrays[out])
        else:
            getattr(xp, fn)(*values, arrays[out])


@lru_cache(None)
def _activation(kind: str) -> ArraySchedule:
    return schedule({"x_out": gates.ACTIVATIONS[kind](e.argument("x"))}, ())


@lru_cache(None)
def _slope(kind: str) -> ArraySchedule:
    d, result = e.argument("d"), e.argument("result")
    return schedule({"d_out": gates.times_slope(kind, d, result)}, ())


def activate(xp: Any, kind: str, x: Array) -> None:
    """Replace ``x`` by its activation of a kind."""
    if kind != "identity":
        run(xp, _activation(kind), {"x": x, "x_out": x})


def times_slope(xp: Any, kind: str, result: Array, d: Array, work: Array) -> None:
    """Multiply a gradient by the slope of an activation that returned ``result``; ``work`` is memory."""
    if kind != "identity":
        run(xp, _slope(kind), {"d": d, "d_out": d, "result": result, "scratch0": work})
