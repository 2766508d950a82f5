"""Every method is Paddle's: slots, names of accumulators, and numbers of twelve steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
import rowlock.optimizer
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import ExecutionError
from tests.conftest import one_in

FILES = Path(__file__).parents[1] / "reference"
PAGES = {v: json.loads((FILES / f"optimizers{v}.json").read_text()) for v in ("", "_2x")}
CASES = [(version, case) for version, page in PAGES.items() for case in page["cases"]]
FEED = {name: np.array(value, "float32") for name, value in PAGES[""]["feed"].items()}
Reduce = BuildStrategy.ReduceStrategy.Reduce
# Slots of Paddle 2.x in other words, or for tensors that are attributes here.
OTHER_SLOTS = {"nadam", "radam", "rprop"}


def optimizer(version: str, method: str, options: dict[str, Any]) -> Any:
    options = dict(options)
    exclude, norm, l2 = (options.pop(name, None) for name in ("exclude", "global_norm", "l2_decay"))
    if exclude:
        options["exclude_from_weight_decay_fn"] = lambda parameter: parameter.name == exclude
    if norm:
        options["grad_clip"] = fluid.clip.GradientClipByGlobalNorm(norm)
    if l2 and version:
        options["weight_decay"] = l2
    elif l2:
        options["regularization"] = fluid.regularizer.L2Decay(l2)
    return getattr(rowlock.optimizer if version else fluid.optimizer, method)(0.05, **options)


def built(made: Any, width: int = 3) -> tuple[fluid.Program, fluid.Program, fluid.Variable]:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, width, act="tanh", param_attr="w1", bias_attr="b1")
        out = fluid.layers.fc(hidden, 1, param_attr="w2", bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        made.minimize(loss)
    return main, startup, loss


def parallel(main: fluid.Program, loss: fluid.Variable, **build: Any) -> Any:
    strategy = BuildStrategy(**build)
    return fluid.CompiledProgram(main).with_data_parallel(
        loss_name=loss.name, build_strategy=strategy, places=[fluid.CPUPlace()] * 2
    )


def check(version: str, case: str, start: int = 0, **build: Any) -> None:
    """Train from Paddle's state after ``start`` steps, and hold every persistable to Paddle's."""
    entry = PAGES[version]["cases"][case]
    steps = {int(number): values for number, values in entry["steps"].items()}
    main, startup, loss = built(optimizer(version, entry["method"], entry["options"]))
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    program = parallel(main, loss, **build) if build else main
    with fluid.scope_guard(scope):
        exe.run(startup)
        for name, value in (steps[start] if start else PAGES[version]["initial"]).items():
            array = np.array(value, "float32", ndmin=1)  # 2.x rates have no dimension
            scope.find_var(name).get_tensor().set(array, fluid.CPUPlace())
        for number in range(start + 1, max(steps) + 1):
            exe.run(program, feed=FEED, fetch_list=[loss])
            for name, value in steps.get(number, {}).items():
                found = np.array(scope.find_var(name).get_tensor()).reshape(np.shape(value))
                np.testing.assert_allclose(found, value, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(("version", "case"), CASES)
def test_twelve_steps_are_paddles(version: str, case: str) -> None:
    check(version, case)


@pytest.mark.parametrize(("version", "case"), CASES)
def test_training_goes_on_from_paddles_state(version: str, case: str) -> None:
    check(version, case, start=6)


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
@pytest.mark.parametrize(("version", "case"), one_in(2, CASES))
def test_two_places_in_one_update_agree(version: str, case: str, mode: str, threads: None) -> None:
    strategy = getattr(BuildStrategy.ReduceStrategy, mode)
    check(version, case, fuse_all_optimizer_ops=True, reduce_strategy=strategy)


@pytest.mark.parametrize(("version", "case"), [c for c in CASES if " " not in c[1]])
def test_slots_and_names_of_accumulators_are_paddles(version: str, case: str) -> None:
    entry = PAGES[version]["cases"][case]
    main, _, _ = built(optimizer(version, entry["method"], entry["options"]))
    found = {}
    for op in main.global_block().ops:
        if "ParamOut" in op.output_names:
            names = {
                **{s: op.input(s) for s in op.input_names},
                **{s: op.output(s) for s in op.output_names},
            }
            found[op.input("Param")[0]] = {slot: held for slot, held in names.items() if held}
    given = entry["ops"].items()
    theirs = {p: {slot: held for slot, held in names.items() if held} for p, names in given}
    assert found == theirs or case in OTHER_SLOTS
