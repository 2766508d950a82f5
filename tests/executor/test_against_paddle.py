"""The reference models follow Paddle 1.8.5's numbers on every way of running them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rowlock.fluid as fluid
from tests.conftest import lasting, one_in
from tests.programs import on_places, own_programs
from tests.reference import models

REFERENCE = Path(__file__).parents[1] / "reference"
LOSSES = json.loads((REFERENCE / "losses.json").read_text())
SECTION_9 = json.loads((REFERENCE / "section9.json").read_text())


@pytest.fixture
def gang(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    if request.param == "single":
        yield "single"
        return
    with lasting(request.param):
        yield request.param


def run_model(
    name: str, run: str, gang: str
) -> tuple[list[dict[str, np.ndarray]], dict[str, float]]:
    """Train for some steps as the reference did; returns what was fetched, and parameter norms."""
    model = models.build(name, fluid)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    steps = []
    with fluid.scope_guard(fluid.Scope()):
        exe.run(model.startup)
        models.set_initial_values(model.main, fluid.global_scope(), place)
        program, extra = model.main, {}
        if gang != "single":
            build = fluid.BuildStrategy()
            scale = fluid.BuildStrategy.GradientScaleStrategy
            if run == "parallel_one":
                build.gradient_scale_strategy = scale.One
            if run == "parallel_customized":
                build.gradient_scale_strategy = scale.Customized
                extra = {model.loss.name + "@GRAD": np.array([0.5, 0.25], "float32")}
            program = on_places(model.main, 2, model.loss, build=build)
        for step in range(models.STEPS):
            fetched = exe.run(
                program,
                feed={**models.feed(name, step), **extra},
                fetch_list=[model.loss, *model.fetches.values()],
            )
            steps.append(dict(zip(["loss", *model.fetches], fetched, strict=True)))
        norms = {
            p.name: float(
                np.linalg.norm(np.array(fluid.global_scope().find_var(p.name).get_tensor()))
            )
            for p in model.main.all_parameters()
        }
    return steps, norms


RUNS = [
    (name, run, gang)
    for name in LOSSES
    for run in LOSSES[name]
    for gang in (("single",) if run == "single" else ("threads", "ray"))
    if run != "parallel_executor"
]
ALONE = [run for run in RUNS if run[2] == "single"]
SPREAD = [run for run in RUNS if run[2] != "single"]


@pytest.mark.parametrize(("name", "run", "gang"), [*ALONE, *one_in(2, SPREAD)], indirect=["gang"])
def test_five_steps_follow_paddle(name: str, run: str, gang: str) -> None:
    steps, norms = run_model(name, run, gang)
    expected = LOSSES[name][run]
    for mine, theirs in zip(steps, expected["steps"], strict=True):
        for label, value in theirs.items():
            value = np.asarray(value, np.float32)
            np.testing.assert_allclose(
                mine[label].reshape(value.shape), value, rtol=1e-4, atol=1e-5
            )
    for parameter, norm in expected["norms"].items():
        assert norms[parameter] == pytest.approx(norm, rel=1e-4, abs=1e-5), parameter


def section_9_net(case: str) -> tuple[fluid.Program, fluid.Program, fluid.Variable]:
    rate, options = 0.1, {}
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 4])
        y = fluid.data("y", [None, 1])
        hidden = fluid.layers.fc(x, 3, act="relu")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        if case == "exponential_decay":
            rate = fluid.layers.exponential_decay(0.1, 10, 0.5)
        if case == "l2_decay":
            options["regularization"] = fluid.regularizer.L2Decay(0.1)
        if case == "clip_by_norm":
            options["grad_clip"] = fluid.clip.GradientClipByNorm(0.5)
        if case == "clip_by_global_norm":
            options["grad_clip"] = fluid.clip.GradientClipByGlobalNorm(0.5)
        method = fluid.optimizer.Adam if case == "adam" else fluid.optimizer.SGD
        method(rate, **options).minimize(loss)
    return main, startup, loss


@pytest.mark.parametrize("gang", ["single", "threads", "ray"], indirect=True)
@pytest.mark.parametrize("case", [case for case in SECTION_9["cases"] if case != "reduce"])
def test_section_9(case: str, gang: str) -> None:
    if gang == "single" and case in ("one", "customized"):
        pytest.skip("the loss gradient is scaled on several places only")
    expected = SECTION_9["cases"][case]["1" if gang == "single" else "2"]
    main, startup, loss = section_9_net(case)
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {name: np.array(value, "float32") for name, value in SECTION_9["feed"].items()}
    with fluid.scope_guard(fluid.Scope()):
        scope = fluid.global_scope()
        exe.run(startup)
        for name, value in SECTION_9["initial"].items():
            scope.find_var(name).get_tensor().set(np.array(value, "float32"), exe.place)
        program = main
        if gang != "single":
            build = fluid.BuildStrategy()
            if case == "one":
                build.gradient_scale_strategy = build.GradientScaleStrategy.One
            if case == "customized":
                build.gradient_scale_strategy = build.GradientScaleStrategy.Customized
                feed[loss.name + "@GRAD"] = np.array([0.5, 0.25], "float32")
            program = on_places(main, 2, loss, build=build)
        for step in range(3):
            loss_value, bias_grad = exe.run(program, feed=feed, fetch_list=[loss, "fc_1.b_0@GRAD"])
            np.testing.assert_allclose(loss_value, expected["losses"][step], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(
                bias_grad, expected["fc_1.b_0@GRAD"][step], rtol=2e-6, atol=1e-6
            )
            bias = np.array(scope.find_var("fc_1.b_0").get_tensor())
            np.testing.assert_allclose(bias, expected["fc_1.b_0"][step], rtol=1e-6, atol=1e-6)
