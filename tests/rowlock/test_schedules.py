"""Learning-rate schedules give the rates of Paddle 1.8.5, from the same ops where nothing branches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rowlock.fluid as fluid
from tests.programs import own_programs
from tests.reference import schedules

REFERENCE = Path(__file__).parents[1] / "reference"
# Paddle has conditional blocks there; here comparisons select.
BRANCHES = {"polynomial_cycle", "piecewise", "warmup", "warmup_cosine", "warmup_piecewise"}


def test_rates_are_paddles() -> None:
    table = json.loads((REFERENCE / "schedules.json").read_text())
    lines = schedules.schedules(fluid.layers)
    # noam counts from 1, and a program has one counter.
    first = schedules.rates(fluid, [lines.pop("noam")])
    others = schedules.rates(fluid, list(lines.values()))
    assert set(table) == {"noam", *lines}
    for name, (ops, rates) in zip(["noam", *lines], first + others, strict=True):
        their_ops, bits = table[name]
        if name not in BRANCHES:
            assert ops == their_ops[-len(ops) :], name
        np.testing.assert_array_equal(rates.astype("float32").view("int32"), bits, name)


def test_rates_of_branches_are_saved_under_paddles_names() -> None:
    with own_programs() as (main, startup):
        steps = fluid.layers.piecewise_decay([1, 2], [0.5, 0.25, 0.125])
        fluid.layers.linear_lr_warmup(steps, 1, 0.0, 0.1)
        other = fluid.layers.piecewise_decay([1], [8.0, 4.0])
    names = sorted(v.name for v in main.list_vars() if v.persistable)
    assert names == [
        "@LR_DECAY_COUNTER@",
        "learning_rate",
        "learning_rate_0",
        "learning_rate_warmup",
    ]
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for _ in range(2):
            exe.run(main)
        values = [fluid.global_scope().find_var(name).get_tensor() for name in names[1:]]
        assert [float(np.array(value)[0]) for value in values] == [0.25, 4.0, 0.25]
    assert other.name == "learning_rate_0"


def test_boundaries_and_values_must_match() -> None:
    with pytest.raises(ValueError, match="one value more than boundaries, got 2 and 2"):
        fluid.layers.piecewise_decay([1, 2], [0.5, 0.25])
