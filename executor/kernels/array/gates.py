"""Activations of gates, and their slopes told from what they returned."""

from __future__ import annotations

from typing import Any

from ....graph.ops.operands import Array


def activate(xp: Any, kind: str, x: Array) -> None:
    """Replace ``x`` by its sigmoid, tanh, relu or itself (identity)."""
    if kind == "sigmoid":  # tanh, which cannot overflow, of half
        xp.multiply(x, 0.5, x)
        xp.tanh(x, x)
        xp.multiply(x, 0.5, x)
        xp.add(x, 0.5, x)
    elif kind == "tanh":
        xp.tanh(x, x)
    elif kind == "relu":
        xp.maximum(x, 0, out=x)


def times_slope(xp: Any, kind: str, result: Array, d: Array, work: Array) -> None:
    """Multiply a gradient by the slope of an activation that returned ``result``; ``work`` is memory."""
    if kind == "sigmoid":
        xp.subtract(1, result, work)
        xp.multiply(work, result, work)
        xp.multiply(d, work, d)
    elif kind == "tanh":
        xp.multiply(result, result, work)
        xp.subtract(1, work, work)
        xp.multiply(d, work, d)
    elif kind == "relu":
        xp.multiply(d, result > 0, d)
