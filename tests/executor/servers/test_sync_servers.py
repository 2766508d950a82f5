"""Two trainers with two servers in sync mode train as one process does on the whole batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from tests.programs import on_places

from .nets import OPTIMIZERS, SCHEDULES, batches, plain_sgd, regression, shared_out
from .roles import Roles, Trainer, alone, table, threads, together

STEPS = 20


def compare(roles: Roles, net: Any, feeds: list[dict[str, Any]], tolerance: float = 1e-5) -> None:
    """Hold losses and parameters of trainers and servers against training in one process."""
    assert not roles.errors
    tables = {"table": table(roles.served, "table")} if "ids" in feeds[0] else {}
    losses, parameters = alone(net, feeds, {**roles.initial, **tables})
    np.testing.assert_allclose(np.mean(roles.losses, 0), losses, tolerance, tolerance)
    for trainer in roles.parameters:
        for name, value in trainer.items():
            np.testing.assert_allclose(value, parameters[name], tolerance, tolerance, err_msg=name)
    if tables:
        own = table(roles.left, "table")
        np.testing.assert_allclose(own, parameters["table"], tolerance, tolerance)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("sliced", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sync_training_follows_one_process(name: str, sliced: bool, sparse: bool) -> None:
    net = partial(regression, OPTIMIZERS[name], sparse)
    feeds = batches(STEPS, sparse)
    with threads():
        roles = together(
            net, shared_out(feeds), config=lambda c: setattr(c, "slice_var_up", sliced)
        )
    compare(roles, net, feeds)
    assert [report["steps"] for report in roles.reports] == [STEPS, STEPS]
    if sparse and name != "sgd":
        # with decay of weights, which moves all rows, the table is no rows
        assert 0 < sum(report["rows"] for report in roles.reports) <= STEPS * 8 * 3


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_runs_on_servers(name: str) -> None:
    net, feeds = partial(regression, lambda: fluid.optimizer.SGD(SCHEDULES[name]())), batches(12)
    with threads():
        compare(together(net, shared_out(feeds)), net, feeds)


@pytest.mark.parametrize("sparse", [False, True])
def test_each_trainer_clips_its_own_gradients(sparse: bool) -> None:
    net = partial(regression, plain_sgd, sparse, 0.5)
    feeds = batches(STEPS, sparse)
    with threads():
        roles = together(net, [feeds, feeds])  # equal batches have equal norms, as in one process
    compare(roles, net, feeds)


def _on_two_places(main: Any, loss: Any) -> Any:
    return on_places(main, 2, loss)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_trainer_with_two_places_sends_once(sparse: bool) -> None:
    net = partial(regression, plain_sgd, sparse)
    feeds = batches(STEPS, sparse)
    with threads():
        roles = together(net, shared_out(feeds), compiled=_on_two_places)
    compare(roles, net, feeds)
    pushed = [n for n in roles.served if n.partition(".block")[0] in {*roles.initial, "table"}]
    assert sum(report["pushes"] for report in roles.reports) == STEPS * 2 * len(pushed)


def test_a_parallel_executor_is_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    net, feeds = partial(regression, plain_sgd), batches(4)
    fronts: dict[int, Any] = {}

    def step(trainer: Trainer, feed: dict[str, Any]) -> float:
        if trainer.number not in fronts:
            fronts[trainer.number] = fluid.ParallelExecutor(
                False, trainer.loss.name, trainer.main, scope=trainer.scope
            )
        return float(np.mean(fronts[trainer.number].run([trainer.loss.name], feed=feed)[0]))

    with threads():
        compare(together(net, shared_out(feeds), step=step), net, feeds)


def test_steps_that_are_begun_ahead_wait_for_what_they_receive() -> None:
    net, feeds = partial(regression, plain_sgd), batches(4)

    def step(trainer: Trainer, feed: dict[str, Any]) -> float:
        future = trainer.exe.run_async(trainer.program, feed, [trainer.loss], scope=trainer.scope)
        assert future.done()
        return float(np.mean(future.result()[0]))

    with threads():
        compare(together(net, shared_out(feeds), compiled=_on_two_places, step=step), net, feeds)


def test_one_trainer_with_one_server_is_training_alone() -> None:
    net, feeds = partial(regression, OPTIMIZERS["adam"]), batches(5)
    with threads():
        roles = together(net, [feeds], servers=1)
    compare(roles, net, feeds)


def test_fetching_a_parameter_gives_what_was_received() -> None:
    net, feeds = partial(regression, plain_sgd), batches(2)
    fetched: list[np.ndarray] = []
    gradients: list[tuple[np.ndarray, np.ndarray]] = []

    def step(trainer: Trainer, feed: dict[str, Any]) -> float:
        names = ["fc_1.w_0", trainer.loss.name, "fc_0.w_0", "fc_1.w_0@GRAD"]
        values = trainer.exe.run(trainer.main, feed=feed, fetch_list=names, scope=trainer.scope)
        fetched[:] = values
        gradients.append((values[3], values[3].copy()))
        return float(values[1])

    with threads():
        roles = together(net, [feeds], servers=2, step=step)
    compare(roles, net, feeds)
    np.testing.assert_array_equal(fetched[0], roles.parameters[0]["fc_1.w_0"])
    np.testing.assert_array_equal(fetched[2], roles.parameters[0]["fc_0.w_0"])
    for gradient, then in gradients:  # the user's own, unlike what is sent
        np.testing.assert_array_equal(gradient, then)


def test_several_iterations_of_a_run_are_as_many_steps() -> None:
    net, feeds = partial(regression, plain_sgd), batches(1)
    execution = fluid.ExecutionStrategy()
    execution.num_iteration_per_run = 3

    def compiled(main: Any, loss: Any) -> Any:
        return on_places(main, [fluid.CPUPlace()], loss, execution=execution)

    with threads():
        roles = together(net, [feeds], servers=1, compiled=compiled)
    assert not roles.errors
    assert roles.reports[0]["steps"] == 3
    _, parameters = alone(net, feeds * 3, roles.initial)
    np.testing.assert_allclose(roles.parameters[0]["fc_1.w_0"], parameters["fc_1.w_0"], 1e-5, 1e-6)


def test_an_explanation_tells_of_the_servers() -> None:
    net, feeds = partial(regression, plain_sgd), batches(2)
    reports: list[str] = []

    def step(trainer: Trainer, feed: dict[str, Any]) -> float:
        loss = trainer.step(feed)
        reports.append(str(trainer.program.explain()))
        return loss

    with threads():
        roles = together(net, [feeds], servers=1, compiled=_on_two_places, step=step)
    assert not roles.errors
    assert "2 steps applied" in reports[-1]
    assert "0 at most" in reports[-1]
