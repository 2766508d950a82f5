"""``use_prune`` and optimize ops in the fetch list, on one place and on two. Numbers are Paddle 1.8.5's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import FeedError
from tests.programs import executor_after

L = fluid.layers
X = np.arange(6, dtype="float32").reshape(2, 3) + 1
LABELED = {"x": X, "label": X[:, :1]}


class Regression:
    """A line is fitted by SGD; ``other`` serves no optimizer."""

    def __init__(self, kind: str) -> None:
        half = fluid.initializer.Constant(0.5)
        x, label = fluid.data("x", [None, 3]), fluid.data("label", [None, 1])
        self.line = L.fc(x, 1, param_attr=half)
        self.loss = L.mean(L.square(self.line - label))
        self.other = L.mean(L.fc(self.line, 1, param_attr=half))
        self.updates, self.pairs = fluid.optimizer.SGD(0.1).minimize(self.loss)
        self.program: Any = fluid.default_main_program()
        if kind != "plain":
            self.program = fluid.CompiledProgram(self.program)
        if kind == "places":
            self.program.with_data_parallel(self.loss.name, places=fluid.cpu_places(2))
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(fluid.default_startup_program())

    def run(self, feed: Any, fetches: list[Any], **how: Any) -> list[float]:
        """Run a step; return the mean of each fetch."""
        fetched = self.exe.run(self.program, feed=feed, fetch_list=fetches, **how)
        return [float(value.mean()) for value in fetched]

    def weights(self) -> list[float]:
        """Return the line's."""
        variable = fluid.global_scope().find_var("fc_0.w_0")
        return np.array(variable.get_tensor()).ravel().tolist()


@pytest.fixture(params=["plain", "compiled", "places"])
def net(request: pytest.FixtureRequest) -> Iterator[Regression]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
        rowlock.cluster(launcher="threads"),
    ):
        yield Regression(request.param)


def test_pruned_steps_train_as_others_do(net: Regression) -> None:
    first = net.run(LABELED, [net.loss], use_prune=True)
    np.testing.assert_allclose(first, [8.125])
    np.testing.assert_allclose(net.weights(), [-1.1, -1.65, -2.2], 1e-6)
    second = net.run(LABELED, [net.loss, net.other], use_prune=True)
    np.testing.assert_allclose(second, [540.83124, -9.4875], 1e-6)
    np.testing.assert_allclose(net.weights(), [12.315, 16.06, 19.805], 1e-5)
    np.testing.assert_allclose(net.run(LABELED, [net.loss]), [36466.73], 1e-6)
    line = net.run(LABELED, [net.line], use_prune=True)
    np.testing.assert_allclose(line, [np.mean([-871.14294, -2035.0813])], 1e-6)
    np.testing.assert_allclose(net.weights(), [805.2483, 1064.6427, 1324.0372], 1e-6)


def test_without_labels_a_pruned_step_predicts(net: Regression) -> None:
    np.testing.assert_allclose(net.run({"x": X}, [net.line], use_prune=True), [5.25])
    assert net.weights() == [0.5, 0.5, 0.5]
    with pytest.raises(FeedError, match=r"'label' .* is not fed: elementwise_sub .* reads it"):
        net.run({"x": X}, [net.loss], use_prune=True)
    with pytest.raises(FeedError, match=r"'label' .* is not fed"):
        net.run({"x": X}, [net.line])


def test_optimize_ops_that_are_fetched_run_alone(net: Regression) -> None:
    step = net.updates, net.pairs
    np.testing.assert_allclose(net.run(LABELED, [net.loss, step]), [8.125])
    np.testing.assert_allclose(net.weights(), [-1.1, -1.65, -2.2], 1e-6)
    bias = next(op for op in net.updates if op.input("Param") == ["fc_0.b_0"])
    net.run(LABELED, [net.loss, bias])
    np.testing.assert_allclose(net.weights(), [-1.1, -1.65, -2.2], 1e-6)
    np.testing.assert_allclose(net.run(LABELED, [net.loss]), [374.808], 1e-5)


def test_what_is_fed_is_not_computed_in_a_pruned_step(net: Regression) -> None:
    feed = {net.line.name: X[:, :1] + 2, "label": X[:, :1]}
    np.testing.assert_allclose(net.run(feed, [net.loss], use_prune=True), [4.0])
    assert net.weights() == [0.5, 0.5, 0.5]


@pytest.mark.usefixtures("fresh_programs")
def test_of_two_optimizers_of_one_parameter_the_fetched_one_runs() -> None:
    """Numbers are Paddle 1.8.5's."""
    half = fluid.initializer.Constant(0.5)
    x = fluid.data("x", [None, 3])
    hidden = L.fc(x, 1, param_attr=half, bias_attr=False)
    first, _ = fluid.optimizer.SGD(0.1).minimize(L.mean(hidden))
    second, _ = fluid.optimizer.Momentum(0.1, 0.9).minimize(L.mean(L.square(hidden)))
    exe = executor_after()
    weights = []
    for updates in (first, second, first):
        exe.run(feed={"x": X}, fetch_list=[updates])
        tensor = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
        weights.append(np.array(tensor).ravel().tolist())
    expected = [[0.25, 0.15, 0.05], [-0.64, -1.015, -1.39], [-0.89, -1.365, -1.84]]
    np.testing.assert_allclose(weights, expected, 1e-5)
