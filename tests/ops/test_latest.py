"""What a function of operands returned last is returned again for the same operands, and for no others."""

from __future__ import annotations

from typing import Any

import numpy as np

from rowlock.graph.ops.latest import latest
from rowlock.graph.ops.operands import Array, Input, Operands, Output


class Scaled(Operands):
    x: Input
    factor: float = 1.0


class ScaledOut(Scaled):
    out: Output


def test_the_same_operands_are_computed_once() -> None:
    calls = []

    @latest(Scaled)
    def total(a: Any, others: Array | None) -> float:
        calls.append(a)
        return float(a.x.sum() * a.factor + (0 if others is None else others.sum()))

    x = np.arange(3.0)
    records = [kind.of({"x": x, "factor": 2.0}) for kind in (Scaled, ScaledOut)]
    assert [total(a, None) for a in records] == [6, 6]
    assert len(calls) == 1
    assert total(records[0], np.ones(2)) == 8
    assert total(records[0], np.ones(3)) == 9
    x[0] = 5  # as steps overwrite what they read
    assert total(records[0], np.ones(3)) == 19
    assert total(Scaled.of({"x": x, "factor": 1.0}), np.ones(3)) == 11
    assert total(Scaled.of({"x": x.astype("float32"), "factor": 1.0}), np.ones(3)) == 11
    assert len(calls) == 6
