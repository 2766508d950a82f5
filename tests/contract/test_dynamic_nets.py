"""DynamicRNN, IfElse and rank tables: Paddle's programs, its numbers, and errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import FeedError, InvalidState, InvalidType, InvalidValue
from tests.conftest import one_in
from tests.programs import executor_after, on_places
from tests.reference import dynamic_nets as nets
from tests.reference import padded_steps
from tests.reference.control_flow_cases import described

RECORD: dict[str, Any] = json.loads(Path(nets.__file__).with_name("dynamic_nets.json").read_text())

# Paddle has the gradients of a branch's results in another order.
ALIKE = {"if_else", "if_else_computed"}
L, control = fluid.layers, fluid.layers.control_flow


pytestmark = pytest.mark.usefixtures("fresh_programs")


def compare(steps: Any, expected: Any) -> None:
    for step, pairs in zip(steps, expected, strict=True):
        for (value, lod), (reference, levels) in zip(step, pairs, strict=True):
            assert lod == levels
            np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *((name, "cpu") for name in RECORD),
        *one_in(2, [(name, "gpu") for name in RECORD], more=0),
    ],
    indirect=["device"],
)
def test_values_gradients_and_sequences_are_paddles(name: str, device: str, threads: None) -> None:
    compare(nets.run(fluid, name), RECORD[name]["steps"])


@pytest.mark.parametrize("name", [name for name in RECORD if "blocks" in RECORD[name]])
def test_blocks_and_ops_are_paddles(name: str) -> None:
    main, _, _, _ = nets.build(fluid, name)
    ours = json.loads(json.dumps(described(main)))
    theirs = RECORD[name]["blocks"]
    assert [block[:2] for block in ours] == [block[:2] for block in theirs]
    for block, other in zip(ours, theirs, strict=True):
        for op in block[2]:
            op[1].pop("MaxIndex", None)  # sequence_pool_grad reads it here whatever it pools
        if name in ALIKE:
            assert sorted(map(str, block[2])) == sorted(map(str, other[2]))
        else:
            assert block[2] == other[2]


@pytest.mark.parametrize("name", ["if_else_computed", "ranks", "recurrent"])
def test_programs_are_saved_and_loaded(name: str) -> None:
    def parsed(main: Any) -> Any:
        data = main.desc.serialize_to_string()
        loaded = fluid.Program.parse_from_string(data)
        assert loaded.desc.serialize_to_string() == data
        return loaded

    main, startup, fetches, feeds = nets.build(fluid, name)
    exe, names = fluid.Executor(fluid.CPUPlace()), [getattr(f, "name", f) for f in fetches]
    exe.run(startup)
    values = exe.run(parsed(main), feed=feeds[0], fetch_list=names, return_numpy=False)
    compare([[(np.array(v), v.lod()) for v in values]], RECORD[name]["steps"][:1])


def test_places_take_rows_of_one_branch_each(gang: str) -> None:
    """The first place has rows of the true branch alone, the second of the other."""
    main, startup, fetches, feeds = nets.build(fluid, "if_else")
    exe = executor_after(startup)
    program = on_places(main, 2, fetches[0])
    loss, out, *_, a, b, c = exe.run(program, feed=feeds[0], fetch_list=fetches)
    expected = [value for value, _ in RECORD["if_else"]["steps"][0]]
    np.testing.assert_allclose(np.mean(loss), expected[0], rtol=1e-5)
    np.testing.assert_allclose(out, expected[1], rtol=1e-5)
    for value, reference in zip((a, b, c), expected[-3:], strict=True):
        np.testing.assert_allclose(value[: len(reference)], reference, rtol=1e-5)


def test_places_make_steps_of_their_own_sequences(gang: str) -> None:
    main, startup, fetches, feeds = nets.build(fluid, "recurrent")
    exe = executor_after(startup)
    program = on_places(main, 2)
    _, out, _ = exe.run(program, feed=feeds[1], fetch_list=fetches, return_numpy=False)
    expected, lod = RECORD["recurrent"]["steps"][1][1]
    assert out.lod() == lod
    np.testing.assert_allclose(np.array(out), expected, rtol=1e-5)


def sequences(lengths: list[int]) -> Any:
    ones = np.ones((sum(lengths), 1), "float32")
    return fluid.create_lod_tensor(ones, [lengths], fluid.CPUPlace())


def test_a_place_of_a_list_may_have_no_sequences(threads: None) -> None:
    """It names them in any order, and needs no LoD for what has no rows; the last places may be left out."""
    x, y = (fluid.data(name, [None, 1], lod_level=1) for name in "xy")
    recurrent = L.DynamicRNN()
    with recurrent.block():
        recurrent.output(recurrent.step_input(x) * 2.0)
    sums = L.sequence_pool(recurrent(), "sum") + 10.0 * L.sequence_pool(y, "sum")
    padded, _ = L.sequence_pad(x, L.fill_constant([1], "float32", 0.0))
    exe = fluid.Executor(fluid.CPUPlace())
    program = on_places(fluid.default_main_program(), 3)
    rowless = np.zeros((0, 1), "float32")
    feed: list[Any] = [
        {"x": sequences([1, 2]), "y": sequences([2, 1])},
        {"y": sequences([3]), "x": sequences([2])},
        {"x": rowless, "y": rowless},
    ]
    for each in (feed, feed[:2]):
        values, widths = exe.run(program, each, [sums, padded])
        assert values.ravel().tolist() == [22, 14, 34] and widths.shape == (3, 2, 1)
    feed[2]["x"] = np.ones((2, 1), "float32")
    with pytest.raises(FeedError, match=r"'x': place 2 is fed rows without sequences"):
        exe.run(program, feed, [sums])
    deep = fluid.create_lod_tensor(np.ones((2, 1), "float32"), [[1], [2]], fluid.CPUPlace())
    words = r"'x': place 0 is fed 1 level\(s\) of sequences, others are fed 2\."
    with pytest.raises(FeedError, match=words):
        exe.run(program, [feed[0], {"x": deep, "y": sequences([3])}], [sums])
    assert len(exe.run(program, feed[:2], [sums])[0]) == 3


PADDED = json.loads(Path(padded_steps.__file__).with_suffix(".json").read_text())


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("maxlen", padded_steps.MAXLENS)
def test_each_place_makes_as_many_steps_as_its_longest_sequence(
    threads: None, maxlen: int | None, places: int
) -> None:
    """In Paddle, too, so that states depend on the split unless ``maxlen`` is given."""
    results = padded_steps.run(fluid, maxlen, places)
    for value, reference in zip(results, PADDED[f"maxlen {maxlen}, {places} places"], strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["recurrent_trained", "captions"])
def test_places_train_on_their_own_sequences(name: str, gang: str) -> None:
    """The gradients of places with equally many rows add up to those of one place."""
    main, startup, fetches, feeds = nets.build(fluid, name)
    exe = executor_after(startup)
    program = on_places(main, 2, fetches[0])
    alone = fluid.Scope()
    with fluid.scope_guard(alone):
        exe.run(startup)
        exe.run(main, feed=feeds[1])
    exe.run(program, feed=feeds[1], fetch_list=[fetches[0]])
    for p in main.all_parameters():
        values = [np.array(s.find_var(p.name).get_tensor()) for s in (alone, fluid.global_scope())]
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-7)


def test_a_recurrent_classifier_learns() -> None:
    """Embedded words of sentences of different lengths, whose last state is classified."""
    fluid.default_startup_program().random_seed = 1
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    label = fluid.data("label", [None, 1], "int64")
    embedded = fluid.embedding(words, [9, 6])
    net = L.DynamicRNN()
    with net.block():
        word, before = net.step_input(embedded), net.memory(shape=[8])
        hidden = L.fc([word, before], 8, act="tanh")
        net.update_memory(before, hidden)
        net.output(hidden)
    scores = L.fc(L.sequence_last_step(net()), 2)
    loss = L.mean(L.softmax_with_cross_entropy(scores, label))
    fluid.optimizer.Adam(0.03).minimize(loss)
    exe, draw = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0)
    exe.run(fluid.default_startup_program())
    losses = []
    for _ in range(40):
        lengths = draw.integers(1, 5, 8)
        sentences = [draw.integers(0, 9, (n, 1)) for n in lengths]
        feed = {
            "words": fluid.create_lod_tensor(
                np.concatenate(sentences), [lengths.tolist()], fluid.CPUPlace()
            ),
            "label": np.array([[int(each[0, 0] > 4)] for each in sentences]),
        }
        losses.append(float(exe.run(feed=feed, fetch_list=[loss])[0][0]))
    assert np.mean(losses[-5:]) < 0.3 * np.mean(losses[:5])


def test_an_untaken_branch_changes_nothing() -> None:
    x = fluid.data("x", [None, 2])
    count = L.create_global_var([1], 0.0, "float32", persistable=True, name="count")
    mask = L.less_than(L.reduce_sum(x, 1, keep_dim=True), L.fill_constant([1], "float32", 0.0))
    branches = L.IfElse(mask)
    with branches.true_block():
        rows = branches.input(x)
        L.assign(count + L.reduce_mean(rows), count)
        branches.output(rows)
    (out,) = branches()
    exe = executor_after()
    for sign, shape, total in ((1, (0, 2), 0.0), (-1, (3, 2), -1.0), (1, (0, 2), -1.0)):
        feed = {"x": np.full((3, 2), sign, "float32")}
        values = exe.run(feed=feed, fetch_list=[out, count])
        assert (values[0].shape, values[1][0]) == (shape, total)


def rows() -> Any:
    return fluid.data("x", [None, 3], lod_level=1)


def inside(build: Callable[[Any], Any], first: bool = True) -> Callable[[], None]:
    """Return what builds a DynamicRNN with these ops in its block, behind a step_input."""

    def mistake() -> None:
        net, x = L.DynamicRNN(), rows()
        with net.block():
            if first:
                net.step_input(x)
            build(net)

    return mistake


def branches(side: str, build: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """Return what builds an IfElse whose true block gives x, and its other block as told."""

    def mistake() -> None:
        x = fluid.data("x", [None, 3])
        net = L.IfElse(L.less_than(x, x))
        with net.true_block():
            net.output(net.input(x))
        if side:
            with net.false_block():
                build(net, net.input(x))
        else:
            build(net, x)
        net()

    return mistake


def twice() -> None:
    net, x = L.DynamicRNN(), rows()
    for _ in range(2):
        with net.block():
            net.step_input(x)


@pytest.mark.parametrize(
    ("mistake", "error", "problem"),
    [
        (
            lambda: L.DynamicRNN().step_input(rows()),
            InvalidValue,
            "step_input: can only be invoked",
        ),
        (lambda: L.DynamicRNN().output(rows()), InvalidValue, "output: can only be invoked"),
        (lambda: L.DynamicRNN()(), InvalidValue, "only be visited outside the rnn block"),
        (twice, InvalidValue, "block can be built only once"),
        (inside(lambda net: net()), InvalidValue, "only be visited outside the rnn block"),
        (inside(lambda net: None, False), InvalidValue, "needs a step_input"),
        (inside(lambda net: net.memory(shape=[2]), False), InvalidValue, "step_input should be"),
        (inside(lambda net: net.static_input(rows()), False), InvalidState, "after step_input"),
        (
            inside(lambda net: net.memory()),
            InvalidValue,
            "or the shape of a row as a list, got None",
        ),
        (inside(lambda net: net.step_input(3)), InvalidType, "x must be a Variable, got 3"),
        (inside(lambda net: net.step_input(L.tanh(rows()))), InvalidValue, "made before it"),
        (
            inside(
                lambda net: net.update_memory(
                    net.memory(shape=[2], value=0.0), L.ones([1, 3], "float32")
                )
            ),
            InvalidValue,
            "is followed by .*FP32.1,3.: both must have one shape and type",
        ),
        (
            inside(lambda net: net.update_memory(*[L.fill_constant([1], "float32", 1)] * 2)),
            InvalidValue,
            "is no memory of this net: call memory first",
        ),
        (lambda: L.IfElse(3), InvalidType, "cond must be a Variable, got 3"),
        (branches("", lambda net, x: net.input(x)), InvalidValue, "input: must be called in true_"),
        (branches("", lambda net, x: net.output(x)), InvalidValue, "output: must be called in"),
        (branches("false", lambda net, x: None), InvalidValue, "false_block must set its output"),
        (branches("false", lambda net, x: net()), InvalidValue, "for use behind its blocks"),
        (branches("false", lambda net, x: net.output(x, x)), InvalidValue, "has 1, false_block 2"),
        (
            branches("false", lambda net, x: net.output(L.cast(x, "int64"))),
            InvalidType,
            "output 0 is FP32 in true_block and INT64 in false_block",
        ),
        (
            branches("false", lambda net, x: net.output(L.reduce_sum(x, 1))),
            ValueError,
            r"rows of one shape and type \(got .*InTrue 'ifelse_0_output_0'.*test_dynamic_nets.py:\d+",
        ),
        (lambda: control.max_sequence_len(rows()), InvalidType, "'x' is no rank table"),
        (lambda: L.IfElse(L.less_than(rows(), rows()))(), InvalidValue, "build true_block or"),
    ],
)
def test_mistakes_are_named(mistake: Callable[[], Any], error: Any, problem: str) -> None:
    with pytest.raises(error, match=problem):
        mistake()


def test_a_rank_table_of_other_sequences_is_refused() -> None:
    x, y = rows(), fluid.data("y", [None, 1], lod_level=1)
    control.lod_tensor_to_array(y, control.lod_rank_table(x))
    numbers = np.zeros((3, 3), "float32")
    feed = {
        "x": fluid.create_lod_tensor(numbers, [[1, 2]], fluid.CPUPlace()),
        "y": fluid.create_lod_tensor(numbers[:, :1], [[2, 1]], fluid.CPUPlace()),
    }
    with pytest.raises(RuntimeError, match=r"lengths \[2, 1\], and X has \[\[2, 1\]\].*built at"):
        fluid.Executor(fluid.CPUPlace()).run(feed=feed)
