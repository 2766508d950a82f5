"""Variables that are written again: gradients are the slopes of what each op read, and go no further back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import Unsupported
from tests.programs import on_places, own_programs

L = fluid.layers


def overwritten_by_its_square(x: Any, limit: float) -> Any:
    v = x * 3.0
    L.assign(v * v, v)
    return v


def overwritten_by_another(x: Any, limit: float) -> Any:
    """The first value of v is read by u alone."""
    v, y = x * 3.0, x * 2.0
    u = v * v
    L.assign(y, v)
    return v * u


def never_read(x: Any, limit: float) -> Any:
    v = x * 3.0
    L.assign(x * 2.0, v)
    return v


def overwritten_by_a_constant(x: Any, limit: float) -> Any:
    v = x * 3.0
    u = L.tanh(v)
    L.assign(L.zeros_like(x) + 0.5, v)
    return v * u


def summed_into_itself(x: Any, limit: float) -> Any:
    v = x * 3.0
    u = v * v
    for _ in range(2):
        L.sums([u, v], out=v)
    return v * v * u


def summed_with_itself(x: Any, limit: float) -> Any:
    v = x * 3.0
    u = v * v
    L.sums([v, u, v], out=v)
    return v * v * u


def summed_with_itself_in_a_branch(x: Any, limit: float) -> Any:
    v = x * 1.0

    def double() -> Any:
        L.sums([v, v], out=v)
        return v * 1.0

    u = L.cond(_below(v, limit), lambda: v * 2.0, double)
    return v * 3.0 + u


def overwritten_twice(x: Any, limit: float) -> Any:
    v = x * 3.0
    u = v * v
    L.assign(L.tanh(u), v)
    w = v * u
    L.assign(L.tanh(w), v)
    return v * v * u


def in_a_branch_that_returns_it(x: Any, limit: float) -> Any:
    v = x * 1.0

    def square() -> Any:
        L.assign(v * v, v)
        return v

    u = L.cond(_below(v, limit), lambda: v, square)
    return v * 3.0 + u


def in_a_branch_that_reads_it_behind(x: Any, limit: float) -> Any:
    v = x * 1.0

    def square() -> Any:
        L.assign(v * v, v)
        return v * 1.0

    u = L.cond(_below(v, limit), lambda: v * 2.0, square)
    return v * 3.0 + u


def in_a_round_that_reads_it_behind(x: Any, limit: float) -> Any:
    v, total = L.tanh(x), x * 0.5

    def one() -> None:
        L.assign(L.sigmoid(total), v)
        L.assign(L.tanh(v * x), total)

    _three_rounds(one)
    return v + total


def read_by_the_next_round_alone(x: Any, limit: float) -> Any:
    """Nothing behind the loop reads v; a round reads it again when it has written it."""
    v, w = x * 1.0, x * 2.0

    def one() -> None:
        L.assign(L.tanh(v + x), v)
        L.assign(L.tanh(v), w)

    _three_rounds(one)
    return w


def read_by_the_next_round_of_unknown_many(x: Any, limit: float) -> Any:
    v, w = x * 1.0, x * 2.0

    def one() -> None:
        L.assign(L.tanh(v + x), v)
        L.assign(L.tanh(v), w)

    _three_rounds(one, plus=L.cast(L.reduce_sum(x) * 0.0, "int64"))
    return w


def last_value_of_a_state_unread(x: Any, limit: float) -> Any:
    v, written = x * 1.0, L.create_array("float64")
    i = L.fill_constant([1], "int64", 0)

    def one() -> None:
        new = L.tanh(v + x)
        L.array_write(new, i, written)
        L.assign(new, v)

    _three_rounds(one)
    return L.array_read(written, i)


def overwritten_in_a_branch_of_a_round(x: Any, limit: float) -> Any:
    v, w = x * 1.0, x * 2.0

    def double() -> Any:
        L.sums([v, v], out=v)
        return v

    def one() -> None:
        L.cond(_below(x, limit), double, lambda: v)
        L.assign(L.tanh(v), w)

    _three_rounds(one)
    return w


def overwritten_behind_a_branch_that_overwrites_it(x: Any, limit: float) -> Any:
    v, w = x * 1.5, x * 0.3

    def one() -> None:
        L.assign(v + x, v)
        L.assign(L.tanh(x), w)

    L.cond(_below(x, limit), one)
    L.assign(w * x, v)
    return v


def read_and_overwritten_in_a_round(x: Any, limit: float) -> Any:
    v, w = x * 1.5, x * x

    def one() -> None:
        L.sums([v, v], out=v)
        L.assign(L.tanh(w), v)
        L.assign(L.tanh(v), w)

    _three_rounds(one)
    return v * w


def overwritten_by_a_constant_in_a_branch(x: Any, limit: float) -> Any:
    v = L.sigmoid(x)

    def branch() -> None:
        L.assign(L.fill_constant([3, 2], "float64", 0.7), v)

    L.cond(_below(x, limit), branch)
    return L.tanh(v) * x


def overwritten_by_a_constant_in_a_branch_of_a_branch(x: Any, limit: float) -> Any:
    v = L.sigmoid(x)

    def inner() -> None:
        L.assign(L.fill_constant([3, 2], "float64", 0.7), v)

    L.cond(_below(x, 100.0), lambda: L.cond(_below(x, limit), inner))
    return L.tanh(v) * x


def overwritten_by_a_constant_in_rounds(x: Any, limit: float) -> Any:
    v = L.sigmoid(x)

    def step() -> None:
        L.assign(L.fill_constant([3, 2], "float64", 0.7), v)

    _three_rounds(step)
    return L.tanh(v) * x


def overwritten_by_a_constant_in_rounds_of_unknown_many(x: Any, limit: float) -> Any:
    v = L.sigmoid(x)

    def step() -> None:
        L.assign(L.fill_constant([3, 2], "float64", 0.7), v)

    rounds = L.cast(_below(x, limit), "int64") * 4 - 3  # one more than three, or none
    _three_rounds(step, rounds)
    return L.tanh(v) * x


def overwritten_in_a_branch_of_a_branch(x: Any, limit: float) -> Any:
    v, w = L.sigmoid(x), x * 1.5

    def inner() -> None:
        L.assign(L.tanh(w), v)

    L.cond(_below(x, 100.0), lambda: L.cond(_below(x, limit), inner))
    return L.tanh(v) * w


def read_before_a_branch_that_overwrites_it_and_twice_behind(x: Any, limit: float) -> Any:
    v = x * 1.5
    w = v + x

    def branch() -> None:
        L.assign(L.tanh(w), v)

    L.cond(_below(x, limit), branch)
    return L.square(v) * 0.3 + L.sigmoid(v)


def _three_rounds(one: Callable[[], None], plus: Any = None) -> None:
    i, rounds = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 3)
    if plus is not None:
        rounds = rounds + plus
    going = L.less_than(i, rounds)
    with L.While(going).block():
        one()
        L.increment(i)
        L.less_than(i, rounds, cond=going)


def _below(x: Any, limit: float) -> Any:
    return L.less_than(L.reduce_sum(x), L.fill_constant([1], "float64", limit))


NETS = (
    overwritten_by_its_square,
    overwritten_by_another,
    never_read,
    overwritten_by_a_constant,
    summed_into_itself,
    summed_with_itself,
    summed_with_itself_in_a_branch,
    overwritten_twice,
    in_a_branch_that_returns_it,
    in_a_branch_that_reads_it_behind,
    in_a_round_that_reads_it_behind,
    read_by_the_next_round_alone,
    read_by_the_next_round_of_unknown_many,
    last_value_of_a_state_unread,
    overwritten_in_a_branch_of_a_round,
    overwritten_behind_a_branch_that_overwrites_it,
    read_and_overwritten_in_a_round,
    overwritten_by_a_constant_in_a_branch,
    overwritten_by_a_constant_in_a_branch_of_a_branch,
    overwritten_by_a_constant_in_rounds,
    overwritten_by_a_constant_in_rounds_of_unknown_many,
    overwritten_in_a_branch_of_a_branch,
    read_before_a_branch_that_overwrites_it_and_twice_behind,
)


@pytest.mark.parametrize("limit", [-100.0, 100.0])
@pytest.mark.parametrize("net", NETS)
def test_gradients_are_slopes(net: Callable[[Any, float], Any], limit: float) -> None:
    draw = np.random.RandomState(0)
    value = draw.randn(3, 2)
    with own_programs() as (main, _):
        x = fluid.data("x", [3, 2], "float64")
        x.stop_gradient = False
        loss = L.reduce_mean(net(x, limit))
        slopes = fluid.gradients(loss, [x])
    exe = fluid.Executor(fluid.CPUPlace())
    way = 1e-6 * draw.randn(3, 2)
    (slope,) = exe.run(main, {"x": value}, slopes)
    above, below = (exe.run(main, {"x": value + s * way}, [loss])[0] for s in (1, -1))
    difference = float((above - below)[0])
    np.testing.assert_allclose((slope * way).sum() * 2, difference, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("where", ["outside", "in_a_branch"])
def test_gradients_read_what_a_persistable_held(where: str, places: int, threads: None) -> None:
    draw = np.random.RandomState(0)
    value, way, weights = draw.randn(4, 2), 1e-6 * draw.randn(4, 2), draw.randn(2, 2)
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 2], "float64")
        x.stop_gradient = False
        w = L.create_parameter([2, 2], "float64", name="w")
        v = L.matmul(x, w)
        if where == "outside":
            L.assign(w * 3.0, w)
        else:
            L.cond(_below(w, 100.0), lambda: L.assign(w * 3.0, w), lambda: L.assign(w + 0.0, w))
        loss = L.reduce_mean(L.square(L.matmul(v, w)))
        (slope,) = fluid.gradients(loss, [x])
    exe, program, scope = fluid.Executor(fluid.CPUPlace()), main, fluid.Scope()
    exe.run(startup, scope=scope)
    if places > 1:
        program = on_places(main, places, loss)

    def run(value: Any, fetches: Any) -> Any:
        scope.find_var("w").get_tensor().set(weights, fluid.CPUPlace())
        return exe.run(program, {"x": value}, [fetches], scope=scope)[0]

    slope = run(value, slope) / places
    above, below = (run(value + s * way, loss).mean() for s in (1, -1))
    np.testing.assert_allclose((slope * way).sum() * 2, above - below, rtol=1e-4)
    np.testing.assert_allclose(
        np.array(scope.find_var("w").get_tensor()), weights * 3.0, rtol=1e-12
    )


def scaled(x: Any, w: Any) -> Any:
    v = L.tanh(L.matmul(x, w))
    L.assign(w * 3.0, w)
    return L.matmul(L.tanh(v), w)


def scaled_by_what_it_gave(x: Any, w: Any) -> Any:
    v = L.matmul(x, w)
    L.assign(L.elementwise_mul(w, L.reduce_sum(L.square(v))), w)
    return L.tanh(L.matmul(v, w))


def written_twice(x: Any, w: Any) -> Any:
    v = L.square(L.matmul(x, w))
    L.assign(L.tanh(w), w)
    u = L.square(L.matmul(v, w))
    L.sums([w, w * w], out=w)
    return u * L.matmul(x, w)


def read_alone(x: Any, w: Any) -> Any:
    return L.tanh(L.matmul(x, w) * L.matmul(x, w))


@pytest.mark.parametrize("when", ["before", "between", "behind"])
@pytest.mark.parametrize("net", [scaled, scaled_by_what_it_gave, written_twice, read_alone])
def test_gradients_of_gradients_read_what_a_persistable_held(
    net: Callable[[Any, Any], Any], when: str
) -> None:
    """It is overwritten before the first gradients alone, before the second ones, too, or behind the loss."""
    draw = np.random.RandomState(0)
    points, ways = ([draw.randn(4, 2), draw.randn(2, 2)] for _ in range(2))
    with own_programs() as (main, startup):
        x = fluid.data("x", [4, 2], "float64")
        x.stop_gradient = False
        w = L.create_parameter([2, 2], "float64", name="w")
        y = net(x, w)
        (slope,) = fluid.gradients(L.reduce_mean(L.tanh(y)), [x])
        if when == "between":
            L.assign(w * 0.5 + 1.0, w)
        loss = L.reduce_mean(L.square(slope) * L.matmul(x, w) + y * x)
        if when == "behind":
            L.assign(w * 0.5 + 1.0, w)
        slopes = fluid.gradients(loss, [x, w])
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)

    def run(value: Any, weights: Any, fetches: Any) -> list[np.ndarray]:
        scope.find_var("w").get_tensor().set(weights, fluid.CPUPlace())
        return exe.run(main, {"x": value}, fetches, scope=scope)

    for k, slope in enumerate(run(*points, slopes)):
        steps = [1e-6 * way * (i == k) for i, way in enumerate(ways)]
        above, below = (
            run(points[0] + s * steps[0], points[1] + s * steps[1], [loss])[0] for s in (1, -1)
        )
        expected = (above - below).item()
        np.testing.assert_allclose((slope * steps[k]).sum() * 2, expected, 1e-4, err_msg=str(k))


def test_gradients_of_gradients_of_a_persistable_that_a_branch_overwrites_are_refused() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [4, 2], "float64")
        x.stop_gradient = False
        w = L.create_parameter([2, 2], "float64", name="w")
        y = L.square(L.matmul(x, w))
        L.cond(_below(w, 1.0), lambda: L.assign(w * 3.0, w), lambda: L.assign(w + 0.0, w))
        (slope,) = fluid.gradients(y, [x])
        loss = L.reduce_mean(L.square(slope))
        words = (
            r"matmul_grad \(built at .*test_overwritten.*'w', which conditional_block .*overwrites"
        )
        with pytest.raises(Unsupported, match=words):
            fluid.gradients(loss, [x])


@pytest.mark.parametrize("known", [True, False], ids=["known_rounds", "rounds_of_data"])
def test_each_pass_over_a_loop_begins_where_its_counter_ended(known: bool) -> None:
    draw = np.random.RandomState(0)
    value, way = 0.5 * draw.randn(3, 2), 1e-6 * draw.randn(3, 2)
    with own_programs() as (main, _):
        x = fluid.data("x", [3, 2], "float64")
        x.stop_gradient = False
        i, rounds = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 3)
        if not known:
            rounds = rounds + L.cast(L.reduce_sum(x) * 0.0, "int64")
        entries, going = L.array_write(x * 1.0, i), L.less_than(i, rounds)
        with L.While(going).block():
            v = L.array_read(entries, i)
            L.increment(i)
            L.array_write(L.tanh(v * v + x), i, entries)
            L.less_than(i, rounds, cond=going)
        y = L.array_read(entries, i)
        losses = [L.reduce_mean(y * y), L.reduce_mean(L.tanh(y))]
        slopes = [fluid.gradients(loss, [x])[0] for loss in (*losses, losses[0])]
    exe = fluid.Executor(fluid.CPUPlace())
    first, second, again = (float((s * way).sum() * 2) for s in exe.run(main, {"x": value}, slopes))
    above, below = (exe.run(main, {"x": value + s * way}, losses) for s in (1, -1))
    expected = [float(np.ravel(a - b)[0]) for a, b in zip(above, below, strict=True)]
    np.testing.assert_allclose([first, second], expected, rtol=1e-4, atol=1e-12)
    assert again == first


def test_each_pass_over_steps_of_sequences_gives_slopes() -> None:
    draw = np.random.RandomState(0)
    value, way = 0.5 * draw.randn(5, 2), 1e-6 * draw.randn(5, 2)
    with own_programs() as (main, _):
        x = fluid.data("x", [None, 2], "float64", lod_level=1)
        x.stop_gradient = False
        net = L.DynamicRNN()
        with net.block():
            step = net.step_input(x)
            state = net.memory(shape=[2], value=0.1, dtype="float64")
            new = L.tanh(step * step + state)
            net.update_memory(state, new)
            net.output(new)
        losses = [L.reduce_mean(net() * 2.0), L.reduce_mean(L.tanh(net()))]
        slopes = [fluid.gradients(loss, [x])[0] for loss in losses]
    exe = fluid.Executor(fluid.CPUPlace())

    def run(value: Any, fetches: Any) -> Any:
        feed = {"x": fluid.create_lod_tensor(value, [[2, 3]], fluid.CPUPlace())}
        values = exe.run(main, feed, fetches, return_numpy=False)
        return [np.array(value) for value in values]

    above, below = (run(value + s * way, losses) for s in (1, -1))
    for slope, high, low in zip(run(value, slopes), above, below, strict=True):
        difference = float(np.ravel(high - low)[0])
        np.testing.assert_allclose((slope * way).sum() * 2, difference, rtol=1e-4, atol=1e-12)


OF_ONE_BLOCK = (
    overwritten_by_its_square,
    overwritten_by_another,
    never_read,
    overwritten_by_a_constant,
    summed_into_itself,
    summed_with_itself,
    overwritten_twice,
)


@pytest.mark.parametrize("net", OF_ONE_BLOCK)
def test_gradients_of_gradients_are_slopes(net: Callable[[Any, float], Any]) -> None:
    draw = np.random.RandomState(0)
    value, way = draw.randn(3, 2), 1e-6 * draw.randn(3, 2)
    with own_programs() as (main, _):
        x = fluid.data("x", [3, 2], "float64")
        x.stop_gradient = False
        y = net(x, 0.0)
        (slope,) = fluid.gradients(L.reduce_mean(L.tanh(y)), [x])
        L.assign(y * slope, y)
        penalty = L.reduce_mean(L.square(slope) + y * x)
        (slope_of_it,) = fluid.gradients(penalty, [x])
    exe = fluid.Executor(fluid.CPUPlace())
    (computed,) = exe.run(main, {"x": value}, [slope_of_it])
    above, below = (exe.run(main, {"x": value + s * way}, [penalty])[0] for s in (1, -1))
    difference = float((above - below)[0])
    np.testing.assert_allclose((computed * way).sum() * 2, difference, rtol=1e-4, atol=1e-12)


def test_the_gradient_of_a_variable_is_that_of_its_first_value_that_has_one() -> None:
    with own_programs() as (main, _):
        x = fluid.data("x", [2], "float64")
        x.stop_gradient = False
        v, w = x * 3.0, x * 1.0
        loss = L.reduce_sum(v * v)
        L.assign(x, w)
        loss = loss + L.reduce_sum(w * 5.0)
        L.assign(x, v)
        slopes = fluid.gradients(loss, [v, w])
    values = fluid.Executor(fluid.CPUPlace()).run(main, {"x": np.array([1.0, 2.0])}, [*slopes, v])
    np.testing.assert_array_equal(values, [[6.0, 12.0], [5.0, 5.0], [1.0, 2.0]])


def random_net(seed: int, branches: bool) -> tuple[str, Callable[[Any], list[Any]]]:
    """Draw a net that writes variables again, as text to print and as a function from x to its variables.

    ``branches``: it holds branches and loops, too, which have no gradients of gradients.
    """
    draw = np.random.RandomState(seed)

    def lines(names: list[str], count: int, depth: int) -> Iterator[str]:
        for _ in range(count):
            a, b, target = draw.choice(names[-4:]), draw.choice(names), draw.choice(names[1:])
            value = str(draw.choice(EXPRESSIONS)).format(a=a, b=b)
            form = draw.randint(8 if branches and depth < 2 else 6)
            if form < 3:
                names = [*names, f"v{draw.randint(10**6)}"]
                yield f"{names[-1]} = {value}"
            elif form < 5:
                yield f"L.assign({value}, {target})"
            elif form == 5:
                yield f"L.sums([{a}, {target}, {draw.choice([b, target])}], out={target})"
            else:
                yield "def block():"
                for line in lines(names, 3, depth + 1):
                    yield f"    {line}"
                yield f"    L.assign(L.tanh({b}), {target})"
                limit = draw.choice([-100.0, 100.0])
                yield "_three_rounds(block)" if form == 6 else f"L.cond(_below(x, {limit}), block)"

    text = "\n".join(["v0, w0 = x * 1.5, L.sigmoid(x)", *lines(["x", "v0", "w0"], 8, 0)])

    def build(x: Any) -> list[Any]:
        space = dict(L=L, x=x, _three_rounds=_three_rounds, _below=_below)
        exec(text, space)
        return [space["v0"], space["w0"]]

    return text, build


EXPRESSIONS = (
    "L.tanh({a})", "L.sigmoid({a})", "{a} * {b}", "{a} + {b}", "L.softmax({a})", "L.square({a}) * 0.3",
    "L.elementwise_div({a}, L.square({b}) + 1.0)", "L.matmul({a}, L.tanh({b}), transpose_y=True)",
    "L.concat([L.slice({a}, [1], [0], [1]), L.slice({b}, [1], [1], [2])], axis=1)", "L.scale({a}, 0.5, 0.1)",
)  # fmt: skip


@pytest.mark.parametrize(
    ("seed", "skips"), [*((s, False) for s in range(24)), *((s, True) for s in range(0, 24, 2))]
)
def test_gradients_of_random_nets_are_slopes(
    seed: int, skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of even seeds hold branches and loops; of others the gradient is differentiated again.

    ``skips``: branches run where they are taken alone, light ones, too.
    """
    if skips:
        monkeypatch.setattr("rowlock.graph.ir.branches._is_light", lambda block: False)
    draw = np.random.RandomState(seed)
    text, build = random_net(seed, branches=seed % 2 == 0)
    value, way = 0.5 * draw.randn(2, 2), 1e-6 * draw.randn(2, 2)
    with own_programs() as (main, _):
        x = fluid.data("x", [2, 2], "float64")
        x.stop_gradient = False
        v, w = build(x)
        loss = L.reduce_mean(L.tanh(v) * L.sigmoid(w))
        if seed % 2:
            (slope,) = fluid.gradients(loss, [x])
            loss = L.reduce_mean(L.square(slope) * w) + loss
        (slope,) = fluid.gradients(loss, [x])
    exe = fluid.Executor(fluid.CPUPlace())
    (computed,) = exe.run(main, {"x": value}, [slope])
    above, below = (exe.run(main, {"x": value + s * way}, [loss])[0] for s in (1, -1))
    difference = (above - below).item()
    np.testing.assert_allclose((computed * way).sum() * 2, difference, 1e-4, 1e-11, err_msg=text)
