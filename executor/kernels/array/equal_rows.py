"""Rows that are named by the same number, brought together: a sum for each then takes one pass."""

from __future__ import annotations

from typing import Any

from ....graph.ops.operands import Array


def grouped(xp: Any, index: Array) -> tuple[Array, Array, Array]:
    """Return an order that brings equal numbers together, the different numbers, and where each begins in it.

    Equal ones stay in the order of their places, so sums always have one order. ``add.at`` takes ten times as
    long as ``add.reduceat`` over groups.
    """
    order = xp.argsort(index, kind="stable")
    ordered = index[order]
    starts = xp.flatnonzero(xp.concatenate((xp.ones(1, bool), ordered[1:] != ordered[:-1])))
    return order, ordered[starts], starts
