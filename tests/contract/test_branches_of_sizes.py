"""Branches whose results differ in their sizes: what reads them has those of the branch that was taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import InvalidValue
from tests.contract.nets import assert_close
from tests.programs import on_places, own_programs

pytestmark = pytest.mark.usefixtures("fresh_programs")
L = fluid.layers


def weight(size: int) -> Any:
    values = np.random.RandomState(size).randn(3, size)
    return L.create_parameter(
        [3, size], "float64", default_initializer=fluid.initializer.NumpyArrayInitializer(values)
    )


def below(number: Any, limit: int) -> Any:
    return L.less_than(number, L.fill_constant([1], "int64", limit))


def of_products(x: Any, number: Any) -> Any:
    one, other = weight(4), weight(5)
    return L.cond(below(number, 1), lambda: L.matmul(x, one), lambda: L.matmul(x * x, other))


def of_elements(x: Any, number: Any) -> Any:
    """Both sides are computed in each step."""
    return L.cond(below(number, 1), lambda: x * x, lambda: L.concat([x, L.tanh(x)], 1))


def one_of_each(x: Any, number: Any) -> Any:
    wide = weight(4)
    return L.cond(below(number, 1), lambda: L.matmul(x, wide), lambda: L.concat([x, x * x], 1))


def numbers_of_rows(x: Any, number: Any) -> Any:
    square = weight(3)

    def rows() -> Any:
        return L.matmul(L.gather(x, L.where(L.reduce_sum(x, 1) > 0.0)), square)

    return L.cond(below(number, 1), rows, lambda: L.concat([x, x * x], 0))


def in_turn(x: Any, number: Any) -> Any:
    one, other = weight(4), weight(5)
    sides = {0: lambda: L.matmul(x, one), 1: lambda: x * x}
    return L.switch_case(number, sides, lambda: L.matmul(x * x, other))


def several(x: Any, number: Any) -> Any:
    one, other, square = weight(4), weight(5), weight(3)
    wide, same = L.cond(
        below(number, 1),
        lambda: [L.matmul(x, one), x * 2.0],
        lambda: [L.matmul(x, other), L.matmul(x, square)],
    )
    return L.reduce_sum(wide * wide, 1, keep_dim=True) * same


def one_in_another(x: Any, number: Any) -> Any:
    one, other = weight(4), weight(5)

    def inner() -> Any:
        return L.cond(below(number, 1), lambda: L.matmul(x, one), lambda: x * x)

    return L.cond(below(number, 2), lambda: L.tanh(inner()), lambda: L.matmul(x, other))


def in_a_loop(x: Any, number: Any) -> Any:
    one, other, i = weight(4), weight(5), L.fill_constant([1], "int64", 0)

    def body(i: Any, total: Any) -> list[Any]:
        wide = L.cond(below(i, 1), lambda: L.matmul(total, one), lambda: L.matmul(total, other))
        return [L.increment(i), total * L.reduce_mean(L.tanh(wide))]

    _, total = L.while_loop(lambda i, total: L.less_than(i, number + 1), body, [i, L.scale(x, 1.0)])
    return total


NETS = (
    of_products,
    of_elements,
    one_of_each,
    numbers_of_rows,
    in_turn,
    several,
    one_in_another,
    in_a_loop,
)


class Case:
    """A loss of a net's result, and its gradient, built in a second pass."""

    def __init__(self, net: Callable[..., Any]) -> None:
        self.scope = fluid.Scope()
        with own_programs() as (self.main, self.startup):
            x, number = fluid.data("x", [None, 3], "float64"), fluid.data("number", [1], "int64")
            x.stop_gradient = False
            self.out = net(x, number)
            self.loss = L.reduce_mean(L.square(self.out)) + L.reduce_sum(L.tanh(self.out)) * 0.1
            fluid.gradients(L.reduce_sum(self.out), [x])  # by which names are taken
            (self.slope,) = fluid.gradients(self.loss, [x])
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)

    def run(self, x: np.ndarray, number: int, program: Any = None) -> list[np.ndarray]:
        feed = {"x": x, "number": np.array([number], "int64")}
        fetches = [self.out, self.loss, self.slope]
        return self.exe.run(program or self.main, feed, fetches, scope=self.scope)


ROWS = np.random.RandomState(0).randn(4, 3)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("net", NETS)
def test_gradients_are_slopes(net: Callable[..., Any], number: int) -> None:
    case, way = Case(net), 1e-6 * np.random.RandomState(1).randn(*ROWS.shape)
    _, _, slope = case.run(ROWS, number)
    high, low = (case.run(ROWS + sign * way, number)[1] for sign in (1, -1))
    np.testing.assert_allclose((slope * way).sum() * 2, high - low, rtol=1e-5, atol=1e-14)


def test_the_result_has_the_size_of_the_branch_that_was_taken() -> None:
    case = Case(of_products)
    assert case.out.shape == (-1, -1), "no size that one branch alone has is known before"
    by_size = {number: case.run(ROWS, number)[0] for number in (0, 1, 0)}
    assert [by_size[number].shape for number in (0, 1)] == [(4, 4), (4, 5)]
    weights = [np.random.RandomState(size).randn(3, size) for size in (4, 5)]
    np.testing.assert_allclose(by_size[0], ROWS @ weights[0])
    np.testing.assert_allclose(by_size[1], (ROWS * ROWS) @ weights[1])


@pytest.mark.parametrize("net", NETS)
def test_it_does_on_each_place(gang: str, net: Callable[..., Any]) -> None:
    """Each place's part, as it is alone; under passes that fuse what reads the result."""
    case = Case(net)
    program = on_places(
        case.main,
        2,
        case.loss,
        build=BuildStrategy(fuse_elewise_add_act_ops=True, enable_auto_fusion=True),
    )
    for number in (0, 2):
        out, _, slope = case.run(ROWS, number, program)
        parts = [case.run(rows, number) for rows in (ROWS[:2], ROWS[2:])]
        expected = {"out": np.concatenate([part[0] for part in parts])}
        expected["slope"] = np.concatenate([part[2] for part in parts])
        assert_close({"out": out, "slope": slope}, expected, 1e-9)


def test_a_program_of_paddle_declares_the_size_of_one_branch() -> None:
    """That is the one which is taken where the condition is false."""
    case = Case(of_products)
    case.main.global_block().var(case.out.name).desc.set_shape((-1, 5))
    case.main.touch()
    assert [case.run(ROWS, number)[0].shape for number in (0, 1)] == [(4, 4), (4, 5)]


@pytest.mark.parametrize(
    "other",
    [
        lambda x: L.cast(x, "int64"),
        lambda x: L.reduce_sum(x, 1),
        lambda x: L.array_write(x, L.fill_constant([1], "int64", 0)),
    ],
)
def test_other_types_are_refused(other: Callable[[Any], Any]) -> None:
    x, number = fluid.data("x", [None, 3]), fluid.data("number", [1], "int64")
    with pytest.raises((InvalidValue, TypeError), match=r"true_fn returns.*false_fn"):
        L.cond(below(number, 1), lambda: x * 2.0, lambda: other(x))
