"""Losses that depend on gradients: what Paddle computes, on one place and several, with every switch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.graph.program.operator import Operator
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import Unsupported
from tests.conftest import lasting, product
from tests.programs import on_places, own_programs
from tests.reference import double_gradients as nets

from .test_switches import OFF, ON, REDUCE

RECORD = json.loads((Path(nets.__file__).with_suffix(".json")).read_text())
L = fluid.layers


def built(name: str) -> tuple[fluid.Program, Any, list[Any]]:
    """Build a net and give its parameters the values that they begin with."""
    with own_programs() as (main, startup):
        loss, others = nets.NETS[name](fluid)
    fluid.Executor(fluid.CPUPlace()).run(startup)
    for p in main.all_parameters():
        tensor = fluid.global_scope().find_var(p.name).get_tensor()
        tensor.set(nets.initial(p.name, p.shape), fluid.CPUPlace())
    return main, loss, others


def close(value: Any, expected: Any) -> None:
    size = max(1e-3, float(np.abs(expected).max()))
    np.testing.assert_allclose(np.ravel(value), np.ravel(expected), rtol=1e-4, atol=1e-4 * size)


@pytest.mark.parametrize("name", nets.NETS)
def test_they_compute_what_paddle_does(name: str) -> None:
    with fluid.scope_guard(fluid.Scope()):
        main, loss, others = built(name)
        exe = fluid.Executor(fluid.CPUPlace())
        for step, expected in enumerate(RECORD[name]["steps"]):
            values = exe.run(main, feed=nets.feeds(step), fetch_list=[loss, *others])
            for value, reference in zip(values, expected, strict=True):
                close(value, reference)


# Where the gradient of a target begins, Paddle takes two ops; this gradient is computed from one operand more.
SEEDED = {"shape", "fill_constant", "fill_any_like"}
OURS = {"elementwise_div_grad_grad": "DOutput"}


@pytest.mark.parametrize("name", nets.NETS)
def test_ops_and_names_are_paddles(name: str) -> None:
    with fluid.scope_guard(fluid.Scope()):
        main, _, _ = built(name)
    ours = [nets.described(op) for op in main.global_block().ops]
    for op in ours:
        op[1].pop(OURS.get(op[0], ""), None)
    theirs = [op for op in RECORD[name]["ops"] if op[0] not in SEEDED]
    assert [op for op in ours if op[0] not in SEEDED] == theirs


SETS = {"on": ON, "off": OFF, "verified": {**ON, "verify_passes": True}}


@product(name=["wgan_gp", "wide"], switches=SETS, reduces=[False, True])
def test_two_places_compute_what_one_does(name: str, switches: str, reduces: bool) -> None:
    strategy = BuildStrategy(**{**SETS[switches], **(REDUCE if reduces else {})})
    with fluid.scope_guard(fluid.Scope()), lasting("threads"):
        main, loss, others = built(name)
        program = on_places(main, 2, loss, build=strategy)
        exe = fluid.Executor(fluid.CPUPlace())
        for step, expected in enumerate(RECORD[name]["steps"]):
            values = exe.run(program, feed=nets.feeds(step), fetch_list=[loss, *others])
            for value, reference in zip(values, expected, strict=True):
                close(np.mean(value), reference)


class _Layers:
    """Layers by the names that ``of_2x`` uses."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        own = {"sum": L.reduce_sum, "rsqrt": L.rsqrt}
        return own.get(name) or getattr(L, name)

    def data(self, name: str, shape: Any) -> Any:
        if name not in self.known:
            self.known[name] = fluid.data(name, shape, "float32")
            self.known[name].stop_gradient = False
        return self.known[name]

    parameter = data

    def batch_norm(self, x: Any, scale: Any, shift: Any, fixed: bool) -> Any:
        statistics = (self.parameter("m", [5]), self.parameter("s", [5]))
        return rowlock.nn.functional.batch_norm(
            x, *statistics, scale, shift, True, use_global_stats=fixed
        )

    def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return rowlock.nn.functional.layer_norm(x, 5, scale, shift)

    def leaky_relu(self, x: Any) -> Any:
        return L.leaky_relu(x, 0.01)

    def gradients(self, targets: Any, inputs: Any) -> Any:
        return fluid.gradients(targets, inputs)


@pytest.mark.parametrize("name", RECORD["of_2x"])
def test_functions_of_2x(name: str) -> None:
    main, net = fluid.Program(), _Layers()
    with fluid.program_guard(main):
        loss, grads = nets.of_2x(net, name)
    feed = {key: value for key, value in nets.inputs_of_2x().items() if key in net.known}
    with fluid.scope_guard(fluid.Scope()):
        values = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[loss, *grads])
    for value, reference in zip(values, RECORD["of_2x"][name], strict=True):
        close(value, reference)


@pytest.mark.parametrize("name", [*nets.OURS, "batch_norm"])
def test_norms_and_softmax_agree_with_differences(name: str) -> None:
    main, net = fluid.Program(), _Layers()
    with fluid.program_guard(main):
        loss, grads = nets.of_2x(net, name)
    feed = {key: value for key, value in nets.inputs_of_2x().items() if key in net.known}
    exe = fluid.Executor(fluid.CPUPlace())
    slopes = exe.run(main, feed=feed, fetch_list=grads)
    draw = np.random.default_rng(1)
    for key, slope in zip(("w1", "x", "g"), slopes, strict=True):
        way = draw.standard_normal(slope.shape).astype("f4")
        ends = [
            exe.run(main, feed={**feed, key: feed[key] + step * way}, fetch_list=[loss])[0].item()
            for step in (0.01, -0.01, 0.005, -0.005)
        ]
        # Richardson's step takes the error of second order away.
        expected = (4 * (ends[2] - ends[3]) / 0.01 - (ends[0] - ends[1]) / 0.02) / 3
        size = max(1e-3, float(np.abs(slope * way).sum()))
        np.testing.assert_allclose((slope * way).sum(), expected, atol=2e-3 * size, err_msg=key)


def fed(*shape: int, name: str = "x") -> Any:
    x = fluid.data(name, [-1, *shape], "float32")
    x.stop_gradient = False
    return x


def values(fetches: Any, **feed: Any) -> list[np.ndarray]:
    arrays = {name: np.asarray(value, "float32") for name, value in feed.items()}
    exe = fluid.Executor(fluid.CPUPlace())
    return exe.run(fluid.default_main_program(), feed=arrays, fetch_list=list(fetches))


@pytest.fixture
def program() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        yield


X = np.array([[1.0, 2.0, -3.0]])


def test_each_order_up_to_the_one_that_is_built(program: None) -> None:
    x = fed(3)
    y = x * x * x
    (first,) = fluid.gradients(y, x)
    (second,) = fluid.gradients(first, x)
    np.testing.assert_allclose(values([first, second], x=X), [3 * X**2, 6 * X], rtol=1e-6)
    with pytest.raises(Unsupported, match="has no gradient of its own"):
        fluid.gradients(second, x)


def test_a_gradient_that_is_a_constant_is_not_differentiated(program: None) -> None:
    x = fed(3)
    (first,) = fluid.gradients(L.square(x), x)
    first.stop_gradient = True
    (second,) = fluid.gradients(first * x, x)
    np.testing.assert_allclose(values([second], x=X), [2 * X], rtol=1e-6)


def test_no_gradient_set_names_gradients_too(program: None) -> None:
    x = fed(3)
    (first,) = fluid.gradients(L.square(x), x)
    (second,) = fluid.gradients(first * x, x, no_grad_set={first.name})
    (other,) = fluid.gradients(first * x, x)
    np.testing.assert_allclose(values([second, other], x=X), [2 * X, 4 * X], rtol=1e-6)


def test_target_gradients_are_differentiated(program: None) -> None:
    x, weight = fed(3), fed(3, name="weight")
    (first,) = fluid.gradients(L.square(x), x, weight)
    again = fluid.gradients(L.square(first), [x, weight])
    w = np.array([[0.5, -1.0, 2.0]])
    expected = [8 * X * w**2, 8 * X**2 * w]
    np.testing.assert_allclose(values(again, x=X, weight=w), expected, rtol=1e-6)


def test_a_target_that_another_depends_on_gets_both_gradients(program: None) -> None:
    x = fed(3)
    y = L.square(x)
    pairs = [fluid.gradients([y, y * y], [x, y]), fluid.gradients([y * y, y], [x, y])]
    for dx, dy in pairs:
        expected = [2 * X + 4 * X**3, 1 + 2 * X**2]
        np.testing.assert_allclose(values([dx, dy], x=X), expected, rtol=1e-6)


def test_parts_of_a_list_that_nobody_wants(program: None) -> None:
    """Gradients that are not computed count as zero where the gradient op needs them."""
    x, y = fed(3), fluid.data("y", [-1, 3], "float32")
    joined = L.concat([x, y], axis=1)
    (first,) = fluid.gradients(L.square(joined), x)
    (second,) = fluid.gradients(L.square(first), x)
    np.testing.assert_allclose(values([second], x=X, y=X), [8 * X], rtol=1e-6)


def test_a_gradient_op_without_a_gradient_is_refused(program: None) -> None:
    x = fed(3)
    (first,) = fluid.gradients(L.reduce_max(x, dim=1), x)
    with pytest.raises(Unsupported, match="reduce_max_grad has no gradient of its own"):
        fluid.gradients(L.square(first), x)


def test_dropout_drops_the_same_again(program: None) -> None:
    x = fed(3)
    y = L.dropout(x, 0.5, seed=3, dropout_implementation="upscale_in_train")
    (first,) = fluid.gradients(L.square(y), x)
    (slope,) = fluid.gradients(first, x)
    rest, second = values([y, slope], x=np.ones((40, 3)))
    np.testing.assert_allclose(second, 4 * rest, rtol=1e-6)


def test_through_the_statistics_of_an_instance_norm(program: None) -> None:
    x = fluid.data("x", [-1, 2, 3], "float64")
    x.stop_gradient = False
    block = fluid.default_main_program().global_block()
    names = {"Y": "y", "SavedMean": "mean", "SavedVariance": "variance"}
    outputs = {slot: block.create_var(name=name, dtype="float64") for slot, name in names.items()}
    block.append_op("instance_norm", {"X": x}, outputs, {})
    (first,) = fluid.gradients(L.square(outputs["Y"]) * x, x)
    loss = L.reduce_sum(L.square(first))
    (second,) = fluid.gradients(loss, x)
    exe = fluid.Executor(fluid.CPUPlace())
    point, way = np.random.default_rng(0).standard_normal((2, 2, 2, 3))
    up, down = (exe.run(feed={"x": point + h * way}, fetch_list=[loss])[0] for h in (1e-5, -1e-5))
    (slope,) = exe.run(feed={"x": point}, fetch_list=[second])
    np.testing.assert_allclose((slope * way).sum(), ((up - down) / 2e-5).item(), rtol=1e-6)


def test_each_call_of_gradients_looks_at_its_own_part_of_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, each of a chain of calls went back to the program's first op: 400 took 9 s to build."""
    looked = [0]
    overwritten = Operator.overwritten

    def counted(op: Operator) -> set[str]:
        looked[0] += 1
        return overwritten(op)

    monkeypatch.setattr(Operator, "overwritten", counted)

    def operators(calls: int) -> int:
        looked[0] = 0
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            x = fluid.data("x", [None, 4])
            x.stop_gradient = False
            for _ in range(calls):
                (slope,) = fluid.gradients(L.reduce_sum(L.tanh(x)), x)
                x = x - 0.1 * slope
                x.stop_gradient = False
        return looked[0]

    assert operators(40) == 2 * operators(20)
