"""What public programs lean on: names of parameters, the step counter, given states, words beside sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.fluid.contrib.layers import basic_lstm
from rowlock.fluid.layers.learning_rate_scheduler import _decay_step_counter
from rowlock.strategies.errors import ExecutionError, FeedError, InvalidState, ShapeError
from tests.programs import executor_after, on_places

layers = fluid.layers


@pytest.fixture
def program() -> Iterator[Any]:
    main, startup = fluid.Program(), fluid.Program()
    guard = fluid.program_guard(main, startup), fluid.unique_name.guard()
    with guard[0], guard[1], fluid.scope_guard(fluid.Scope()):
        yield main


def run(program: Any, feed: dict[str, Any], *outs: Any) -> list[np.ndarray]:
    exe = executor_after()
    return exe.run(program, feed=feed, fetch_list=list(outs))


def test_parameters_have_paddles_names(program: Any) -> None:
    """As saved by Paddle: one channel without ``groups`` is no depthwise convolution."""
    grey = fluid.data("grey", [None, 1, 8, 8])
    for groups in (None, 1):
        layers.conv2d(grey, 4, 3, groups=groups, bias_attr=False, use_cudnn=False)
        layers.conv2d_transpose(
            grey, 1, filter_size=3, groups=groups, bias_attr=False, use_cudnn=False
        )
    layers.inplace_abn(grey)
    for name in (None, None, "own"):  # those without a name share theirs
        layers.data_norm(fluid.data(f"row {name}", [None, 2]), name=name)
    layers.create_parameter([2], "float32", name="mine", attr=fluid.ParamAttr())
    layers.create_parameter([2], "float32", name="whole")
    assert [p.name for p in program.all_parameters()] == [
        "conv2d_0.w_0",
        "conv2d_transpose_0.w_0",
        "depthwise_conv2d_0.w_0",
        "depthwise_conv2d_transpose_0.w_0",
        *(f"inplace_abn_0.{end}" for end in ("w_0", "b_0", "w_1", "w_2")),
        *(f"dn.{end}" for end in ("batch_size", "batch_sum", "batch_square_sum")),
        *(f"own.{end}" for end in ("batch_size", "batch_sum", "batch_square_sum")),
        "mine.w_0",
        "whole",
    ]


def test_global_variables_have_paddles_names(program: Any) -> None:
    """A file of what Paddle saved has one for each name."""
    weights = layers.create_global_var([2], 0.5, "float32", persistable=True)
    helper = fluid.layer_helper.LayerHelper("mask")
    mask = helper.create_global_variable(dtype="float32", shape=[2], persistable=True)
    assert [weights.name, mask.name] == ["_generated_var_0", "_generated_var_1"]


def test_a_schedule_of_the_users_own_counts_steps(program: Any) -> None:
    rate = 0.5 * _decay_step_counter(begin=3)
    assert run(program, {}, rate)[0] == 1.5


def test_pairs_of_unknown_number_have_a_loss(program: Any) -> None:
    a, p = fluid.data("a", [None, 3]), fluid.data("p", [None, 3])
    loss = layers.npair_loss(a, p, fluid.data("y", [None]), l2_reg=0.0)
    rows, labels = np.eye(2, 3, dtype="float32"), np.array([1, 2], "float32")
    expected = np.log(np.e + 1) - 1  # the product with itself is 1, with the other 0
    assert run(program, {"a": rows, "p": rows, "y": labels}, loss)[0] == pytest.approx(expected)


def test_recurrent_units_begin_with_given_states(program: Any) -> None:
    x, h = fluid.data("x", [None, 2, 3]), fluid.data("h", [2, None, 4])
    _, last, _ = basic_lstm(x, h, h, 4, num_layers=2)
    feed = {"x": np.zeros((1, 2, 3), "float32"), "h": np.ones((2, 1, 4), "float32")}
    assert run(program, feed, last)[0].shape == (2, 1, 4)
    net = layers.StaticRNN()
    with pytest.raises(ValueError, match=r"Compute it .* before `with rnn.step"), net.step():
        net.step_input(x)
        net.memory(init=h[0])


def test_words_beside_sentences_are_cut_together(threads: None, program: Any) -> None:
    """Each of four sentences has three words; rows of which samples have no whole number are refused."""
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
    gap = layers.reduce_max(layers.abs(layers.reshape(x, [-1, 1]) - y))
    exe = fluid.Executor(fluid.CPUPlace())
    compiled = on_places(program, 2)
    words = np.arange(12, dtype="float32").reshape(12, 1)
    feed = {"x": words.reshape(4, 3), "y": words}
    np.testing.assert_array_equal(exe.run(compiled, feed=feed, fetch_list=[gap])[0], [0, 0])
    with pytest.raises(FeedError, match="differ in their rows: 'x' has 4, 'y' has 10"):
        exe.run(compiled, feed={**feed, "y": words[:10]}, fetch_list=[gap])
    with pytest.raises(FeedError, match="differ in their rows: 'x' has 3, 'y' has 9"):
        exe.run(compiled, feed={"x": feed["x"][:3], "y": words[:9]}, fetch_list=[gap])


def test_statistics_are_averaged_behind_rows_that_values_choose(program: Any) -> None:
    """A step that is cut: what a batch norm wrote before the cut is read behind it."""
    x = fluid.data("x", [None, 3, 2, 2])
    h = layers.batch_norm(x, moving_mean_name="mean", momentum=0.5)
    chosen = layers.where(layers.reshape(h, [-1, 1]) > 0.0)
    loss = layers.mean(layers.fc(h, 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.optimizer.ModelAverage(0.15, min_average_window=2, max_average_window=4)
    (total,) = (v.name for v in program.list_vars() if v.name.startswith("mean_sum_1"))
    images = np.full((2, 3, 2, 2), 4, "float32")
    rows, summed = run(program, {"x": images}, chosen, total)
    assert rows.shape == (0, 2)
    np.testing.assert_allclose(summed, [2, 2, 2])


def test_words_fed_without_their_sentences_are_named(threads: None, program: Any) -> None:
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    y = fluid.data("y", [None, 1])
    total = layers.sequence_pool(layers.cast(words, "float32"), "sum") + y
    compiled = on_places(program, 2)
    feed = {"words": np.ones((5, 1), "int64"), "y": np.ones((2, 1), "float32")}
    with pytest.raises(
        FeedError, match=r"'words' is declared with lod_level=1, .*create_lod_tensor"
    ):
        run(compiled, feed, total)


def test_an_image_with_fewer_labels_than_boxes_is_named(program: Any) -> None:
    """Before, a box of the first image took the label of the next one."""
    x = fluid.data("x", [None, 1, 1], lod_level=1)
    match = fluid.data("match", [None, 2], "int32")
    out, _ = layers.target_assign(x, match, mismatch_value=-1)
    labels = fluid.create_lod_tensor(
        np.arange(3, dtype="float32").reshape(3, 1, 1), [[1, 2]], fluid.CPUPlace()
    )
    feed = {"x": labels, "match": np.array([[0, -1], [1, 0]], "int32")}
    assert run(program, feed, out)[0].ravel().tolist() == [0, -1, 2, 1]
    feed["match"] = np.array([[0, 1], [1, 0]], "int32")
    with pytest.raises(
        ExecutionError, match="image 0 has 1 rows in X, and a box of it matches row 1"
    ):
        run(program, feed, out)


@pytest.mark.parametrize("places", [1, 2])
def test_sizes_that_layers_data_declares_need_not_be_fed(
    threads: None, program: Any, places: int
) -> None:
    """As seq2seq nets of PaddleNLP declare their words: before, only the first of a sentence was read."""
    x = layers.data("x", [-1, 1, 1])
    lengths = layers.data("lengths", [-1], dtype="int32")
    time = layers.shape(x)[1]
    mask = layers.sequence_mask(lengths, maxlen=time, dtype="float32")
    by_step = layers.transpose(x, [1, 0, 2])
    net = layers.StaticRNN()
    with net.step():
        word = net.step_input(by_step)
        total = net.memory(shape=[-1, 1], batch_ref=by_step)
        net.update_memory(total, total + word)
        net.step_output(total + word)
    sums = layers.transpose(net(), [1, 0, 2])
    outs = [mask, sums]
    exe = fluid.Executor(fluid.CPUPlace())
    compiled = on_places(program, places) if places > 1 else program
    for words in (1, 3, 2):
        array = np.arange(4 * words, dtype="float32").reshape(4, words, 1)
        feed = {"x": array, "lengths": np.array([1, 2, 1, 1], "int32")}
        results = exe.run(compiled, feed=feed, fetch_list=outs)
        expected = np.arange(words) < feed["lengths"][:, None]
        np.testing.assert_array_equal(results[0], expected)
        np.testing.assert_array_equal(results[1], np.cumsum(array, 1))


def test_sizes_declared_beside_a_variable_build_what_follows(program: Any) -> None:
    """A convolution needs channels, and has them from ``shape``; the Variable decides in a step."""
    x = fluid.data("x", [None, 4, 6])
    sizes = fluid.data("sizes", [4], "int32")
    image = layers.reshape(x, [-1, 4, 3, 2], actual_shape=sizes)
    assert image.shape == (-1, 4, 3, 2)
    filtered = layers.conv2d(image, 2, 1, bias_attr=False)
    area = layers.cast(layers.slice(sizes, [0], [2], [4]), "int32")
    larger = layers.resize_nearest(filtered, [9, 10], actual_shape=area, align_corners=False)
    assert larger.shape == (-1, 2, 9, 10)
    feed = {"x": np.ones((2, 4, 6), "float32"), "sizes": np.array([2, 4, 2, 3], "int32")}
    outs = run(program, feed, image, filtered, larger, layers.shape(larger))
    assert [out.shape for out in outs[:3]] == [(2, 4, 2, 3), (2, 2, 2, 3), (2, 2, 2, 3)]
    assert outs[3].tolist() == [2, 2, 2, 3]


def test_a_batch_declared_beside_a_variable_says_how_operands_are_aligned(program: Any) -> None:
    """A shorter operand meets the last dimensions of one whose first size is a number: here, the declared 8."""
    x = fluid.data("x", [None, 2, 3])
    sizes = layers.shape(x)
    matrix = layers.reshape(x, [8, -1], actual_shape=layers.concat([sizes[0], sizes[1] * sizes[2]]))
    assert matrix.shape == (8, 6)
    left = layers.range(0, 6, 1, "float32") - matrix
    assert left.shape == (8, 6)
    (result,) = run(program, {"x": np.ones((2, 2, 3), "float32")}, left)
    np.testing.assert_array_equal(result, np.arange(6) - np.ones((2, 6)))


def test_a_window_larger_than_the_image_sees_all_of_it(program: Any) -> None:
    """GoogLeNets end with 7 x 7 windows, 7 apart, on what is 6 x 6. The numbers are Paddle's."""
    x = fluid.data("x", [1, 1, 6, 5])
    x.stop_gradient = False
    outs = [
        layers.pool2d(x, 7, "avg", 7),
        layers.pool2d(x, 7, "avg", 7, exclusive=False),
        layers.pool2d(x, [7, 3], "max", [2, 2]),
        layers.pool2d(x, 9, "max", 4, ceil_mode=True),
    ]
    total = layers.sums([layers.reduce_sum(layers.square(out)) for out in outs[:2]])
    feed = {"x": np.arange(30, dtype="float32").reshape(1, 1, 6, 5)}
    *pooled, slope = run(program, feed, *outs, fluid.gradients(total, x)[0])
    assert [out.shape for out in pooled] == [(1, 1, 1, n) for n in (1, 1, 2, 1)]
    for out, numbers in zip(pooled, [14.5, 8.877551, [27, 29], 29], strict=True):
        np.testing.assert_allclose(out.ravel(), numbers, rtol=1e-6)
    np.testing.assert_allclose(slope, 2 * 14.5 / 30 + 2 * 8.877551 / 49, rtol=1e-6)


@pytest.mark.parametrize("name", ["argsort", "topk"])
def test_no_gradient_passes_what_was_sorted_unless_told(program: Any, name: str) -> None:
    """Paddle's layers mark what they return; programs train by the rest of their loss."""
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    x_gradients = []
    for stop in (True, False):
        values = layers.argsort(x)[0] if name == "argsort" else layers.topk(x, 2)[0]
        assert values.stop_gradient
        values.stop_gradient = stop
        total = layers.reduce_sum(layers.square(values)) + layers.reduce_sum(x)
        x_gradients += fluid.gradients(total, x)
    rows = np.array([[3, 1, 2], [5, 6, 4]], "float32")
    stopped, passed = run(program, {"x": rows}, *x_gradients)
    smallest = rows == rows.min(1, keepdims=True)
    assert (stopped == 1).all()
    np.testing.assert_allclose(passed, 1 + 2 * rows * ~(smallest & (name == "topk")))


def test_the_cosine_of_short_vectors_is_paddles(program: Any) -> None:
    """A sum of squares counts as 1e-8 if it is less, and as it is otherwise (numbers of Paddle 1.8.5)."""
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 2])
    feed = {"x": np.array([[k, 0] for k in (1e-3, 1e-4, 0.99e-4, 1e-5, 0)], "float32")}
    feed["y"] = np.ones_like(feed["x"])
    (cosine,) = run(program, feed, layers.cos_sim(x, y))
    expected = [[0.7071068], [0.7071068], [0.70003575], [0.07071068], [0]]
    np.testing.assert_allclose(cosine, expected, rtol=1e-6)


def test_a_variable_without_a_value_is_an_empty_array(program: Any) -> None:
    """PaddleSlim's ``merge`` copies every variable of a scope, temporaries among them."""
    loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 3))
    scope = fluid.global_scope()
    for variable in program.list_vars():
        value = np.array(scope.var(variable.name).get_tensor())
        assert (value.shape, value.dtype, scope.var(variable.name).get_tensor().shape()) == (
            (0,),
            "float64",
            [0],
        )
        scope.var(f"teacher_{variable.name}").get_tensor().set(value, fluid.CPUPlace())
        if variable is not loss and not variable.persistable:
            scope.var(variable.name).get_tensor().set(value, fluid.CPUPlace())
    assert run(program, {"x": np.ones((2, 2), "float32")}, loss)[0].shape == (1,)


def test_a_target_net_that_a_program_of_one_place_copies_is_new_on_every_place() -> None:
    """Deep Q-learning: two places lose what one loses, whose target net is copied every other step."""
    losses = []
    for places in (1, 2):
        main, startup, sync = fluid.Program(), fluid.Program(), fluid.Program()
        guards = fluid.program_guard(main, startup), fluid.unique_name.guard()
        with guards[0], guards[1], fluid.scope_guard(fluid.Scope()):
            states, actions = (
                fluid.data("states", [None, 3]),
                fluid.data("actions", [None, 1], "int64"),
            )
            best, chosen = (
                layers.fc(
                    states, 2, param_attr=fluid.ParamAttr(name, fluid.initializer.Constant(0.5))
                )
                for name in ("target", "model")
            )
            goal = layers.reduce_max(best, dim=1) * 0.9 + 1.0
            goal.stop_gradient = True
            value = layers.reduce_sum(layers.one_hot(actions, 2) * chosen, dim=1)
            loss = layers.reduce_mean(layers.square_error_cost(value, goal))
            fluid.optimizer.SGD(0.1).minimize(loss)
            with fluid.program_guard(sync):
                pair = [
                    sync.global_block()._clone_variable(main.global_block().var(name))
                    for name in ("model", "target")
                ]
                layers.assign(*pair)
            exe = executor_after(startup)
            compiled = on_places(main, places, loss)
            rng = np.random.RandomState(0)
            with rowlock.cluster(launcher="threads"):
                for step in range(6):
                    if step % 2:
                        exe.run(sync)
                    feed = {"states": rng.rand(4, 3).astype("float32")}
                    feed["actions"] = rng.randint(0, 2, (4, 1))
                    losses.append(exe.run(compiled, feed=feed, fetch_list=[loss])[0].mean())
    np.testing.assert_allclose(losses[:6], losses[6:], rtol=1e-5)


def test_a_test_program_of_one_place_leaves_the_statistics_of_other_places(program: Any) -> None:
    """What a norm only uses is not written: each place goes on testing with its own."""
    x = fluid.data("x", [None, 2])
    loss = layers.mean(layers.fc(layers.batch_norm(x, momentum=0.5), 1))
    test = program.clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = executor_after()
    places = fluid.cpu_places(2)
    train = on_places(program, places, loss)
    tests = on_places(test, places, share_vars_from=train)
    feed = {"x": np.array([[1, 2], [3, 5], [8, 9], [4, 7]], "float32")}
    with rowlock.cluster(launcher="threads"):
        exe.run(train, feed=feed)
        before = exe.run(tests, feed=feed, fetch_list=[loss.name])[0]
        exe.run(test, feed=feed, fetch_list=[loss.name])
        after = exe.run(tests, feed=feed, fetch_list=[loss.name])[0]
    np.testing.assert_array_equal(after, before)


def test_a_memory_with_fewer_sequences_than_the_steps_is_named(program: Any) -> None:
    words, notes = (fluid.data(name, [None, 2], lod_level=1) for name in ("words", "notes"))
    rnn = layers.DynamicRNN()
    with rnn.block():
        rnn.step_input(words)
        rnn.output(layers.sequence_pool(rnn.static_input(notes), "sum"))
    rows = np.ones((4, 2), "float32")
    pairs = {"words": [1, 1, 2], "notes": [3, 1]}
    feed = {n: fluid.create_lod_tensor(rows, [c], fluid.CPUPlace()) for n, c in pairs.items()}
    with pytest.raises(
        ShapeError, match=r"X has fewer sequences than Y names.*notes@LOD0.*Built at"
    ):
        run(program, feed, rnn())


@pytest.mark.parametrize("train", [True, False])
def test_lasting_results_of_any_number_of_rows_need_not_be_fetched(
    threads: None, program: Any, train: bool
) -> None:
    """As detectors keep their boxes: a place writes those of its images, in each step."""
    x = fluid.data("x", [None, 3])
    score = layers.fc(x, 1, param_attr="w")
    loss = layers.mean(score)
    rows = layers.where(score > 0.0)
    rows.persistable = True
    if train:
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, places = fluid.Executor(fluid.CPUPlace()), fluid.cpu_places(2)
    exe.run(fluid.default_startup_program())
    on_two = on_places(program, places, loss)
    draw = np.random.RandomState(0)
    for fetches in ([loss], [loss, rows], [loss]):
        weight = np.array(fluid.global_scope().find_var("w").get_tensor())
        images = draw.randn(12, 3).astype("float32")
        exe.run(on_two, feed={"x": images}, fetch_list=fetches)
        place_0 = fluid.global_scope().find_var(rows.name).get_tensor()
        above = (images[:6] @ weight + np.float32(0))[:, 0] > 0
        np.testing.assert_array_equal(np.array(place_0)[:, 0], np.flatnonzero(above))


@pytest.mark.parametrize("soft", [False, True])
def test_a_probability_that_would_underflow_trains_on(program: Any, soft: bool) -> None:
    """With the numbers of Paddle 1.8.5 on CPUs: loss, and the gradient of the logits."""
    x = fluid.data("x", [None, 3])
    x.stop_gradient = False
    label = fluid.data("label", [None, 3 if soft else 1], "float32" if soft else "int64")
    cost = layers.cross_entropy(layers.softmax(x), label, soft_label=soft)
    (slope,) = fluid.gradients([layers.reduce_sum(cost)], [x])
    logits = np.array([[0, 100, 0], [0, 200, 200], [0, 1e4, 0], [0, 60, 0]], "float32")
    labels = np.tile(np.eye(3, dtype="float32")[:1], (4, 1)) if soft else np.zeros((4, 1), "int64")
    costs, slopes = run(program, {"x": logits, "label": labels}, cost, slope)
    np.testing.assert_allclose(costs.ravel(), [64, 64.693146, 64, 60], rtol=1e-6)
    np.testing.assert_allclose(
        slopes, [[-1, 1, 0], [-1, 0.5, 0.5], [-1, 1, 0], [-1, 1, 0]], rtol=1e-6, atol=1e-20
    )


def test_what_minimize_returns_may_be_fetched(program: Any) -> None:
    """It trains, and leaves out what neither the loss nor the optimizer needs."""
    x, unused = fluid.data("x", [None, 2]), fluid.data("unused", [None, 2])
    start = fluid.initializer.Constant(1.0)
    loss = layers.mean(layers.square(layers.fc(x, 1, param_attr=fluid.ParamAttr("w", start))))
    layers.mean(unused)
    ops, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
    ones = {"x": np.ones((2, 2), "float32")}
    for fetches in ([loss, (ops, pairs)], [loss, ops], [[loss, *ops]]):
        before, after = run(program, ones, *fetches), run_again(program, ones, *fetches)
        assert len(before) == 1 and after[0] < before[0]


def run_again(program: Any, feed: dict[str, Any], *outs: Any) -> list[np.ndarray]:
    return fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=list(outs))


def test_a_namespace_is_left_and_entered_again(program: Any) -> None:
    """By what ``switch`` returns, as Paddle documents it."""
    assert fluid.unique_name.generate("fc") == "fc_0"
    names, checker = fluid.unique_name.switch()
    assert fluid.unique_name.generate("fc") == "fc_0"
    fluid.unique_name.switch(names, checker)
    assert fluid.unique_name.generate("fc") == "fc_1"


def test_what_detectors_return_has_paddles_names(program: Any) -> None:
    """Evaluations fetch boxes by name, and keep the state of a precision, in a namespace of their own too."""
    scores, prior = fluid.data("scores", [None, 4, 3]), fluid.data("prior", [4, 4])
    with fluid.unique_name.guard("eval_"):
        boxes = layers.detection_output(fluid.data("loc", [None, 4, 4]), scores, prior, prior)
        label, box = (
            fluid.data(name, [None, n], lod_level=1) for name, n in (("label", 1), ("box", 4))
        )
        precision = fluid.metrics.DetectionMAP(boxes, label, box, class_num=3)
    assert boxes.name == "eval_eval_detection_output_0.tmp_0"
    assert precision.has_state.name == "eval_eval_map_eval_0_3_has_state"


def test_attention_with_heads_learns_projections(program: Any) -> None:
    """Of one head there are none, as Paddle's documents say."""
    queries, memory = fluid.data("queries", [2, 3, 4]), fluid.data("memory", [2, 5, 4])
    values = fluid.data("values", [2, 5, 6])
    plain = fluid.nets.scaled_dot_product_attention(queries, memory, values)
    assert program.all_parameters() == [] and plain.shape == (2, 3, 6)
    out = fluid.nets.scaled_dot_product_attention(queries, memory, values, num_heads=2)
    shapes = {p.name: p.shape for p in program.all_parameters() if p.name.endswith("w_0")}
    assert shapes == {"fc_0.w_0": (4, 4), "fc_1.w_0": (4, 4), "fc_2.w_0": (6, 6)}
    random = np.random.default_rng(0)
    feed = {
        v.name: random.normal(size=v.shape).astype("float32") for v in (queries, memory, values)
    }
    names = [f"fc_{k}.w_0" for k in range(3)]
    result, one, *weights = run(program, feed, out, plain, *names)

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        return shares @ v

    q, k, v = feed["queries"], feed["memory"], feed["values"]
    np.testing.assert_allclose(one, attention(q, k, v), 1e-5, 1e-6)
    q, k, v = (x @ w for x, w in zip((q, k, v), weights, strict=True))
    halves = [attention(q[..., s], k[..., s], v[..., t]) for s, t in _HALVES]
    np.testing.assert_allclose(result, np.concatenate(halves, -1), 1e-5, 1e-6)
    with pytest.raises(ValueError, match="keys are as wide as queries"):
        fluid.nets.scaled_dot_product_attention(queries, values, values)
    with pytest.raises(ValueError, match="must have 3 dimensions"):
        fluid.nets.scaled_dot_product_attention(layers.mean(queries), memory, values)


_HALVES = (slice(0, 2), slice(0, 3)), (slice(2, 4), slice(3, 6))


def test_counts_set_to_zeros_of_floats_are_counts_again(program: Any, threads: None) -> None:
    """As metrics of recommenders do between epochs; a value that the type does not have is refused."""
    scores, labels = fluid.data("scores", [None, 2]), fluid.data("labels", [None, 1], "int64")
    area, _, (*_, positive, negative) = layers.auc(scores, labels, slide_steps=0)
    share = np.linspace(0.1, 0.9, 8, dtype=np.float32)[:, None]
    feed = {"scores": np.hstack([1 - share, share]), "labels": np.arange(8)[:, None] % 3 // 2}
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    exe.run(fluid.default_startup_program())
    compiled = on_places(program, 2)
    for runs in (program, compiled):
        results = []
        for _ in range(2):
            results.append(exe.run(runs, feed, [area, positive])[0].tolist())
            for counts in (positive, negative):
                tensor = scope.find_var(counts.name).get_tensor()
                tensor.set(np.zeros(tensor.shape(), np.float32), fluid.CPUPlace())
        assert results[0] == results[1]
    tensor.set(np.full(tensor.shape(), 0.5, np.float32), fluid.CPUPlace())
    with pytest.raises(InvalidState, match="holds float32, but the program has it as int64"):
        exe.run(program, feed, [area])


def test_samples_have_the_size_of_a_batch(program: Any, threads: None) -> None:
    """As an actor draws actions around what it computes; without spread a sample is the middle."""
    x = fluid.data("x", [None, 2])
    middle, spread = x * 2.0, layers.zeros_like(x)
    around = layers.Normal(middle, spread).sample([3])
    inside = layers.Uniform(middle, middle + spread).sample([3])
    drawn = layers.Normal(middle, spread + 1.0).sample([1])
    assert around.shape == inside.shape == (3, -1, 2)
    exe = fluid.Executor(fluid.CPUPlace())
    compiled = on_places(program, 2)
    for rows in (4, 6, 2):
        fed = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        results = exe.run(program, {"x": fed}, [around, inside, drawn])
        for sample in results[:2]:
            np.testing.assert_allclose(sample, np.stack([2 * fed] * 3), rtol=1e-6)
        assert results[2].shape == (1, rows, 2) and len(np.unique(results[2][0] - 2 * fed)) > rows
        assert exe.run(compiled, {"x": fed}, [around])[0].shape == (6, rows // 2, 2)


def test_a_state_is_fed_once_and_carried_by_steps_on_places(threads: None, program: Any) -> None:
    """As language models carry the last hidden state: fed to the first step, assigned by each."""
    x, state = fluid.data("x", [2, 3]), fluid.data("state", [2, 3])
    state.persistable = True
    loss = layers.reduce_mean(layers.fc(x, 1) * 0.0 + layers.reduce_sum(state))
    layers.assign(state * 2.0, state)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = executor_after()
    compiled = on_places(program, 2, loss)
    ones = np.ones((2, 3), "float32")
    sums = [
        exe.run(compiled, feed={"x": ones, **fed}, fetch_list=[loss])[0].tolist()
        for fed in ({"state": ones}, {}, {}, {"state": ones}, {})
    ]
    assert sums == [[6, 6], [12, 12], [24, 24], [6, 6], [12, 12]]
