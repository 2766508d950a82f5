"""One contract on every runner: alone, threads, Ray actors; one, two and three places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from tests.conftest import SEED, lasting
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed

RUNNERS = [("single", 1), *((kind, n) for kind in ("threads", "ray") for n in (1, 2, 3))]
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce": {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce},
    "weighted": {"gradient_scale_strategy": BuildStrategy.GradientScaleStrategy.SampleWeighted},
    "unfused": {"fuse_all_reduce_ops": False, "fuse_broadcast_ops": False},
}
# Each two of runner, optimizer and settings meet; which third one is with them depends on the seed.
# A half of them is slow.
CASES = [
    pytest.param(
        runner,
        list(OPTIMIZERS)[(i + j + SEED) % len(OPTIMIZERS)],
        name,
        marks=[pytest.mark.slow] * ((i + j + SEED) % 2),
    )
    for i, runner in enumerate(RUNNERS)
    for j, name in enumerate(SETTINGS)
]


def _named(value: Any) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value))


class Runner:
    """A net and how to run its programs; ``places`` replicas, or the plain executor."""

    def __init__(self, kind: str, places: int) -> None:
        self.kind, self.places = kind, places

    def train(self, net: Net, settings: dict[str, Any]) -> Any:
        return net.main if self.kind == "single" else net.compiled(self.places, build=settings)

    def test(self, net: Net, train: Any) -> Any:
        if self.kind == "single":
            return net.test
        return net.compiled(self.places, net.test, share_vars_from=train)


@pytest.fixture(params=RUNNERS, ids=_named)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    kind, places = request.param
    if kind == "ray":
        request.getfixturevalue("ray_cluster")
    with lasting("threads" if kind == "single" else kind):
        yield Runner(kind, places)


@pytest.mark.parametrize(
    ("runner", "optimizer", "settings"), CASES, indirect=["runner"], ids=_named
)
def test_training_is_that_of_the_whole_batch(runner: Runner, optimizer: str, settings: str) -> None:
    """Even batches: parameters, every optimizer state and the mean loss, for four steps."""
    net, alone = Net(OPTIMIZERS[optimizer], drop=0.25), Net(OPTIMIZERS[optimizer], drop=0.25)
    train = runner.train(net, SETTINGS[settings])
    for step in range(4):
        (loss,) = net.run(train, feed(6, step), [net.loss])
        (expected,) = alone.run(alone.main, feed(6, step), [alone.loss])
        assert loss.shape == (runner.places,)
        np.testing.assert_allclose(loss.mean(), expected[0], 1e-5)
    names = [v.name for v in net.main.list_vars() if v.persistable]
    assert_close(
        {name: net.value(name) for name in names}, {name: alone.value(name) for name in names}, 1e-5
    )


def test_testing_uses_what_was_trained_and_changes_nothing(runner: Runner) -> None:
    net = Net(OPTIMIZERS["momentum"], drop=0.5)
    train = runner.train(net, {})
    net.run(train, feed(6), [])
    trained = net.parameters()
    test = runner.test(net, train)
    for rows in (1, 4, 6):
        (prediction,) = net.run(test, feed(rows), [net.prediction])
        (expected,) = net.run(net.test, feed(rows), [net.prediction])
        np.testing.assert_allclose(prediction, expected, 1e-5, 1e-6)
    assert_close(net.parameters(), trained, 0)
    net.run(train, feed(6, 1), [net.loss])
    assert any((net.parameters()[name] != array).any() for name, array in trained.items())


def test_shapes_and_fetches_change_from_step_to_step(runner: Runner) -> None:
    net, alone = Net(), Net()
    train = runner.train(net, {})
    for step, rows in enumerate((6, 12, 6, 18)):
        fetches: list[Any] = [[], ["x"], [net.loss, "fc_0.w_0@GRAD"], ["y", "x", "y"]][step]
        arrays = net.run(train, feed(rows, step), fetches)
        alone.run(alone.main, feed(rows, step), [])
        assert len(arrays) == len(fetches)
        for name, array in zip(fetches, arrays, strict=True):
            if name in ("x", "y"):
                np.testing.assert_array_equal(array, feed(rows, step)[name])
    assert_close(net.parameters(), alone.parameters(), 1e-5)


def test_what_the_user_writes_is_what_the_next_step_begins_with(runner: Runner) -> None:
    net, alone = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
    train = runner.train(net, {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce})
    for which, program in ((net, train), (alone, alone.main)):
        which.run(program, feed(6, 0), [])
        which.scope.find_var("fc_0.w_0").get_tensor().set(np.full((4, 3), 0.1, "float32"), None)
        which.run(program, feed(6, 1), [])
        which.run(which.startup)  # begins anew
        which.run(program, feed(6, 2), [])
    assert_close(net.parameters(), alone.parameters(), 1e-5)


def test_an_error_leaves_values_as_they_were(runner: Runner) -> None:
    net = Net()
    train = runner.train(net, {})
    net.run(train, feed(6), [])
    before = net.parameters()
    for bad in ({"x": feed(6)["x"]}, {**feed(6), "x": np.ones((6, 3), "float32")}):
        with pytest.raises(fluid.core.EnforceNotMet):
            net.run(train, bad, [net.loss])
    assert_close(net.parameters(), before, 0)
    net.run(train, feed(6), [])
