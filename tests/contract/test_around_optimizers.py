"""What surrounds optimizers is Paddle's: averages, lookahead, recomputation, merged gradients, weight norm, ..."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy, ReduceStrategy

REFERENCE = Path(__file__).parents[1] / "reference"
sys.path.insert(0, str(REFERENCE))
import around_optimizers as programs

PAGE = json.loads((REFERENCE / "around_optimizers.json").read_text())
CASES: dict[str, Callable[..., Any]] = {**programs.CASES, **programs.MERGES}
# Constants that the programs here have as attributes of their ops.
CONSTANT = {"lookahead_alpha", "gradient_merge_zero"}
PARALLEL = {
    "all_reduce": {},
    "reduce": {"reduce_strategy": ReduceStrategy.Reduce},
    "fused": {"fuse_all_optimizer_ops": True, "enable_auto_fusion": True},
}


class Run:
    """A case of the record, built and started; ``build``: on two places, with these fields of the strategy."""

    def __init__(self, case: str, build: dict[str, Any] | None = None) -> None:
        self.main, self.startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            package = rowlock if case in programs.MERGES else fluid
            self.loss, self.averages = CASES[case](package)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)
        if case in programs.MERGES:
            for name in ("w1", "b1", "w2"):
                tensor = self.scope.find_var(name).get_tensor()
                tensor.set(programs.initial()[name], fluid.CPUPlace())
        self.program: Any = self.main
        if build is not None:
            self.program = fluid.CompiledProgram(self.main).with_data_parallel(
                self.loss.name, BuildStrategy(**build), places=fluid.cpu_places(2)
            )

    def step(self, feed: dict[str, np.ndarray]) -> float:
        losses = self.exe.run(self.program, feed, [self.loss], scope=self.scope)[0]
        return float(np.mean(losses))

    def value(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())

    def check(self, expected: dict[str, Any], when: Any) -> None:
        for name in expected.keys() - CONSTANT:
            message = f"{name}, {when}"
            found = self.value(name)
            np.testing.assert_allclose(found, expected[name], 1e-5, 1e-5, err_msg=message)
            if name != "learning_rate_0":  # in Paddle 2.x it has no dimension
                assert found.shape == np.shape(expected[name]), message


def train(case: str, build: dict[str, Any] | None = None) -> None:
    """Hold all persistables to Paddle's at the start, after the steps recorded, and while averages are applied."""
    run, record = Run(case, build), PAGE["cases"][case]
    run.check(record["start"], "start")
    for k, (feed, (loss, values)) in enumerate(zip(programs.feeds(), record["steps"], strict=True)):
        assert run.step(feed) == pytest.approx(loss, rel=1e-5, abs=1e-5)
        run.check(values, k)
    if run.averages is not None:
        with fluid.scope_guard(run.scope):
            for _ in range(2):  # a second time it is the same
                with run.averages.apply(run.exe):
                    run.check(record["applied"], "applied")
                run.check(record["steps"][-1][1], "restored")
            with run.averages.apply(run.exe, need_restore=False):
                pass
            run.check(record["applied"], "not restored")
            run.averages.restore(run.exe)
        run.check(record["steps"][-1][1], "restored later")


@pytest.mark.parametrize("case", CASES)
def test_steps_are_paddles(case: str) -> None:
    train(case)


def test_filters_that_upsample_are_symmetric() -> None:
    """Paddle's rows are shifted: it divides where it means to count."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        programs.bilinear(fluid)
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        names = [p.name for p in fluid.default_main_program().all_parameters()]
        filters = dict(zip(names, exe.run(fetch_list=names), strict=True))
    for name, triangle in (("f4", [0.25, 0.75, 0.75, 0.25]), ("f3", [0.25, 0.75, 0.75])):
        for window in filters[name].reshape(-1, *filters[name].shape[2:]):
            np.testing.assert_allclose(window, np.outer(triangle, triangle))
        np.testing.assert_allclose(filters[name][..., 0, 0], np.array(PAGE["filters"][name])[..., 0, 0])


@pytest.mark.parametrize("how", PARALLEL)
@pytest.mark.parametrize(
    "case",
    [
        "ema_thres_steps",
        "average_short",
        "lookahead_adam",
        "recompute_two",
        "weight_norm_all",
        "decoupled_adam",
        "clip_global",
        "merge_sum",
        "merge_adam",
    ],
)
def test_two_places_take_the_same_steps(case: str, how: str, threads: None) -> None:
    train(case, PARALLEL[how])
