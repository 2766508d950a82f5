"""Branches, recurrent blocks and loops in each other: their gradients are the slopes of what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from tests.programs import own_programs

L = fluid.layers
SHAPE = (3, 2, 3)


def below(x: Any, limit: float) -> Any:
    return L.less_than(L.reduce_sum(x), L.fill_constant([1], "float64", limit))


def over(x: Any, step: Callable[[Any, Any], Any]) -> Any:
    rnn = L.StaticRNN()
    with rnn.step():
        now, h = rnn.step_input(x), rnn.memory(shape=[-1, 3], batch_ref=x)
        new = step(now, h)
        rnn.update_memory(h, new)
        rnn.step_output(new)
    return rnn()


def loop(rounds: int, body: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """Return the last state and the array of all."""
    i, limit = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", rounds)
    states = L.array_write(x, i)
    going = L.less_than(i, limit)
    net = L.While(going)
    with net.block():
        new = body(L.array_read(states, i))
        L.increment(i)
        L.array_write(new, i, states)
        L.less_than(i, limit, cond=going)
    return L.array_read(states, i), states


def net_in_a_branch(x: Any, w: Any, limit: float) -> Any:
    return L.cond(
        below(x, limit),
        lambda: over(x, lambda a, h: L.tanh(L.matmul(h, w) + a)),
        lambda: L.matmul(x * 2.0, w),
    )


def net_of_squares(x: Any, w: Any, limit: float) -> Any:
    return over(x, lambda a, h: L.tanh(L.matmul(h, w) + a * a))


def net_in_a_loop(x: Any, w: Any, limit: float) -> Any:
    return loop(3, lambda h: over(h, lambda a, b: L.tanh(L.matmul(b, w) + a)), x)[0]


def branches_in_a_net(x: Any, w: Any, limit: float) -> Any:
    def inner(a: Any, h: Any) -> Any:
        return L.cond(below(h, 0.1), lambda: L.matmul(a, w) * h + a, lambda: L.sigmoid(h) * a)

    def step(a: Any, h: Any) -> Any:
        taken = below(a, limit / 4)
        return L.cond(taken, lambda: L.tanh(L.matmul(h, w) + a), lambda: inner(a, h))

    return over(x, step)


def loop_in_a_net(x: Any, w: Any, limit: float) -> Any:
    return over(x, lambda a, h: loop(2, lambda s: L.tanh(L.matmul(s, w) + a), h)[0])


def net_in_a_net(x: Any, w: Any, limit: float) -> Any:
    def step(a: Any, h: Any) -> Any:
        inner = over(L.stack([a, h, a * h]), lambda b, k: L.tanh(L.matmul(k, w) + b))
        return L.reduce_sum(inner, dim=0)

    return over(x, step)


def loop_in_a_loop(x: Any, w: Any, limit: float) -> Any:
    return loop(2, lambda h: loop(2, lambda g: L.tanh(L.matmul(g, w)) * h, h)[0], x)[0]


def switch_that_overwrites(x: Any, w: Any, limit: float) -> Any:
    y = L.matmul(x, w)
    z = L.scale(y, 1.0)
    with L.Switch() as switch:
        with switch.case(below(x, limit)):
            L.assign(L.tanh(y) * z, z)
        with switch.default():
            L.assign(L.matmul(z, w), z)
    return z + y


def branch_in_a_loop_that_overwrites(x: Any, w: Any, limit: float) -> Any:
    i, rounds = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 3)

    def body(i: Any, s: Any, t: Any) -> list[Any]:
        other = L.cond(below(s, limit / 2), lambda: s * t, lambda: t + 1.0)
        return [L.increment(i), L.tanh(L.matmul(s, w)) + t, other]

    starts = [i, L.scale(x, 1.0), L.scale(x, 0.5)]
    _, a, b = L.while_loop(lambda i, s, t: L.less_than(i, rounds), body, starts)
    return a * b


def joined_states(x: Any, w: Any, limit: float) -> Any:
    last, states = loop(3, lambda h: L.tanh(L.matmul(h, w)), x)
    flat, _ = L.tensor_array_to_tensor(states, axis=1)
    high, _ = L.tensor_array_to_tensor(states, axis=0, use_stack=True)
    return L.reduce_sum(flat) * last + L.reduce_mean(high * high)


NETS = (
    net_in_a_branch,
    net_of_squares,
    net_in_a_loop,
    branches_in_a_net,
    loop_in_a_net,
    net_in_a_net,
    loop_in_a_loop,
    switch_that_overwrites,
    branch_in_a_loop_that_overwrites,
    joined_states,
)


@pytest.mark.parametrize("limit", [-100.0, 1.5, 100.0])
@pytest.mark.parametrize("net", NETS)
def test_gradients_are_slopes(net: Callable[..., Any], limit: float) -> None:
    draw = np.random.RandomState(0)
    values = {"x": draw.randn(*SHAPE), "w": draw.randn(3, 3) * 0.4}
    with own_programs() as (main, _):
        operands = [fluid.data(name, value.shape, "float64") for name, value in values.items()]
        for operand in operands:
            operand.stop_gradient = False
        weights = L.cast(
            L.assign(np.linspace(-1, 1, 18).reshape(SHAPE).astype("float32")), "float64"
        )
        loss = L.reduce_mean(net(*operands, limit) * weights)
        slopes = fluid.gradients(loss, operands)
    exe = fluid.Executor(fluid.CPUPlace())

    def at(feed: dict[str, Any]) -> float:
        return float(exe.run(main, feed=feed, fetch_list=[loss])[0][0])

    for (name, value), slope in zip(values.items(), exe.run(main, values, slopes), strict=True):
        way = 1e-6 * draw.randn(*value.shape)
        difference = at({**values, name: value + way}) - at({**values, name: value - way})
        np.testing.assert_allclose((slope * way).sum() * 2, difference, rtol=1e-5, atol=1e-14)


@pytest.mark.parametrize("net", NETS)
def test_gradients_of_two_losses_are_slopes_of_each(net: Callable[..., Any]) -> None:
    """A step's value has the name of its sequence, of which the pass before declared a gradient."""
    draw = np.random.RandomState(0)
    values = {"x": draw.randn(*SHAPE), "w": draw.randn(3, 3) * 0.4}
    with own_programs() as (main, _):
        operands = [fluid.data(name, value.shape, "float64") for name, value in values.items()]
        for operand in operands:
            operand.stop_gradient = False
        y = net(*operands, 1.5)
        losses = [L.reduce_mean(y * y), L.reduce_mean(L.tanh(y))]
        slopes = [fluid.gradients(loss, operands) for loss in (*losses, losses[0])]
    exe = fluid.Executor(fluid.CPUPlace())
    first, second, again = (exe.run(main, values, of_loss) for of_loss in slopes)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    for k, (name, value) in enumerate(values.items()):
        way = 1e-6 * draw.randn(*value.shape)
        high, low = (exe.run(main, {**values, name: v}, losses) for v in (value + way, value - way))
        for slope, up, down in zip((first[k], second[k]), high, low, strict=True):
            np.testing.assert_allclose((slope * way).sum() * 2, up - down, rtol=1e-5, atol=1e-14)
