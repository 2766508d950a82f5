"""Optimizers, regularizers, clips and initializers that programs write train as they train in Paddle 1.8.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import InvalidType, NotFound
from tests.reference import own_parts

REFERENCE = json.loads(Path(own_parts.__file__).with_suffix(".json").read_text())


def on_two(main: Any, loss: Any, reduce: str = "AllReduce") -> Any:
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = getattr(fluid.BuildStrategy.ReduceStrategy, reduce)
    program = fluid.CompiledProgram(main)
    return program.with_data_parallel(loss.name, strategy, places=fluid.cpu_places(2))


def check(name: str, **settings: Any) -> None:
    ours, theirs = own_parts.run(fluid, name, **settings), REFERENCE[name]
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=2e-5)
    assert list(ours["sums"]) == list(theirs["sums"])  # the names that Paddle saves
    np.testing.assert_allclose(
        list(ours["sums"].values()), list(theirs["sums"].values()), rtol=2e-4, atol=2e-5
    )


@pytest.mark.parametrize("name", own_parts.NAMES)
def test_own_parts_train_as_in_paddle(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", own_parts.NAMES)
def test_own_parts_train_two_replicas(name: str, gang: str) -> None:
    check(name, compiled=on_two)


@pytest.mark.parametrize("name", ["bounded", "halved", "decoupled", "elastic"])
def test_owners_alone_update_by_own_optimizers(name: str, threads: None) -> None:
    check(name, compiled=lambda main, loss: on_two(main, loss, "Reduce"))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("_append_optimize_op", {}),
        ("_static_clip", {"grad_clip": fluid.clip.GradientClipBase()}),
        ("__call__", {"regularization": fluid.regularizer.WeightDecayRegularizer()}),
    ],
)
def test_what_a_part_does_not_define_is_named(method: str, settings: Any) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
        with pytest.raises(NotImplementedError, match=rf"must define {method}\("):
            fluid.optimizer.Optimizer(0.1, **settings).minimize(loss)


def test_an_own_initializer_asks_for_fans() -> None:
    class Mean(fluid.initializer.Initializer):
        def __call__(self, var: Any, block: Any) -> Any:
            fan_in, fan_out = self._compute_fans(var)
            return fluid.initializer.Constant(fan_in + 100 * fan_out)(var, block)

    scope = fluid.Scope()
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2, 5, 5])
        fluid.layers.conv2d(x, 4, 3, param_attr=fluid.ParamAttr("filters", Mean()))
        fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    filters = np.array(scope.find_var("filters").get_tensor())
    assert filters.shape == (4, 2, 3, 3) and np.unique(filters).tolist() == [2 * 9 + 100 * 4 * 9]


def test_what_is_no_part_is_named() -> None:
    sgd = fluid.optimizer.SGD(0.1)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        weight = fluid.layers.create_parameter([2], "float32", name="weight")
        with pytest.raises(NotFound, match="no accumulator 'velocity' of the parameter 'weight'"):
            sgd._get_accumulator("velocity", weight)
    with pytest.raises(InvalidType, match="must be a regularizer such as"):
        fluid.optimizer.SGD(0.1, regularization=0.5)
