"""Loops whose rounds only a step tells: numbers, gradients, arrays, sequences, places, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.host import deadline
from rowlock.executor.replica.host_call import HostCall
from rowlock.graph.ir.loops import Loops
from rowlock.graph.ir.recurrent import Recurrence
from rowlock.strategies.errors import ExecutionError, InvalidType
from tests.contract.conftest import ON_BOTH
from tests.programs import executor_after, on_places, own_programs
from tests.reference import control_flow_cases as nets

L = fluid.layers
RECORD = json.loads(Path(nets.__file__).with_name("control_flow.json").read_text())
LOOPS = [name for name in RECORD if name != "trained"]


pytestmark = pytest.mark.usefixtures("fresh_programs")


def run(feed: dict[str, Any], fetches: list[Any]) -> list[np.ndarray]:
    exe = executor_after()
    return exe.run(feed=feed, fetch_list=fetches)


def counted(limit: Any) -> tuple[Any, Any, Any]:
    """Return a loop that counts to ``limit``, its counter and its condition."""
    i = L.fill_constant([1], "int64", 0)
    going = L.less_than(i, limit)
    return L.While(going), i, going


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_while_loop_counts_to_what_is_fed(rounds: int) -> None:
    n = fluid.data("n", [1], "int64")
    i, total = (L.fill_constant([1], "int64", 0) for _ in range(2))
    out = L.while_loop(lambda i, t: i < n, lambda i, t: [i + 1, t + i], [i, total])
    values = run({"n": np.array([rounds])}, out)
    assert [int(v[0]) for v in values] == [rounds, sum(range(rounds))]


@pytest.mark.parametrize("shape", [[None], [None, 1]])
def test_that_a_condition_is_one_element_may_be_known_in_a_step(shape: list[Any]) -> None:
    loop, i, going = counted(n := fluid.data("n", shape, "int64"))
    with loop.block():
        L.less_than(L.increment(i, 1), n, cond=going)
    exe, ones = fluid.Executor(fluid.CPUPlace()), [1] * (len(shape) - 1)

    def rounds(*limits: int) -> int:
        feed = {"n": np.array(limits).reshape(-1, *ones)}
        return int(exe.run(feed=feed, fetch_list=[i])[0][0])

    assert rounds(3) == 3
    with pytest.raises(ExecutionError, match=r"while.*must have one element, .* shape \[2"):
        rounds(3, 4)
    assert rounds(2) == 2


def test_a_loop_reads_parameters_and_writes_an_array() -> None:
    x, n = fluid.data("x", [None, 4]), fluid.data("n", [1], "int64")
    state, entries = L.assign(x), L.create_array("float32")
    loop, i, going = counted(n)
    with loop.block():
        after = L.fc(state, 4, act="tanh", param_attr="w", bias_attr=False)
        L.array_write(after, i, entries)
        L.assign(after, state)
        L.increment(i)
        L.less_than(i, n, cond=going)
    stacked, _ = L.tensor_array_to_tensor(entries, axis=0, use_stack=True)
    last = L.array_read(entries, i - 1)
    fed = np.ones((2, 4), "float32")
    out = run({"x": fed, "n": np.array([3])}, [state, stacked, L.array_length(entries), last])
    weight = np.array(fluid.global_scope().find_var("w").get_tensor())
    states = [fed]
    for _ in range(3):
        states.append(np.tanh(states[-1] @ weight))
    np.testing.assert_allclose(out[0], states[-1], rtol=1e-5)
    np.testing.assert_allclose(out[1], states[1:], rtol=1e-5)
    assert out[2].tolist() == [3]
    np.testing.assert_array_equal(out[3], out[0])


def test_what_is_carried_may_grow_and_loops_may_nest() -> None:
    n = fluid.data("n", [1], "int64")
    rows = L.fill_constant([1, 2], "float32", 1.0)
    outer, i, going = counted(n)
    with outer.block():
        inner, j, more = counted(i + 1)
        with inner.block():
            L.assign(L.concat([rows, L.cast(j, "float32") * L.ones([1, 2], "float32")]), rows)
            L.increment(j)
            L.less_than(j, i + 1, cond=more)
        L.increment(i)
        L.less_than(i, n, cond=going)
    (value,) = run({"n": np.array([3])}, [rows])
    assert value[:, 0].tolist() == [1, 0, 0, 1, 0, 1, 2]


def test_what_grows_may_be_compiled_with_every_switch(tmp_path: Path) -> None:
    """Sizes that change from round to round are unknown; the picture of a block is a file of its own."""
    n = fluid.data("n", [1], "int64")
    grown, rows = L.fill_constant([2, 0], "float32", 0.0), L.fill_constant([2, 3], "float32", 1.0)
    loop, i, going = counted(n)
    with loop.block():
        longer = L.concat([grown, L.relu(rows + L.cast(i, "float32"))], 1)
        L.assign(longer, grown)
        L.increment(i)
        L.less_than(i, n, cond=going)
    out = L.reduce_sum(grown, dim=1)
    strategy = fluid.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = strategy.enable_auto_fusion = True
    strategy.debug_graphviz_path = str(tmp_path / "net")
    program = on_places(fluid.default_main_program(), 2, build=strategy)
    with rowlock.cluster(launcher="threads"):
        feed = [{"n": np.array([rounds])} for rounds in (3, 1)]
        (sums,) = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=[out])
    assert sums.tolist() == [18, 18, 3, 3]
    whole, block = ((tmp_path / f"net{part}_original_graph").read_text() for part in ("", "_loop0"))
    assert "concat" not in whole and "concat" in block


@pytest.mark.parametrize("switch", ["", "fuse_gemm_epilogue", "fuse_elewise_add_act_ops"])
def test_what_grows_trains_on_two_places(switch: str) -> None:
    """What it begins with has another gradient, too, which has the size that it had then."""
    x, n = fluid.data("x", [None, 4]), fluid.data("n", [1], "int64")
    state = L.fc(x, 4, act="relu", param_attr=fluid.initializer.Constant(0.1))
    beside = L.reduce_mean(state)
    start = [L.fill_constant([1], "int64", 0), state]
    _, grown = L.while_loop(lambda i, s: i < n, lambda i, s: [i + 1, L.concat([s, s], 1)], start)
    assert grown.shape == (-1, -1)
    loss = L.reduce_mean(L.square(L.reduce_sum(grown, 1))) + beside
    fluid.optimizer.SGD(0.0001).minimize(loss)
    feed = {"x": np.ones((1, 4), "float32"), "n": np.array([3])}
    exe = executor_after()
    with rowlock.cluster(launcher="threads"):
        strategy = fluid.BuildStrategy(**{switch: True} if switch else {})
        program = on_places(fluid.default_main_program(), 2, loss, build=strategy)
        losses = [exe.run(program, [feed, feed], [loss])[0].mean() for _ in range(3)]
    assert losses == sorted(losses, reverse=True)


def test_a_round_keeps_the_type_of_what_is_carried() -> None:
    n, total = fluid.data("n", [1], "int64"), L.fill_constant([1], "float32", 0.0)
    i = L.fill_constant([1], "int64", 0)
    with pytest.raises(InvalidType, match=r"while_loop: body returns .*INT64.* for .*FP32"):
        L.while_loop(lambda i, t: i < n, lambda i, t: [i + 1, L.cast(t, "int64")], [i, total])


def test_a_block_keeps_the_type_of_what_it_carries() -> None:
    n, total = fluid.data("n", [1], "int64"), L.fill_constant([1], "float32", 0.0)
    loop, i, going = counted(n)
    with loop.block():
        L.assign(L.cast(total, "int32"), total)
        L.increment(i)
        L.less_than(i, n, cond=going)
    with pytest.raises(
        InvalidType, match=r"while: .* is FP32\[1\] before a round and INT32\[1\] behind"
    ):
        run({"n": np.array([2])}, [total])


def test_a_loop_ends_by_what_it_computes() -> None:
    x = fluid.data("x", [1])
    going = L.less_than(x, L.fill_constant([1], "float32", 100))
    value, loop = L.assign(x), L.While(going)
    with loop.block():
        L.assign(value * 2, value)
        L.less_than(value, L.fill_constant([1], "float32", 100), cond=going)
    assert run({"x": np.float32([3])}, [value])[0] == [192]


def test_entries_keep_their_sequences() -> None:
    words, n = fluid.data("words", [None, 1], "int64", lod_level=1), fluid.data("n", [1], "int64")
    entries = L.array_write(words, L.fill_constant([1], "int64", 0))
    loop, i, going = counted(n)
    with loop.block():
        entry = L.array_read(entries, i)
        L.increment(i)
        L.array_write(L.sequence_concat([entry, entry]), i, entries)
        L.less_than(i, n, cond=going)
    last = L.array_read(entries, i)
    sums = L.sequence_pool(L.cast(last, "float32"), "sum")
    fed = fluid.create_lod_tensor(np.arange(3).reshape(3, 1), [[1, 2]], fluid.CPUPlace())
    out = run({"words": fed, "n": np.array([2])}, [sums])
    assert out[0].ravel().tolist() == [0, 12]


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("array", [True, False])
def test_rows_become_sequences_from_round_to_round(array: bool, places: int) -> None:
    """Of an array's entries only the first has no sequences; so of what a round hands to the next."""
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], lod_level=1)
    n = fluid.data("n", [1], "int64")
    x.stop_gradient = False
    loop, i, going = counted(n)
    i.stop_gradient = True
    state = L.assign(x)
    states = L.array_write(state, i)
    with loop.block():
        around = L.sequence_expand(L.array_read(states, i) if array else state, y)
        weight = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.4))
        after = L.lod_reset(L.fc(around, 2, act="tanh", param_attr=weight, bias_attr=False), y)
        L.increment(i)
        L.array_write(after, i, states) if array else L.assign(after, state)
        L.less_than(i, n, cond=going)
    last = L.array_read(states, i) if array else state
    loss = L.mean(last)
    fluid.optimizer.SGD(1.0).minimize(loss)
    program = fluid.default_main_program()
    if places > 1:
        compiled = fluid.CompiledProgram(program)
        program = compiled.with_data_parallel(loss.name, places=fluid.cpu_places(2))
    rows = (np.arange(8).reshape(4, 2) / 10).astype("float32")
    ones = fluid.create_lod_tensor(np.zeros((4, 1), "float32"), [[1] * 4], fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    with rowlock.cluster(launcher="threads"):
        for rounds in (1, 3, 0):
            exe.run(fluid.default_startup_program())
            feed = {"x": rows, "y": ones, "n": np.array([rounds])}
            (value,) = exe.run(program, feed=feed, fetch_list=[last], return_numpy=False)
            hidden, w = [rows], np.full((2, 2), 0.4)
            for _ in range(rounds):
                hidden.append(np.tanh(hidden[-1] @ w))
            np.testing.assert_allclose(np.array(value), hidden[-1], rtol=1e-5)
            assert value.recursive_sequence_lengths() == ([[1] * 4] if rounds else [])
            above, slope = np.full((4, 2), 1 / 8), np.zeros((2, 2))
            for before, behind in zip(hidden[-2::-1], hidden[:0:-1], strict=True):
                above = above * (1 - behind**2)
                slope, above = slope + before.T @ above, above @ w.T
            trained = np.array(fluid.global_scope().find_var("w").get_tensor())
            np.testing.assert_allclose(trained, w - slope, rtol=1e-5)


def test_an_entry_that_was_not_written_is_named() -> None:
    n = fluid.data("n", [1], "int64")
    entries = L.array_write(L.cast(n, "float32"), n)
    out = L.array_read(entries, n - 1)
    with pytest.raises(ExecutionError, match=r"entry 1 of the array 'array_write_0.out' was never"):
        run({"n": np.array([2])}, [out])
    with pytest.raises(ExecutionError, match="has no entry -1"):
        run({"n": np.array([0])}, [out])


def test_explain_tells_of_the_cut() -> None:
    n = fluid.data("n", [1], "int64")
    (out,) = L.while_loop(lambda i: i < n, lambda i: i + 1, [L.fill_constant([1], "int64", 0)])
    program = fluid.CompiledProgram(fluid.default_main_program())
    fluid.Executor().run(program, feed={"n": np.array([1])}, fetch_list=[out])
    assert "cut into 2 segments, for what runs between them (while, built at" in str(
        program.explain()
    )


@pytest.mark.parametrize("name", LOOPS)
def test_loops_that_could_be_unrolled_have_the_same_numbers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loops, "_unrolled", lambda reader, op: None)
    monkeypatch.setattr(Recurrence, "_steps", lambda reader, op: None)
    main, startup, fetches = nets.build(fluid, name)
    exe = executor_after(startup)
    for feed, expected in zip(nets.feeds(main), RECORD[name]["steps"], strict=True):
        values = exe.run(main, feed=feed, fetch_list=fetches)
        for value, reference in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, reference, rtol=1e-5, atol=1e-6)


def test_steps_as_many_as_the_longest_sequence_begin_with_a_parameter() -> None:
    x = fluid.data("x", [None, 2], lod_level=1)
    padded, _ = L.sequence_pad(x, L.assign(np.zeros(1, "float32")))
    start = fluid.ParamAttr("start", initializer=fluid.initializer.Constant(0.5))
    rnn = L.StaticRNN()
    first, steps = L.create_parameter([2, 2], "float32", attr=start), L.transpose(padded, [1, 0, 2])
    with rnn.step():
        before = rnn.memory(init=first)
        behind = before * 2.0 + rnn.step_input(steps)
        rnn.update_memory(before, behind)
        rnn.step_output(behind)
    out = rnn()
    fluid.optimizer.SGD(0.1).minimize(L.reduce_sum(out))
    for lengths, last in (([3, 1], [11, 8]), ([1, 2], [4, 5])):
        rows = np.ones((sum(lengths), 2), "float32")
        feed = {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}
        value, slope = run(feed, [out, "start@GRAD"])
        np.testing.assert_allclose(value[-1], np.array([last, last]).T)
        np.testing.assert_allclose(slope, np.full((2, 2), 2.0 ** (max(lengths) + 1) - 2))


def test_where_all_sequences_are_empty_no_step_is_made(threads: None) -> None:
    """Results have no steps, and as many rows as there are sequences; gradients come from other places."""
    x = fluid.data("x", [None, 2], lod_level=1)
    padded, _ = L.sequence_pad(L.fc(x, 2, bias_attr=False), L.assign(np.zeros(1, "float32")))
    steps, rnn = L.transpose(padded, [1, 0, 2]), L.StaticRNN()
    with rnn.step():
        word = rnn.step_input(steps)
        before = rnn.memory(shape=[-1, 2], batch_ref=word)
        rnn.update_memory(before, L.fc([word, before], 2, act="tanh"))
        rnn.step_output(L.concat([word, before], 1))
    out = rnn()
    loss = L.mean(L.reduce_sum(out, [0, 2]))
    fluid.optimizer.SGD(0.0).minimize(loss)
    main, exe = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rows = np.random.default_rng(0).random((3, 2), "float32")
    feeds = [
        {"x": fluid.create_lod_tensor(rows[: sum(lengths)], [lengths], fluid.CPUPlace())}
        for lengths in ([0, 0], [2, 1])
    ]
    slopes = [p.name + "@GRAD" for p in main.all_parameters()]
    empty, *zeros = exe.run(main, feed=feeds[0], fetch_list=[out, *slopes])
    assert empty.shape == (0, 2, 4) and not any(np.any(slope) for slope in zeros)
    alone = exe.run(main, feed=feeds[1], fetch_list=slopes)
    program = on_places(main, 2, loss)
    for slope, whole in zip(exe.run(program, feed=feeds, fetch_list=slopes), alone, strict=True):
        np.testing.assert_allclose(slope, np.concatenate([whole, whole]) / 2, rtol=1e-5)


def recurrent_net() -> tuple[Any, Any]:
    """Return the loss of a net of as many equal steps as are fed, and what it begins with."""
    x, n = fluid.data("x", [None, 4]), fluid.data("n", [1], "int64")
    x.stop_gradient = False
    loop, i, going = counted(n)
    i.stop_gradient = True
    states = L.array_write(L.assign(x), i)
    with loop.block():
        after = L.fc(L.array_read(states, i), 4, act="tanh", param_attr="w", bias_attr="b")
        L.increment(i)
        L.array_write(after, i, states)
        L.less_than(i, n, cond=going)
    return L.mean(L.array_read(states, i)), x


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_gradients_go_back_through_all_rounds(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all rounds read has its total beside them: no round is fed it, or returns it."""
    run_round, passed = HostCall._round, list[Any]()

    def noted(self: HostCall, program: Any, fed: Any, *arguments: Any) -> list[Any]:
        results = run_round(self, program, fed, *arguments)
        passed.extend([*fed, *results] if self.function == "while_grad" else [])
        return results

    monkeypatch.setattr(HostCall, "_round", noted)
    loss, _ = recurrent_net()
    fluid.backward.append_backward(loss)
    fed = np.random.default_rng(0).random((2, 4), "float32")
    slopes = run({"x": fed, "n": np.array([rounds])}, ["w@GRAD", "b@GRAD", "x@GRAD"])
    scope = fluid.global_scope()
    w, b = (np.array(scope.find_var(n).get_tensor()).astype("float64") for n in "wb")
    states = [fed.astype("float64")]
    for _ in range(rounds):
        states.append(np.tanh(states[-1] @ w + b))
    dw, db, dx = np.zeros_like(w), np.zeros_like(b), np.full((2, 4), 1 / 8)
    for before, after in list(pairwise(states))[::-1]:
        dx = dx * (1 - after**2)
        dw, db, dx = dw + before.T @ dx, db + dx.sum(0), dx @ w.T
    for slope, expected in zip(slopes, (dw, db, dx), strict=True):
        np.testing.assert_allclose(slope, expected, atol=1e-6)
    assert bool(passed) == bool(rounds)
    assert not [x for x in passed if isinstance(x, np.ndarray) and x.shape in (w.shape, b.shape)]


def train(
    places: Any = None, strike: Callable[[int, Any], None] = lambda step, program: None
) -> list[float]:
    """Return the losses of steps with ever other numbers of rounds, on one place or several.

    ``strike`` is called before each step, with its number and the program.
    """
    scope = fluid.Scope()
    with own_programs(3) as (main, startup):
        loss, _ = recurrent_net()
        fluid.optimizer.Adam(0.05).minimize(loss)
    exe = fluid.Executor(places[0] if places else fluid.CPUPlace())
    rng = np.random.default_rng(0)
    with fluid.scope_guard(scope):
        exe.run(startup)
        for name in "wb":
            tensor = scope.find_var(name).get_tensor()
            tensor.set(rng.standard_normal(tensor.shape()).astype("float32") / 2, fluid.CPUPlace())
        program = on_places(main, places, loss) if places is not None else main
        fed = rng.random((4, 4), "float32")
        feeds = [{"x": fed, "n": np.array([rounds])} for rounds in (1, 3, 2, 5, 3, 1, 4, 2)]
        losses = []
        for step, feed in enumerate(feeds):
            strike(step, program)
            losses.append(float(np.mean(exe.run(program, feed, [loss])[0])))
        return losses


def past_the_end(h: Any, limit: Any) -> None:
    """Read entry 2 of an array of one, in a branch of a loop, from the third round on."""
    entries = L.create_array("float32")
    loop, i, going = counted(limit)
    L.array_write(h, i * 0, entries)
    with loop.block():
        early = L.less_than(i, L.fill_constant([1], "int64", 2))
        L.cond(early, lambda: L.reduce_sum(h), lambda: L.reduce_sum(L.array_read(entries, i)))
        L.increment(i)
        L.less_than(i, limit, cond=going)


def for_ever(h: Any, limit: Any) -> None:
    """Go on for ever from a limit of 3 on."""
    loop, i, going = counted(limit)
    with loop.block():
        early = L.cast(L.less_than(i, L.fill_constant([1], "int64", 2)), "int64")
        L.assign(i + early, i)
        L.less_than(i, limit, cond=going)


PAST = r"operator read_from_array failed: .*array_0.*no entry 2: it has 1"
ENDLESS = r"operator while failed: it goes on after [\d,]+ rounds.*step_deadline_s"


@ON_BOTH
@pytest.mark.parametrize(
    ("mistake", "words", "rows"),
    [(past_the_end, PAST, 1), (past_the_end, PAST, 2), (for_ever, ENDLESS, 1)],
)
def test_a_mistake_in_a_loop_changes_nothing_on_busy_or_idle_places(
    mistake: Any, words: str, rows: int
) -> None:
    x, limit = fluid.data("x", [None, 3]), fluid.data("limit", [1], "int64")
    h = L.fc(x, 2, param_attr="w")
    mistake(h, limit)
    loss = L.mean(h)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe, build = fluid.Executor(fluid.CPUPlace()), fluid.BuildStrategy()
    exe.run(fluid.default_startup_program())
    build.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.SampleWeighted
    program = on_places(fluid.default_main_program(), 2, loss, build=build)

    def step(limit: int) -> bytes:
        feed = {"x": np.ones((rows, 3), "float32"), "limit": np.array([limit])}
        exe.run(program, feed, [loss])
        return weight()

    def weight() -> bytes:
        return np.array(fluid.global_scope().find_var("w").get_tensor()).tobytes()

    with rowlock.cluster(launcher="threads", step_deadline_s=3.0):
        before = step(2)
        with pytest.raises(ExecutionError, match=f"(?s){words}.*built at .*test_data_loops.py"):
            step(3)
        assert weight() == before
        assert step(2) != before


def test_rounds_and_steps_draw_other_numbers() -> None:
    n = fluid.data("n", [1], "int64")
    loop, i, going = counted(n)
    draws = L.create_array("float32")
    with loop.block():
        L.array_write(L.dropout(L.ones([1, 64], "float32"), 0.5), i, draws)
        L.increment(i)
        L.less_than(i, n, cond=going)
    masks, _ = L.tensor_array_to_tensor(draws, axis=0)
    exe, rows = fluid.Executor(fluid.CPUPlace()), set[bytes]()
    for _ in range(3):
        (value,) = exe.run(feed={"n": np.array([4])}, fetch_list=[masks])
        rows |= {row.tobytes() for row in value}
    assert len(rows) == 12


@pytest.mark.parametrize(
    ("launcher", "gpus"),
    [
        ("threads", False),
        pytest.param("ray", False, marks=[pytest.mark.ray, pytest.mark.slow]),
        pytest.param("ray", True, marks=pytest.mark.ray),
    ],
)
def test_training_on_two_places_is_training_on_one(
    launcher: str, gpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gpus:
        monkeypatch.setenv("ROWLOCK_SIMULATED_GPUS", "2")
    with rowlock.cluster(launcher=launcher):
        losses = train([fluid.CUDAPlace(0), fluid.CUDAPlace(1)] if gpus else fluid.cpu_places(2))
    np.testing.assert_allclose(losses, train(), rtol=1e-5)
    assert losses[-1] < losses[3]


@pytest.mark.cpu  # a GPU's replica has a thread of its own: the driver gives that up first
def test_a_loop_that_never_ends_is_given_up() -> None:
    x = fluid.data("x", [1])
    i, going = L.fill_constant([1], "int64", 0), L.less_than(x, x + 1)
    loop = L.While(going)
    with loop.block():
        L.increment(i)
        L.less_than(x, x + 1, cond=going)
    with (
        rowlock.cluster(step_deadline_s=1.0),
        pytest.raises(
            ExecutionError, match=r"while failed: it goes on after .*test_data_loops\.py"
        ),
    ):
        run({"x": np.float32([1])}, [i])
    assert run({"x": np.float32([np.inf])}, [i])[0] == [0]


@pytest.mark.cpu
def test_a_pause_of_the_process_ends_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-Z in a terminal makes it: a clock that leaps by an hour while the loop runs."""
    looks = count()
    leaping = SimpleNamespace(monotonic=lambda: 3600.0 * (next(looks) > 4))
    loop, i, going = counted(limit := L.reduce_max(fluid.data("x", [None, 1], "int64")))
    with loop.block():
        L.increment(i)
        L.less_than(i, limit, cond=going)
    with rowlock.cluster(step_deadline_s=2.0):
        monkeypatch.setattr(deadline, "time", leaping)
        assert run({"x": np.array([[7], [9]])}, [i])[0] == [9]
    assert next(looks) > 9


@pytest.mark.cpu
@pytest.mark.parametrize("launcher", ["threads", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_loop_that_never_ends_on_one_of_two_places_is_an_error_of_its_op(launcher: str) -> None:
    """It costs no replica, and no value: the step did not happen, and the next one does."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        x, limit = fluid.data("x", [None, 2]), fluid.data("limit", [None, 1])
        state, most = L.fc(x, 2), L.reduce_max(limit)
        rounds = L.fill_constant([1], "float32", 0.0)
        state, _ = L.while_loop(
            lambda state, rounds: L.less_than(rounds, most),
            lambda state, rounds: [L.tanh(state), rounds + 1.0],
            [state, rounds],
        )
        loss = L.mean(state)
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe = executor_after(startup, scope)
    rows = np.ones((2, 2), "float32")
    with rowlock.cluster(launcher=launcher, step_deadline_s=4.0):
        program = on_places(main, 2, loss)

        def step(limits: list[float]) -> Any:
            feed = {"x": rows, "limit": np.float32(limits).reshape(2, 1)}
            return exe.run(program, feed, [loss], scope=scope)[0]

        step([2, 3])
        weights = np.array(scope.find_var(main.all_parameters()[0].name).get_tensor())
        with pytest.raises(ExecutionError, match=r"replica 1: operator while failed: it goes on"):
            step([2, np.inf])
        after = np.array(scope.find_var(main.all_parameters()[0].name).get_tensor())
        np.testing.assert_array_equal(after, weights)
        assert np.isfinite(step([2, 3])).all()


def _slopes_before_a_loop(kind: str, loops: bool) -> list[Any]:
    """Return losses and their slopes; the loop writes what the gradient of the op before it reads."""
    draw = np.random.default_rng(4)

    def parameter(name: str) -> Any:
        values = 0.5 * draw.standard_normal((4, 4)).astype("float32")
        initializer = fluid.initializer.NumpyArrayInitializer(values)
        return L.create_parameter([4, 4], "float32", name, fluid.ParamAttr(name, initializer))

    with own_programs() as (main, startup):
        x, limit = fluid.data("x", [None, 4]), fluid.data("limit", [1])
        w, u = parameter("w"), parameter("u")

        def looped(state: Any, turn: Any) -> Any:
            if not loops:
                return turn(turn(state))
            most = L.fill_constant([1], "int64", 2) if kind == "constant" else limit * 1.0
            number = L.fill_constant([1], "int64" if kind == "constant" else "float32", 0)
            going = L.less_than(number, most)
            loop = L.While(going)
            with loop.block():
                L.assign(turn(state), state)
                L.increment(number)
                L.less_than(number, most, cond=going)
            return state

        def turn(state: Any) -> Any:
            return L.tanh(L.matmul(state, u))

        def around(state: Any) -> Any:
            return looped(L.sigmoid(state), turn)

        state = L.matmul(x, w)
        state = looped(L.softmax(state), around) if kind == "nested" else around(state)
        behind = L.exp(state)
        losses = [L.mean(L.square(state)), L.mean(behind)]
        slopes = [fluid.gradients([loss], [w, u]) for loss in losses]
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {"x": np.random.default_rng(5).standard_normal((3, 4), "float32")}
    feed |= {"limit": np.float32([2])} if loops and kind != "constant" else {}
    fetches = [*losses, *slopes[0], *slopes[1]]
    return exe.run(main, feed, fetches, scope=scope)


@pytest.mark.parametrize("kind", ["data", "constant", "nested"])
def test_the_op_before_a_loop_has_the_gradient_of_what_it_computed(kind: str) -> None:
    """Of two losses, whose gradients are made one after the other."""
    values, expected = (_slopes_before_a_loop(kind, loops) for loops in (True, False))
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-7)
