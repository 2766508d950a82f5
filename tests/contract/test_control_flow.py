"""Branches and recurrent blocks: Paddle's programs, its numbers, and right gradients where those are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
import rowlock.nn as nn
from rowlock.fluid.layers.utils import map_structure
from rowlock.graph.ops.registry import BLOCK_OPS
from rowlock.strategies.errors import InvalidValue, Unsupported
from tests.programs import executor_after, on_places, own_programs
from tests.reference import control_flow_cases as nets

RECORD: dict[str, Any] = json.loads(Path(nets.__file__).with_name("control_flow.json").read_text())
TRAINED: dict[str, list[float]] = RECORD.pop("trained")
PROTOS = json.loads(Path(nets.__file__).with_name("protos.json").read_text())
# Paddle orders some ops by sets, and sums a gradient that it never computes.
ALIKE = {"parameters_inside", "branch_in_a_step", "branch_in_a_loop", "basic_gru", "basic_lstm"}
L = fluid.layers


pytestmark = pytest.mark.usefixtures("fresh_programs")


def numbers(name: str, main: Any, program: Any, startup: Any, fetches: list[Any]) -> None:
    """Run the recorded steps and compare every fetch."""
    exe = executor_after(startup)
    for feed, expected in zip(nets.feeds(main), RECORD[name]["steps"], strict=True):
        values = exe.run(program, feed=feed, fetch_list=fetches)
        for value, reference in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RECORD)
def test_numbers_and_gradients_are_paddles(name: str) -> None:
    main, startup, fetches = nets.build(fluid, name)
    numbers(name, main, main, startup, fetches)


@pytest.mark.parametrize("name", RECORD)
def test_blocks_and_ops_are_paddles(name: str) -> None:
    main, _, _ = nets.build(fluid, name)
    ours = json.loads(json.dumps(nets.described(main)))
    theirs = RECORD[name]["blocks"]
    assert [block[:2] for block in ours] == [block[:2] for block in theirs]
    for block, other in zip(ours, theirs, strict=True):
        if name in ALIKE:
            assert sorted(op[0] for op in block[2]) == sorted(op[0] for op in other[2])
        else:
            assert block[2] == other[2]


@pytest.mark.parametrize("name", sorted(BLOCK_OPS.keys() & PROTOS.keys()))
def test_slots_and_attributes_are_paddles(name: str) -> None:
    theirs, op = PROTOS[name], BLOCK_OPS[name]

    def plain(slots: Any) -> set[str]:  # Paddle has no marks for what may be left out
        return {slot.rstrip("*?~") for slot in slots}

    assert plain(op.inputs) == plain(theirs["in"])
    assert plain(op.outputs) == plain(theirs["out"])
    assert set(op.attrs) == set(theirs["attrs"])


@pytest.mark.parametrize("name", RECORD)
def test_programs_are_saved_and_loaded_with_their_blocks(name: str) -> None:
    main, startup, fetches = nets.build(fluid, name)
    data = main.desc.serialize_to_string()
    loaded = fluid.Program.parse_from_string(data)
    assert loaded.desc.serialize_to_string() == data
    assert "sub_block" in main.to_string(True)
    names = [getattr(fetch, "name", fetch) for fetch in fetches]
    numbers(name, main, loaded, startup, names)


@pytest.mark.parametrize("name", ["nested", "branch_in_a_step", "rate"])
def test_clones_and_pruned_programs_hold_only_blocks_in_use(name: str) -> None:
    main, _, fetches = nets.build(fluid, name)
    forward = {"nested": [0, 0, 1, 1, 0], "branch_in_a_step": [0, 0, 1, 1], "rate": [0] * 4}[name]
    for program in (main.clone(for_test=True), main._prune([fetches[0]])):
        parents = [max(block.parent_idx, 0) for block in program.blocks]
        assert parents == (forward if program.num_blocks > 1 else [0])
        assert all(block.idx == i for i, block in enumerate(program.blocks))
    assert main._prune([fetches[0]]).num_blocks == (1 if name == "rate" else len(forward))


def test_a_saved_model_keeps_its_branches(tmp_path: Path) -> None:
    main, startup, fetches = nets.build(fluid, "gru_lengths")
    exe = executor_after(startup)
    feed = nets.feeds(main)[1]
    (before,) = exe.run(main.clone(for_test=True), feed=feed, fetch_list=[fetches[1].name])
    fluid.io.save_inference_model(str(tmp_path), list(feed), [fetches[1]], exe, main)
    program, names, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    assert program.num_blocks == 2
    (after,) = exe.run(program, feed={n: feed[n] for n in names}, fetch_list=targets)
    np.testing.assert_allclose(after, before, rtol=1e-6)


@pytest.mark.parametrize("name", TRAINED)
def test_nets_learn_as_in_paddle(name: str) -> None:
    np.testing.assert_allclose(nets.train(fluid, name), TRAINED[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TRAINED)
def test_nets_learn_on_two_places(name: str) -> None:
    def compiled(main: Any, loss: Any) -> Any:
        program = fluid.CompiledProgram(main)
        return program.with_data_parallel(loss_name=loss.name, places=fluid.cpu_places(2))

    with rowlock.cluster(launcher="threads"):
        losses = nets.train(fluid, name, compiled)
    if name != "robust_loss":  # whose places may take different branches
        np.testing.assert_allclose(losses, TRAINED[name], rtol=1e-5, atol=1e-6)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("reduces", [False, True])
def test_every_pass_keeps_what_blocks_compute(reduces: bool) -> None:
    def compiled(main: Any, loss: Any) -> Any:
        strategy = fluid.BuildStrategy()
        strategy.verify_passes = strategy.fuse_all_optimizer_ops = True
        strategy.fuse_elewise_add_act_ops = strategy.enable_auto_fusion = True
        if reduces:
            strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
        return on_places(main, 2, loss, build=strategy)

    with rowlock.cluster(launcher="threads"):
        losses = nets.train(fluid, "classifier", compiled)
    np.testing.assert_allclose(losses, TRAINED["classifier"], rtol=1e-5, atol=1e-6)


def blocks_between_layers(recompute: bool) -> list[float]:
    """Return the losses of three steps of a net with a recurrent block and a branch."""
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 5, 4])
        _, last = L.rnn(L.GRUCell(6, constant(0.1)), L.fc(x, 4, 2, constant(0.2), act="tanh"))
        y = L.fc(last, 6, 1, constant(0.3), act="tanh")
        z = L.cond(nets.Nets(fluid).below(x, 1.0), lambda: L.tanh(y), lambda: y * y)
        loss = L.mean(L.fc(L.tanh(z), 2, 1, constant(0.4)))
        optimizer = fluid.optimizer.SGD(0.5)
        if recompute:
            optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints([last, z])
        optimizer.minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        feeds = [{"x": np.full((2, 5, 4), sign, "float32")} for sign in (0.5, -0.5, 0.5)]
        return [float(exe.run(main, feed=feed, fetch_list=[loss])[0][0]) for feed in feeds]


def test_recomputation_around_blocks() -> None:
    np.testing.assert_allclose(blocks_between_layers(True), blocks_between_layers(False), rtol=1e-6)


# Reference cases with numbers of Paddle 1.8.5: x counts up in tenths.
TENTHS = np.arange(18, dtype="float32") / 10


def run(feed: dict[str, Any], *fetches: Any) -> list[Any]:
    exe = executor_after()
    return exe.run(feed=feed, fetch_list=list(fetches))


def constant(value: float) -> Any:
    return fluid.ParamAttr(initializer=fluid.initializer.Constant(value))


def test_case_c() -> None:
    x = fluid.data("x", [3, 2, 3])
    x.stop_gradient = False
    w = L.create_parameter([3, 3], "float32", attr=constant(0.5))
    rnn = L.StaticRNN()
    with rnn.step():
        h = rnn.memory(shape=[-1, 3], batch_ref=x)
        now = rnn.step_input(x)
        new = L.mul(h, w) + now
        rnn.update_memory(h, new)
        rnn.step_output(new)
    out = rnn()
    loss = L.reduce_sum(out)
    dw, dx = fluid.gradients(loss, [w, x])
    loss, out, dw, dx = run({"x": TENTHS.reshape(3, 2, 3)}, loss, out, dw, dx)
    np.testing.assert_allclose(loss, 28.575, rtol=1e-5)
    np.testing.assert_allclose(dw, np.repeat([[3.0], [3.7], [4.4]], 3, 1), rtol=1e-5)
    np.testing.assert_allclose(dx[:, 0, 0], [4.75, 2.5, 1.0], rtol=1e-5)
    np.testing.assert_allclose(out[2], [[2.475, 2.575, 2.675], [3.9, 4.0, 4.1]], rtol=1e-5)


@pytest.mark.parametrize(
    ("lengths", "reverse", "expected"),
    [
        (None, False, [[0.029065, 0.064600, 0.103599], [0.081048, 0.146241, 0.202082]]),
        ([3, 1], False, [[0.029065, 0.064600, 0.103599], [0.081048, 0.146241, 0.160992]]),
        (None, True, [[0.079882, 0.085915, 0.064686], [0.182376, 0.164708, 0.110711]]),
    ],
)
def test_case_f(lengths: list[int] | None, reverse: bool, expected: Any) -> None:
    x = fluid.data("x", [2, 3, 2])
    many = None if lengths is None else fluid.data("many", [2], "int64")
    cell = L.GRUCell(3, constant(0.1), constant(0.05))
    out, last = L.rnn(cell, x, sequence_length=many, is_reverse=reverse)
    feed = {"x": TENTHS[:12].reshape(2, 3, 2)}
    feed |= {} if lengths is None else {"many": np.array(lengths)}
    outs, last = run(feed, out, last)
    np.testing.assert_allclose(outs[..., 0], expected, rtol=2e-5)
    ends = [0.103599, 0.081048 if lengths else 0.202082]
    ends = [row[0] for row in expected] if reverse else ends
    np.testing.assert_allclose(last[:, 1], ends, rtol=2e-5)


def test_case_g() -> None:
    x = fluid.data("x", [2, 3, 2])
    many = fluid.data("many", [2], "int64")
    out, (h, c) = L.rnn(L.LSTMCell(3, constant(0.1), constant(0.05)), x, sequence_length=many)
    feed = {"x": TENTHS[:12].reshape(2, 3, 2), "many": np.array([3, 1])}
    out, h, c = run(feed, out, h, c)
    np.testing.assert_allclose(out[0, :, 0], [0.015889, 0.041014, 0.075184], rtol=2e-5)
    np.testing.assert_allclose(h[:, 0], [0.075184, 0.052706], rtol=2e-5)
    np.testing.assert_allclose(c[:, 0], [0.140668, 0.097033], rtol=2e-5)


def nets_of_cells(x: Any, many: Any) -> list[tuple[Any, Any]]:
    """Pairs of a net of paddle.nn, and the same with its cell called for each step."""
    pairs = []
    for cell in (nn.GRUCell(4, 3), nn.SimpleRNNCell(4, 3), nn.LSTMCell(4, 3)):
        for reverse in (False, True):
            out, _ = nn.RNN(cell, is_reverse=reverse)(x, sequence_length=many)
            states, outs = None, []
            for step in range(3)[::-1] if reverse else range(3):
                one, states_now = cell(x[:, step], states)
                mask = L.cast(L.less_than(L.fill_constant([1], "int64", step), many), "float32")

                def frozen(new: Any, old: Any, mask: Any = mask) -> Any:
                    return L.elementwise_mul(new, mask, axis=0) + L.elementwise_mul(
                        old, 1.0 - mask, axis=0
                    )

                before = cell.get_initial_states(x[:, step]) if states is None else states
                states = map_structure(frozen, states_now, before)
                outs.append(one)
            pairs.append((out, L.stack(outs[::-1] if reverse else outs, axis=1)))
    both = nn.BiRNN(nn.GRUCell(4, 3), nn.GRUCell(4, 2))
    forth, back = nn.RNN(both.cell_fw), nn.RNN(both.cell_bw, True)
    pairs.append((both(x)[0], L.concat([forth(x)[0], back(x)[0]], axis=-1)))
    return pairs


def test_nets_of_cells_compute_what_their_cells_do() -> None:
    x, many = fluid.data("x", [None, 3, 4]), fluid.data("many", [None], "int64")
    pairs = nets_of_cells(x, many)
    feed = {
        "x": np.random.RandomState(0).randn(2, 3, 4).astype("float32"),
        "many": np.array([3, 2]),
    }
    values = run(feed, *(each for pair in pairs for each in pair))
    for out, expected in zip(values[::2], values[1::2], strict=True):
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_the_side_that_is_not_taken_has_no_gradient_whatever_it_computes() -> None:
    x = fluid.data("x", [2])
    x.stop_gradient = False
    positive = L.greater_than(L.reduce_min(x), L.fill_constant([1], "float32", 0.0))
    out = L.cond(positive, lambda: L.log(x), lambda: L.sqrt(L.abs(x)) * 0.0 + x)
    (dx,) = fluid.gradients(L.reduce_sum(out), [x])
    for values in ([-1.0, 4.0], [0.0, 2.0]):
        out_value, slope = run({"x": np.array(values, "float32")}, out, dx)
        assert np.isfinite(out_value).all()
        if values[0]:
            np.testing.assert_array_equal(slope, 1.0)
    _, slope = run({"x": np.array([1.0, 4.0], "float32")}, out, dx)
    np.testing.assert_allclose(slope, [1.0, 0.25], rtol=1e-6)


def test_what_a_branch_overwrites_has_a_gradient_only_where_it_is_not_taken() -> None:
    x = fluid.data("x", [1])
    x.stop_gradient = False
    y = L.scale(x, 3.0)
    before = L.scale(y, 1.0)
    below = L.less_than(x, L.fill_constant([1], "float32", 1.0))

    def overwrite() -> None:
        L.assign(x * x, y)

    L.cond(below, overwrite, None)
    (dx,) = fluid.gradients(L.reduce_sum(y * 2.0 + before), [x])
    for value, expected in ((0.5, 2 * 0.5 * 2 + 3), (2.0, 6.0 + 3)):
        (slope,) = run({"x": np.array([value], "float32")}, dx)
        np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_a_branch_updates_a_variable_by_itself() -> None:
    x = fluid.data("x", [1])
    x.stop_gradient = False
    y = L.scale(x, 3.0)
    below = L.less_than(x, L.fill_constant([1], "float32", 1.0))

    def square() -> None:
        L.assign(y * y, y)

    L.cond(below, square, None)
    (dx,) = fluid.gradients(L.reduce_sum(y), [x])
    for value, expected in ((0.5, 18 * 0.5), (2.0, 3.0)):
        (slope,) = run({"x": np.array([value], "float32")}, dx)
        np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_structures_and_branches_of_nothing() -> None:
    x = fluid.data("x", [2])
    yes = L.less_than(L.reduce_sum(x), L.fill_constant([1], "float32", 1.0))
    results = L.cond(
        yes, lambda: {"a": (x, [x * 2]), "b": x}, lambda: {"a": (x * 3, (x * 4,)), "b": x}
    )
    assert L.cond(yes, lambda: None, lambda: None) is None
    a, b = results["a"], results["b"]
    values = run({"x": np.ones(2, "float32")}, a[0], a[1][0], b)
    np.testing.assert_array_equal(values, [[3, 3], [4, 4], [1, 1]])


def test_a_step_counts_in_a_persistable() -> None:
    x = fluid.data("x", [4, 2])
    count = L.create_global_var([1], 0.0, "float32", persistable=True, name="count")
    rnn = L.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        L.assign(count + 1.0, count)
        rnn.step_output(now * count)
    feed = {"x": np.ones((4, 2), "float32")}
    out, total = run(feed, rnn(), count)
    np.testing.assert_array_equal(out[:, 0], [1, 2, 3, 4])
    assert total == 4


def sum_beside_steps(x: Any) -> tuple[Any, Any]:
    """Return what steps return, and a variable around them to which they add."""
    total = L.reduce_sum(x, dim=0) * 0.0
    rnn = L.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        L.sums([total, now], out=total)
        rnn.step_output(now * 2.0)
    return rnn(), total


def test_steps_write_a_variable_around_them() -> None:
    x = fluid.data("x", [3, 2])
    x.stop_gradient = False
    out, total = sum_beside_steps(x)
    (slope,) = fluid.gradients(L.reduce_sum(out), [x])
    value = np.arange(6, dtype="float32").reshape(3, 2)
    values = run({"x": value}, out, total, slope)
    for computed, expected in zip(
        values, (2 * value, value.sum(0), np.full((3, 2), 2.0)), strict=True
    ):
        np.testing.assert_array_equal(computed, expected)


@pytest.mark.parametrize("returned", [False, True])
def test_what_steps_write_around_them_has_no_gradient(returned: bool) -> None:
    x = fluid.data("x", [3, 2])
    x.stop_gradient = False
    out, total = sum_beside_steps(x)
    with pytest.raises(
        Unsupported, match=r"recurrent: a step writes 'tmp_0', which stands around it"
    ):
        fluid.gradients(L.reduce_sum(total) + L.reduce_sum(out) * float(returned), [x])


def test_draws_differ_from_step_to_step() -> None:
    x = fluid.data("x", [3, 50])
    rnn = L.StaticRNN()
    with rnn.step():
        rnn.step_output(L.dropout(rnn.step_input(x), 0.5))
    (out,) = run({"x": np.ones((3, 50), "float32")}, rnn())
    assert len({tuple(row) for row in out}) == 3


def loop(rounds: int, body: Callable[[Any, Any], Any], value: float = 1.0) -> tuple[Any, Any, Any]:
    """Return what s, from ``value``, and w = 2 become as the body is computed, and both."""
    s, w = fluid.data("s", [1]), L.create_parameter([1], "float32", attr=constant(2.0))
    s.stop_gradient = False
    i, limit = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", rounds)
    start = L.scale(s, 1.0)
    _, result = L.while_loop(
        lambda i, s: L.less_than(i, limit), lambda i, s: [L.increment(i), body(s, w)], [i, start]
    )
    return result, s, w


@pytest.mark.parametrize(
    ("body", "rounds", "expected"),
    [
        (lambda s, w: s * w, 3, (8, 8, 12)),
        (lambda s, w: s + w, 3, (7, 1, 3)),
        (lambda s, w: s * s * w, 2, (8, 32, 12)),
        (lambda s, w: w * w, 2, (4, 0, 4)),
        (lambda s, w: s * w, 0, (1, 1, 0)),
    ],
)
def test_gradients_of_what_a_loop_overwrites(body: Any, rounds: int, expected: Any) -> None:
    """Paddle has those of the last round alone."""
    result, s, w = loop(rounds, body)
    slopes = fluid.gradients(L.reduce_sum(result), [s, w])
    values = run({"s": np.ones(1, "float32")}, result, *slopes)
    np.testing.assert_allclose(np.ravel(values), expected)


def test_loop_variables_change_places() -> None:
    a, b = L.fill_constant([1], "float32", 10.0), L.fill_constant([1], "float32", 20.0)
    i, limit = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 3)
    _, x, y = L.while_loop(
        lambda i, a, b: L.less_than(i, limit), lambda i, a, b: (L.increment(i), b, a), (i, a, b)
    )
    assert x is a
    np.testing.assert_array_equal(np.ravel(run({}, x, y)), [20, 10])


def test_sequences_stay_what_they_are_in_rounds() -> None:
    x = fluid.data("x", [None, 1], lod_level=1)
    i, three = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 3)
    _, value = L.while_loop(
        lambda i, _: L.less_than(i, three), lambda i, v: [i + 1, v * 0.5], [i, x * 1.0]
    )
    rows = fluid.create_lod_tensor(np.ones((5, 1), "f4"), [[2, 3]], fluid.CPUPlace())
    exe, total = fluid.Executor(fluid.CPUPlace()), L.sequence_pool(value, "sum")
    own, sums = exe.run(feed={"x": rows}, fetch_list=[value, total], return_numpy=False)
    assert own.recursive_sequence_lengths() == [[2, 3]]
    np.testing.assert_array_equal(np.array(sums), [[0.25], [0.375]])


def test_a_loop_in_a_loop() -> None:
    x = fluid.data("x", [2])
    x.stop_gradient = False
    w = L.create_parameter([2], "float32", attr=constant(1.5))
    count = L.create_global_var([1], 0.0, "float32", persistable=True, name="count")
    zero, two, three = (L.fill_constant([1], "int64", n) for n in (0, 2, 3))
    states = L.array_write(x, zero)
    i, outer = L.fill_constant([1], "int64", 0), L.fill_constant([1], "bool", True)
    loop = L.While(outer)
    with loop.block():
        s = L.scale(L.array_read(states, i), 1.0)
        j = L.fill_constant([1], "int64", 0)
        inner = L.less_than(j, two)
        inner_loop = L.While(inner)
        with inner_loop.block():
            L.assign(s * w, s)
            L.assign(count + 1.0, count)
            L.increment(j)
            L.less_than(j, two, cond=inner)
        L.increment(i)
        L.array_write(s, i, states)
        L.less_than(i, three, cond=outer)
    out, _ = L.tensor_array_to_tensor(states, axis=0, use_stack=True)
    dx, dw = fluid.gradients(L.reduce_sum(out), [x, w])
    feed = {"x": np.array([1.0, 2.0], "float32")}
    out, number, dx, dw, length = run(feed, out, count, dx, dw, L.array_length(states))
    powers = 1.5 ** np.array([0, 2, 4, 6])
    np.testing.assert_allclose(out, powers[:, None] * feed["x"], rtol=1e-6)
    assert number == 6 and length == 4
    np.testing.assert_allclose(dx, np.full(2, powers.sum()), rtol=1e-6)
    slope = (np.array([0, 2, 4, 6]) * powers).sum() / 1.5
    np.testing.assert_allclose(dw, slope * feed["x"], rtol=1e-6)


def test_entries_that_are_read_twice_and_written_twice() -> None:
    x = fluid.data("x", [2])
    x.stop_gradient = False
    zero, one = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 1)
    array = L.array_write(x * 3.0, zero)
    first = L.array_read(array, zero)
    L.array_write(first * x, one, array)
    L.array_write(x * 7.0, zero, array)
    joined, sizes = L.tensor_array_to_tensor(array, axis=0)
    total = L.reduce_sum(joined) + L.reduce_sum(L.array_read(array, one) * 2.0 + first)
    (dx,) = fluid.gradients(total, [x])
    joined, sizes, dx = run({"x": np.array([1.0, 2.0], "float32")}, joined, sizes, dx)
    np.testing.assert_allclose(joined, [7, 14, 3, 12])
    np.testing.assert_array_equal(sizes, [2, 2])
    # 7x + 3 (3 x x) + 3x
    np.testing.assert_allclose(dx, [7 + 18 + 3, 7 + 36 + 3])


def test_a_loop_on_two_places_and_saved(tmp_path: Path) -> None:
    main, startup, fetches = nets.build(fluid, "arrays")
    feed = [{"x": np.arange(1, 7, dtype="float32").reshape(2, 3) / 10}] * 2
    exe = executor_after(startup)
    with rowlock.cluster(launcher="threads"):
        compiled = on_places(main, 2, fetches[0])
        losses, slopes = exe.run(compiled, feed=feed, fetch_list=[fetches[0], "w@GRAD"])
    np.testing.assert_allclose(losses, 7.0875, rtol=1e-5)  # case A
    np.testing.assert_allclose(slopes[:3], np.repeat([[4.275], [4.725], [5.175]], 3, 1), rtol=1e-5)
    fluid.io.save_inference_model(str(tmp_path), ["x"], [fetches[1]], exe, main)
    program, names, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    assert names == ["x"] and program.num_blocks == 2
    assert all(op.attrs["is_test"] for op in program.global_block().ops if op.type == "while")
    (last,) = exe.run(program, feed=feed[0], fetch_list=targets)
    assert last.shape == (2, 3)


def condition() -> Any:
    return L.fill_constant([1], "bool", True)


def number() -> Any:
    return L.fill_constant([1], "float32", 1.0)


def in_step(build: Callable[[Any, Any, Any], Any]) -> None:
    rnn, three, four = L.StaticRNN(), sequence(3), sequence(4)
    with rnn.step():
        build(rnn, three, four)
    rnn()


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: L.cond(1, number, number), TypeError, "pred must be a Variable"),
    (lambda: L.cond(number(), number, number), TypeError, "must be a bool Variable"),
    (lambda: L.cond(condition(), 3, number), TypeError, "true_fn must be callable"),
    (lambda: L.cond(condition(), number, 3), TypeError, "false_fn must be callable"),
    (lambda: L.cond(condition(), number, None), ValueError, "false_fn returns None while true_fn returns"),
    (lambda: L.cond(condition(), None, number), ValueError, "true_fn returns None while false_fn returns"),
    (lambda: L.cond(condition(), number, lambda: [number(), number()]), ValueError, "Incompatible return"),
    (lambda: L.cond(condition(), lambda: 1.0, number), AttributeError, "a branch returns Variables"),
    (lambda: L.case(number), TypeError, "pred_fn_pairs must be a list"),
    (lambda: L.case([number]), TypeError, "must be a 2-tuple"),
    (lambda: L.case([(condition(), 1)]), TypeError, "must be callable"),
    (lambda: L.case([(1, number)]), TypeError, "must be a Variable"),
    (lambda: L.case([(condition(), number)], 1), TypeError, "default must be callable"),
    (lambda: L.switch_case(number(), [number]), TypeError, "branch_index must be uint8"),
    (lambda: L.switch_case(index(), 1), TypeError, "branch_fns must be a list"),
    (lambda: L.switch_case(index(), [1]), TypeError, "must be a 2-tuple"),
    (lambda: L.switch_case(index(), {"a": number}), TypeError, "must be an int"),
    (lambda: L.switch_case(index(), [(1, number), (1, number)]), ValueError, "1 appears more than once"),
    (lambda: L.switch_case(index(), [(1, number), (2, 3)]), TypeError, "key 2 must be callable"),
    (lambda: L.Switch().case(condition()), ValueError, "case should be called inside with"),
    (lambda: L.Switch().default(), ValueError, "at least one condition"),
    (lambda: L.StaticRNN().memory(), ValueError, "You must invoke|you must invoke"),
    (lambda: L.StaticRNN()(), ValueError, "after rnn block"),
    (lambda: in_step(lambda rnn, x, y: rnn.step_input(x)), ValueError, "RNN has no output"),
    (lambda: in_step(lambda rnn, x, y: rnn.memory(shape=[2])), ValueError, "need shape and batch_ref"),
    (lambda: in_step(unset), AssertionError, "should be updated in every step"),
    (lambda: in_step(lambda rnn, x, y: rnn.memory(init=number())), ValueError, "computed in the step"),
    (lambda: in_step(other_length), ValueError, "only take fix seq_len"),
    (lambda: in_step(lambda rnn, x, y: None), ValueError, "needs a step_input"),
    (lambda: in_step(lambda rnn, x, y: rnn.step_input(x * 2)), ValueError, "is made in the step"),
    (lambda: L.While(number()), TypeError, "must be a bool Variable"),
    (lambda: L.While(trues(2)), TypeError, "expected one element"),
    (lambda: L.while_loop(lambda x: trues(2), lambda x: x, [number()]), TypeError, "expected one element"),
    (lambda: L.cond(trues(2), number, number), TypeError, "pred expected one element, .*where"),
    (lambda: L.case([(trues(2), number)], number), TypeError, "expected one element"),
    (lambda: L.case([(number(), number)], number), TypeError, "must be a bool Variable"),
    (lambda: L.switch_case(L.cast(trues(2), "int64"), [number]), TypeError, "branch_index expected one"),
    (lambda: L.while_loop(1, number, [number()]), TypeError, "cond should be callable"),
    (lambda: L.while_loop(number, 1, [number()]), TypeError, "body should be callable"),
    (lambda: L.while_loop(number, number, number()), TypeError, "should be a list or tuple"),
    (lambda: L.while_loop(number, number, []), ValueError, "should not be empty"),
    (lambda: L.while_loop(number, number, [1]), TypeError, "should hold Variables"),
    (lambda: L.while_loop(lambda x: number(), number, [number()]), TypeError, "bool Variable"),
    (lambda: L.while_loop(lambda *x: condition(), lambda x: (x, x), [number()]), ValueError, "same arity"),
    (lambda: L.array_write(number(), number()), TypeError, "i must be an int64 Variable"),
    (lambda: L.array_write(number(), index(), number()), TypeError, "should be a tensor array"),
    (lambda: L.array_read(number(), index()), TypeError, "should be a tensor array"),
    (lambda: L.array_length(number()), TypeError, "should be a tensor array"),
    (lambda: L.tensor_array_to_tensor(number()), TypeError, "should be a tensor array"),
    (lambda: in_branch(), NotImplementedError, "is made in a branch, step or loop"),
    (lambda: L.rnn(3, sequence(3)), AttributeError, "get_initial_states"),
]  # fmt: skip


def trues(count: int) -> Any:
    return L.fill_constant([count], "bool", True)


def index() -> Any:
    return L.fill_constant([1], "int64", 1)


def sequence(length: int) -> Any:
    return L.fill_constant([length, 2, 2], "float32", 1.0)


def in_branch() -> None:
    def branch() -> Any:
        loss = L.mean(L.create_parameter([2], "float32"))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    L.cond(condition(), branch, number)


def unset(rnn: Any, three: Any, four: Any) -> None:
    rnn.step_output(rnn.step_input(three))
    rnn.memory(init=three)


def other_length(rnn: Any, three: Any, four: Any) -> None:
    rnn.step_input(three)
    rnn.step_input(four)


@pytest.mark.parametrize(("mistake", "error", "text"), MISTAKES)
def test_mistakes_are_told(mistake: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        mistake()
    assert fluid.default_main_program().current_block_idx == 0


def over_steps(steps: int | None) -> tuple[Any, Any, list[Any]]:
    """Build a GRU over sequences of so many steps; return programs, and loss, outputs and a gradient."""
    with own_programs() as (main, startup):
        x, many = fluid.data("x", [None, steps, 4]), fluid.data("many", [None], "int64")
        out, last = L.rnn(L.GRUCell(3, constant(0.1)), x, sequence_length=many)
        loss = L.mean(last) + L.mean(out)
        (slope,) = fluid.gradients(loss, main.all_parameters()[:1])
    return main, startup, [loss, out, slope]


@pytest.mark.parametrize("places", [1, 2])
def test_a_number_of_steps_that_is_fed(places: int) -> None:
    main, startup, fetches = over_steps(None)
    exe = executor_after(startup)
    program = main
    with rowlock.cluster(launcher="threads"):
        if places > 1:
            program = on_places(main, places, fetches[0])
        for steps in (5, 2, 5, 3):
            feed = {
                "x": np.random.RandomState(steps).randn(4, steps, 4).astype("float32"),
                "many": np.array([1, steps, 2, steps]),
            }
            values = exe.run(program, feed=feed, fetch_list=fetches)
            known, _, names = over_steps(steps)
            expected = exe.run(known, feed=feed, fetch_list=names)
            near = partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7)
            near(np.mean(values[0]), expected[0][0])
            near(values[1], expected[1])
            if places == 1:
                near(values[2], expected[2])
            else:
                shorter = {**feed, "x": feed["x"][:, :1]}
                with pytest.raises(ValueError, match="places are fed different ones"):
                    exe.run(program, feed=[feed, shorter], fetch_list=fetches)


def test_steps_in_dimension_0_that_are_fed() -> None:
    x = fluid.data("x", [None, 2, 3])
    rnn = L.StaticRNN()
    with rnn.step():
        h = rnn.memory(shape=[-1, 3], batch_ref=x)
        new = h + rnn.step_input(x)
        rnn.update_memory(h, new)
        rnn.step_output(new)
    for steps in (3, 5):
        values = np.random.RandomState(steps).randn(steps, 2, 3).astype("float32")
        (out,) = run({"x": values}, rnn())
        np.testing.assert_allclose(out, np.cumsum(values, 0), rtol=1e-5, atol=1e-6)


def test_results_of_other_shapes_are_refused() -> None:
    x = fluid.data("x", [2])
    with pytest.raises(
        InvalidValue, match=r"must have one shape and type.*Built at .*test_control_flow.py:\d+"
    ):
        L.cond(condition(), lambda: x, lambda: L.reshape(x, [1, 2]))
    with pytest.raises(InvalidValue, match=r"true_fn returns .*: FP32.*false_fn .*: INT64"):
        L.cond(condition(), lambda: x, lambda: L.cast(x, "int64"))


def switched() -> Any:
    x, value = fluid.data("x", [None, 3]), L.fill_constant([1], "float32", 0.0)
    with L.Switch() as switch, switch.case(L.mean(x) < value):
        L.assign(L.fill_constant([2], "float32", 1.0), value)
    return value


def widened() -> Any:
    value, limit = L.fc(fluid.data("x", [None, 3]), 3), L.fill_constant([1], "int64", 3)
    number = L.fill_constant([1], "int64", 0)
    condition = L.less_than(number, limit)
    with L.While(condition).block():
        L.assign(L.cast(value, "float64"), value)
        L.increment(number)
        L.less_than(number, limit, cond=condition)
    return value


def entries_apart() -> Any:
    x, array = fluid.data("x", [None, 3]), L.create_array("float32")
    for k, width in enumerate((3, 4)):
        L.array_write(L.fc(x, width), L.fill_constant([1], "int64", k), array)
    return L.tensor_array_to_tensor(array, axis=0)[0]


TYPES = [
    (switched, InvalidValue, r"conditional_block: .* is FP32\[2\] where .* FP32\[1\] where"),
    (widened, TypeError, r"while: .* is FP32\[-1,3\] before a round and FP64\[-1,3\] behind it"),
    (entries_apart, InvalidValue, "sizes other than dimension 0 differ"),
]


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize(("program", "error", "text"), TYPES)
def test_types_that_differ_are_named_when_the_program_runs(
    program: Any, error: type[Exception], text: str, places: int, threads: None
) -> None:
    value, exe = L.mean(program()), fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    main: Any = fluid.default_main_program()
    if places > 1:
        cpus = fluid.cpu_places(places)
        main = on_places(main, cpus)
    with pytest.raises(error, match=f"{text}.*test_control_flow"):
        exe.run(main, feed={"x": np.ones((4, 3), "float32")}, fetch_list=[value])


def test_entries_of_any_number_of_rows_are_joined_and_have_gradients() -> None:
    x, array = fluid.data("x", [None, 2]), L.create_array("float32")
    x.stop_gradient = False
    for k in range(3):
        L.array_write(x * float(k), L.fill_constant([1], "int64", k), array)
    weight = fluid.data("weight", [None, 2])
    total = L.reduce_sum(L.tensor_array_to_tensor(array, axis=0)[0] * weight)
    (dx,) = fluid.gradients(total, [x])
    weights = np.arange(12, dtype="float32").reshape(6, 2)
    (slope,) = run({"x": np.ones((2, 2), "float32"), "weight": weights}, dx)
    np.testing.assert_allclose(slope, weights[2:4] + 2 * weights[4:])


def test_python_in_a_step() -> None:
    x = fluid.data("x", [3, 2])
    x.stop_gradient = False

    def double(value: Any) -> Any:
        return np.array(value) * 2

    rnn = L.StaticRNN()
    with rnn.step():
        now, h = rnn.step_input(x), rnn.memory(shape=[2], batch_ref=x, init_value=1.0)
        out = (
            fluid.default_main_program()
            .current_block()
            .create_var(name="out", shape=[2], dtype="float32")
        )
        L.py_func(double, now * h, out, lambda value, result, slope: np.array(slope) * 2)
        rnn.update_memory(h, out)
        rnn.step_output(out)
    (dx,) = fluid.gradients(L.reduce_sum(rnn()), [x])
    values = np.array([[1, 2], [3, 4], [5, 6]], "float32")
    out, dx = run({"x": values}, rnn(), dx)
    np.testing.assert_allclose(out, np.cumprod(values * 2, 0))
    np.testing.assert_allclose(dx[2], out[1] * 2)


def test_an_entry_that_was_never_written_is_named() -> None:
    n, one = fluid.data("n", [1], "int64"), L.fill_constant([1], "int64", 1)
    array = L.array_write(L.cast(n, "float32"), L.fill_constant([1], "int64", 2))
    out = L.array_read(array, one)
    with pytest.raises(Unsupported, match=r"entry 1 of the array .* was never written"):
        run({"n": np.array([3])}, out)


def test_a_step_may_expand_by_a_shape() -> None:
    def slope(times: Callable[[Any], list[Any]]) -> Any:
        rnn = L.StaticRNN()
        with rnn.step():
            part = rnn.step_input(sequence)
            state = rnn.memory(shape=[-1, 3], batch_ref=part)
            after = L.fc([part, state], 3, act="tanh", param_attr=constant(0.3), bias_attr=False)
            rnn.update_memory(state, L.squeeze(L.expand(L.unsqueeze(after, [1]), times(part)), [1]))
            rnn.step_output(after)
        return fluid.gradients(L.reduce_sum(rnn()), [sequence])[0]

    x = fluid.data("x", [None, 2, 3])
    sequence = L.transpose(x, [1, 0, 2])
    sequence.stop_gradient = False
    shaped = slope(lambda part: [1, L.shape(L.unsqueeze(part, [1]))[1], 1])
    listed = slope(lambda part: [1, 1, 1])
    assert shaped.shape == listed.shape == (2, -1, 3)
    feed = {"x": np.arange(6, dtype="float32").reshape(1, 2, 3) / 6}
    np.testing.assert_allclose(*run(feed, shaped, listed), rtol=1e-6)
