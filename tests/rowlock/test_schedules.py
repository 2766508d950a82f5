"""Learning-rate schedules give the rates of Paddle 1.8.5, from the same ops where nothing branches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import rowlock.fluid as fluid
from tests.reference import schedules

REFERENCE = Path(__file__).parents[1] / "reference"
# Paddle has conditional blocks there; here comparisons select.
BRANCHES = {"polynomial_cycle", "piecewise", "warmup", "warmup_cosine", "warmup_piecewise"}


def test_rates_are_paddles() -> None:
    table = json.loads((REFERENCE / "schedules.json").read_text())
    built = schedules.schedules(fluid.layers)
    # noam counts from 1, and a program has one counter.
    first = schedules.rates(fluid, [built.pop("noam")])
    others = schedules.rates(fluid, list(built.values()))
    assert set(table) == {"noam", *built}
    for name, (ops, rates) in zip(["noam", *built], first + others, strict=True):
        their_ops, bits = table[name]
        if name not in BRANCHES:
            assert ops == their_ops[-len(ops) :], name
        np.testing.assert_array_equal(rates.astype("float32").view("int32"), bits, name)
