"""Programs that Paddle 1.8.5 made with branches load here and compute what they compute there."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from tests.programs import executor_after, on_places, own_programs

REFERENCE = Path(__file__).parents[1] / "reference" / "branches.json"
CASES: dict[str, Any] = json.loads(REFERENCE.read_text())


def load(name: str, which: str = "program") -> fluid.Program:
    return fluid.Program.parse_from_string(zlib.decompress(base64.b64decode(CASES[name][which])))


def feeds(step: int) -> dict[str, np.ndarray]:
    draw = np.random.RandomState(step)
    rows = draw.uniform(-1, 1, (4, 4)), draw.uniform(-1, 1, (4, 1))
    return {name: array.astype("float32") for name, array in zip("xy", rows, strict=True)}


def run(name: str, program: Any) -> None:
    """Run ten steps and compare each fetch with Paddle's."""
    exe = executor_after(load(name, "startup"))
    for step, expected in enumerate(CASES[name]["steps"]):
        values = exe.run(program, feed=feeds(step), fetch_list=CASES[name]["fetch"])
        for value, reference in zip(values, expected, strict=True):
            np.testing.assert_allclose(np.ravel(value), reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_branches_compute_what_paddle_does(name: str) -> None:
    run(name, load(name))


@pytest.mark.parametrize("name", ["warm_up", "cycles"])
def test_branches_on_two_places(name: str) -> None:
    program = load(name)
    loss, rate = CASES[name]["fetch"]
    exe = executor_after(load(name, "startup"))
    with rowlock.cluster(launcher="threads"):
        compiled = on_places(program, 2, loss)
        for step, (reference, scheduled) in enumerate(CASES[name]["steps"]):
            losses, rates = exe.run(compiled, feed=feeds(step), fetch_list=[loss, rate])
            np.testing.assert_allclose(np.mean(losses), reference, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(rates, scheduled * 2, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_branches_are_saved_as_they_were_loaded(name: str) -> None:
    data = zlib.decompress(base64.b64decode(CASES[name]["program"]))
    assert load(name).desc.serialize_to_string() == data


def test_a_test_program_has_no_schedule() -> None:
    assert all(
        op.type != "conditional_block" for op in load("warm_up").clone(True).global_block().ops
    )


def chosen(x: Any, condition: Any) -> Any:
    return fluid.layers.cond(condition, lambda: x * 0.5, lambda: x)


def switched(x: Any, condition: Any) -> Any:
    value = x * 1.0
    with fluid.layers.Switch() as switch, switch.case(condition):
        fluid.layers.assign(value * 0.5, value)
    return value


@pytest.mark.parametrize("branch", [chosen, switched])
def test_what_has_the_sequences_of_one_value_on_both_sides_keeps_them(branch: Any) -> None:
    with own_programs() as (main, _):
        x = fluid.data("x", [None, 1], lod_level=1)
        bound = fluid.data("bound", [1])
        value = branch(x, fluid.layers.less_than(fluid.layers.reduce_sum(x), bound))
        total = fluid.layers.sequence_pool(value, "sum")
    exe = fluid.Executor(fluid.CPUPlace())
    rows = fluid.create_lod_tensor(np.ones((5, 1), "f4"), [[2, 3]], fluid.CPUPlace())
    for limit, factor in ((9, 0.5), (1, 1.0)):
        feed = {"x": rows, "bound": np.array([limit], "f4")}
        own, sums = exe.run(main, feed=feed, fetch_list=[value, total], return_numpy=False)
        assert own.recursive_sequence_lengths() == [[2, 3]]
        np.testing.assert_array_equal(np.array(sums), [[2 * factor], [3 * factor]])


_FLAG_PROGRAMS: dict[str, Any] = {
    "cond": lambda flag, x: fluid.layers.cond(flag, lambda: x * 2.0, lambda: x * 3.0),
    "cond with a product": lambda flag, x: fluid.layers.cond(
        flag, lambda: fluid.layers.matmul(x, x), lambda: x * 3.0
    ),
    "switch_case": lambda flag, x: fluid.layers.switch_case(
        fluid.layers.cast(flag, "int32"), {1: lambda: x * 2.0, 0: lambda: x * 3.0}
    ),
}


@pytest.mark.parametrize("size", [None, 1], ids=["of unknown size", "in a matrix"])
@pytest.mark.parametrize("name", _FLAG_PROGRAMS)
def test_a_condition_is_one_element_of_any_shape(name: str, size: int | None) -> None:
    """As layers.data declares it, [-1, 1]: that there is one element is known when a step is fed."""
    with fluid.program_guard(fluid.Program()):
        flag = fluid.data("flag", [size, 1], "bool")
        x = fluid.data("x", [2, 2])
        x.stop_gradient = False
        result = _FLAG_PROGRAMS[name](flag, x)
        grad = fluid.gradients([fluid.layers.reduce_sum(result)], [x])[0]
        exe = fluid.Executor(fluid.CPUPlace())
        ones = np.ones((2, 2), "float32")

        def run_with(*flags: bool) -> list[float]:
            feed = {"flag": np.array(flags).reshape(-1, 1), "x": ones}
            values = exe.run(feed=feed, fetch_list=[result, grad])
            return [float(value.ravel()[0]) for value in values]

        taken = [2.0, 4.0] if "product" in name else [2.0, 2.0]
        assert run_with(True) == taken
        if size is None:
            with pytest.raises(
                fluid.core.EnforceNotMet, match="condition of a branch must have one element"
            ):
                run_with(True, False, True)
        assert run_with(False) == [3.0, 3.0]


def test_a_switch_takes_a_condition_of_unknown_size() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        step = fluid.layers.data("step", [1])
        rate = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
        with fluid.layers.Switch() as switch:
            for limit, value in ((1.0, 0.1), (2.0, 0.2)):
                below = step < fluid.layers.fill_constant([1], "float32", limit)
                with switch.case(below):
                    fluid.layers.assign(fluid.layers.fill_constant([1], "float32", value), rate)
            with switch.default():
                fluid.layers.assign(fluid.layers.fill_constant([1], "float32", 0.3), rate)
        exe = executor_after()
        rates = [
            float(exe.run(feed={"step": np.array([[s]], "float32")}, fetch_list=[rate])[0][0])
            for s in (0, 1, 2)
        ]
    np.testing.assert_allclose(rates, [0.1, 0.2, 0.3])
