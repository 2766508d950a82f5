"""RMSProp is Paddle 1.8.5's: slots, names of accumulators, and numbers of five steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
import rowlock.optimizer
from rowlock.strategies.build import BuildStrategy

PAGE = json.loads((Path(__file__).parents[1] / "reference" / "rmsprop.json").read_text())
CASES = sorted(PAGE["cases"])
FEED = {name: np.array(value, "float32") for name, value in PAGE["feed"].items()}


def built(optimizer: Any) -> tuple[fluid.Program, fluid.Program, fluid.Variable]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, 3, act="tanh", param_attr="w1", bias_attr="b1")
        out = fluid.layers.fc(hidden, 1, param_attr="w2", bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        optimizer.minimize(loss)
    return main, startup, loss


def check(case: str, optimizer: Any, start: int = 0, **build: Any) -> None:
    """Train from Paddle's state before a step, and hold every persistable to Paddle's after each."""
    main, startup, loss = built(optimizer)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    program: Any = main
    if build:
        strategy = BuildStrategy(**build)
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name, build_strategy=strategy, places=[fluid.CPUPlace()] * 2
        )
    with fluid.scope_guard(scope):
        exe.run(startup)
        steps = PAGE["cases"][case]
        for name, value in (steps[start - 1] if start else PAGE["initial"]).items():
            scope.find_var(name).get_tensor().set(np.array(value, "float32"), fluid.CPUPlace())
        for expected in steps[start:]:
            exe.run(program, feed=FEED, fetch_list=[loss])
            for name, value in expected.items():
                found = np.array(scope.find_var(name).get_tensor())
                np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_five_steps_are_paddles(case: str) -> None:
    check(case, fluid.optimizer.RMSProp(0.05, **PAGE["options"][case]))


@pytest.mark.parametrize("case", CASES)
def test_training_goes_on_from_paddles_state(case: str) -> None:
    check(case, fluid.optimizer.RMSPropOptimizer(0.05, **PAGE["options"][case]), start=3)


@pytest.mark.parametrize("case", CASES)
def test_two_places_in_one_update_agree(case: str, threads: None) -> None:
    optimizer = rowlock.optimizer.RMSProp(0.05, **PAGE["options"][case])
    check(case, optimizer, fuse_all_optimizer_ops=True)


def test_slots_and_names_of_accumulators_are_paddles() -> None:
    main, _, _ = built(fluid.optimizer.RMSProp(0.05))
    found = {}
    for op in main.global_block().ops:
        if op.type == "rmsprop":
            names = {
                **{s: op.input(s) for s in op.input_names},
                **{s: op.output(s) for s in op.output_names},
            }
            found[op.input("Param")[0]] = names
    assert found == PAGE["ops"]


@pytest.mark.parametrize("argument", ["rho", "epsilon", "momentum"])
def test_rmsprop_takes_numbers(argument: str) -> None:
    with pytest.raises(ValueError, match=f"RMSProp: {argument} must be a number, got None"):
        fluid.optimizer.RMSProp(0.1, **{argument: None})
