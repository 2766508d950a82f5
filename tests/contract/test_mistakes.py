"""What would train nonsense without a word is refused, or warned of at the user's line."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import (
    EnforceNotMet,
    FeedError,
    InvalidArgument,
    InvalidValue,
    MissingFile,
    ShapeError,
    StateMismatch,
)
from tests.programs import on_places, own_programs


def _net() -> tuple[Any, Any]:
    x = fluid.data("x", [None, 3])
    y = fluid.layers.fc(x, 1)
    return x, fluid.layers.mean(fluid.layers.square(y))


@pytest.fixture(autouse=True)
def _own_program() -> Any:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def test_a_loss_that_no_parameter_leads_to_is_refused() -> None:
    x, loss = _net()
    with pytest.raises(InvalidValue, match=r"nothing to train: variables in between.*fc_0\.w_0"):
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(x))
    with pytest.raises(InvalidValue, match="parameter_list names none"):
        fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=[])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda x: fluid.layers.fc(x, 3, act=np.tanh), "fc: act must be the name of an operator"),
        (lambda x: fluid.layers.fc(x, 3, act={"axis": 1}), r"or a dict .* got {'axis': 1}"),
        (
            lambda x: fluid.layers.gather(x, fluid.data("i", [2])),
            "gather: Index must hold integers",
        ),
        (lambda x: fluid.layers.one_hot(x, 3), "one_hot: X must hold integers"),
        (
            lambda x: fluid.layers.fc(fluid.data("i", [None, 2], "int64"), 3),
            "fc: .* Cast the input",
        ),
        (lambda x: fluid.layers.fill_constant([2], "float32", "a"), "value must be a number"),
        (
            lambda x: fluid.layers.create_parameter([0], "float32", "w"),
            r"variable 'w' of shape \[0\]: its initializer divides by fan-in and fan-out, which come to 0",
        ),
        (lambda x: fluid.layers.reduce_sum(x, dim="a"), "reduce_sum: dim must be"),
        (lambda x: fluid.layers.split(x, 0), "split: num_or_sections must be above 0, got 0"),
        (lambda x: fluid.layers.reshape(x, [-1, -2]), r"a size of \[-1, -2\] is below -1"),
        (
            lambda x: fluid.layers.conv2d(fluid.data("i", [None, 3, 8, 8]), 4, -3),
            "conv2d: filter_size must not be below 1, got -3",
        ),
        (
            lambda x: fluid.embedding(fluid.data("i", [None], "int64"), [-10, 4]),
            r"embedding: size must be two numbers above 0, \[rows, width\] of the table, got \[-10, 4\]",
        ),
        (lambda x: fluid.layers.cast(x, 100), "100 is not an element type of a tensor"),
        (
            lambda x: fluid.layers.dropout(x, np.ones(2)),
            r"dropout: dropout_prob must be a number, got array\(\[1\., 1\.\]\)",
        ),
        (lambda x: fluid.layers.clip(x, np.ones(2), 3), "clip: min must be a number or a Variable"),
        (
            lambda x: fluid.layers.sequence_pool(fluid.data("i", [None, 3], lod_level=1), 3),
            "sequence_pool: pool_type must be a str, got 3",
        ),
        (lambda x: fluid.layers.piecewise_decay([1], 0.1), "values must be a list, got 0.1"),
        (
            lambda x: fluid.layers.noam_decay(8, 0),
            "noam_decay: warmup_steps must be above 0, got 0",
        ),
        (lambda x: rowlock.nn.Conv2D(3, 8, 0), "Conv2D: kernel_size must be above 0, got 0"),
        (lambda x: fluid.layers.batch_norm(x, epsilon=-1.0), "epsilon must not be negative"),
        (lambda x: fluid.layers.layer_norm(x, epsilon=-1.0), "epsilon must not be negative"),
        (
            lambda x: fluid.layers.softmax(fluid.data("i", [None, 3], "int64")),
            "softmax: X must hold floats",
        ),
        (lambda x: rowlock.configure("threads"), "fields of one by name .* got 'threads'"),
        (lambda x: rowlock.configure(rowlock.ClusterConfig(), spares=1), "and spares"),
    ],
)
def test_what_is_of_another_kind_is_refused_where_it_is_said(build: Any, said: str) -> None:
    with pytest.raises(EnforceNotMet, match=said):
        build(fluid.data("x", [None, 3]))


def test_a_loss_minimized_twice_is_warned_of_and_two_losses_are_not() -> None:
    x, loss = _net()
    fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=["fc_0.w_0"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fluid.optimizer.Adam(0.1).minimize(loss, parameter_list=["fc_0.b_0"])
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(x, 2)))
    with pytest.warns(UserWarning, match=r"'fc_0.b_0' \(at .*update them twice") as record:
        fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=["fc_0.b_0"])
    assert record[0].filename == __file__


def test_the_truth_of_a_variable_is_warned_of() -> None:
    variables = _net()
    with pytest.warns(UserWarning, match="truth of a Variable") as record:
        warnings.simplefilter("default")
        assert all(bool(variable) for variable in variables)
    assert [warning.filename for warning in record] == [__file__]  # once for the line


def test_a_data_variable_declared_again_in_the_default_program_is_warned_of() -> None:
    from rowlock.graph.program import program as programs

    outermost = programs._outermost
    programs._outermost = fluid.default_main_program()
    try:
        fluid.data("x", [None, 3])
        with pytest.warns(UserWarning, match=r"'x' is declared again.*program_guard") as record:
            fluid.layers.data("x", [3])
        assert record[0].filename == __file__
    finally:
        programs._outermost = outermost
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fluid.data("x", [None, 3])  # in a program of its own


def test_a_variable_that_exists_otherwise_is_named_with_the_line_that_declares_it() -> None:
    fluid.data("x", [None, 3])
    with pytest.raises(InvalidValue, match=r"declared at .*test_mistakes.py:\d+.*program_guard"):
        fluid.data("x", [None, 4])


def test_a_startup_program_that_was_run_too_early_is_not_called_missing(threads: None) -> None:
    _, loss = _net()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(fluid.default_startup_program())
        fluid.optimizer.Adam(0.1).minimize(loss)
        with pytest.raises(RuntimeError, match=r"Others do: .* once all .* is built"):
            exe.run(feed={"x": np.ones((2, 3), np.float32)}, fetch_list=[loss])


@pytest.mark.parametrize("places", [1, 2])
def test_parameters_that_a_program_of_the_same_names_wrote_are_warned_of(
    threads: None, places: int
) -> None:
    def train(width: int) -> Any:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", [None, 3])
            loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(x, width), 1))
            fluid.optimizer.SGD(0.1).minimize(loss)
            exe.run(fluid.default_startup_program())
            program = on_places(fluid.default_main_program(), places, loss)
            return lambda: exe.run(program, {"x": np.ones((2, 3), np.float32)}, [loss])

    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        first = train(4)
        first()
        second = train(6)
        second()
        with warnings.catch_warnings(record=True) as caught, contextlib.suppress(EnforceNotMet):
            warnings.simplefilter("always")
            first()
    texts = [str(warning.message) for warning in caught]
    assert any("'fc_0.w_0' has shape [3, 6]" in text and "[3, 4]" in text for text in texts), texts
    assert {warning.filename for warning in caught} == {__file__}


def test_a_batch_whose_feeds_differ_in_rows_and_a_strategy_changed_too_late() -> None:
    _x, loss = _net()
    label = fluid.data("label", [None, 1])
    loss = fluid.layers.mean(loss + label)
    exe = fluid.Executor(fluid.CPUPlace())
    strategy = fluid.BuildStrategy()
    rows = {"x": np.ones((8, 3), np.float32), "label": np.ones((3, 1), np.float32)}
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe.run(fluid.default_startup_program())
        exe.run(feed=rows, fetch_list=[loss])  # one place: the ops say what fits
        program = on_places(fluid.default_main_program(), 2, loss, build=strategy)
        with pytest.raises(FeedError, match=r"'x' has 8, 'label' has 3.*list of 2 dicts"):
            exe.run(program, feed=rows, fetch_list=[loss])
        rows["label"] = np.ones((8, 1), np.float32)
        exe.run(program, feed=rows, fetch_list=[loss])
        strategy.fuse_all_reduce_ops = not strategy.fuse_all_reduce_ops  # for another program, say
        with pytest.warns(UserWarning, match="BuildStrategy.fuse_all_reduce_ops changed") as record:
            exe.run(program, feed=rows, fetch_list=[loss])
    assert record[0].filename == __file__


def test_errors_of_feeds_tell_the_size_that_was_fed() -> None:
    x = fluid.data("x", [None, 3])
    unchecked = fluid.layers.data("u", [3])
    out = fluid.layers.fc([x, unchecked], 1)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe.run(fluid.default_startup_program())
        program = on_places(fluid.default_main_program(), 2)
        three, four = np.ones((8, 3), np.float32), np.ones((8, 4), np.float32)
        with pytest.raises(FeedError, match=r"shape \[-1, 3\], got \[8, 4\]"):
            exe.run(program, feed={"x": four, "u": three}, fetch_list=[out])
        with pytest.raises(ShapeError, match="Place 0 of 2 is fed 4 of the 8 rows of 'x'"):
            exe.run(program, feed={"x": three, "u": four}, fetch_list=[out])


@pytest.mark.parametrize("places", [1, 2])
def test_words_that_are_not_as_declared_are_told_by_their_declaration(
    threads: None, places: int
) -> None:
    """Several places infer how many rows of a sparse table each brings, which failed first."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    table = fluid.embedding(fluid.layers.reshape(words, [-1]), [9, 2], is_sparse=True)
    loss = fluid.layers.mean(fluid.layers.fc(table, 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(fluid.default_startup_program())
        program = on_places(fluid.default_main_program(), places, loss)

        def run(array: np.ndarray) -> Any:
            tensor = fluid.create_lod_tensor(array, [[2, 3]], fluid.CPUPlace())
            return exe.run(program, feed={"words": tensor}, fetch_list=[loss])

        with pytest.raises(FeedError, match="'words': its declaration says dtype int64, got float"):
            run(np.ones((5, 1), np.float32))
        with pytest.raises(FeedError, match=r"'words': its declaration says shape \[-1, 1\]"):
            run(np.ones((5, 2), np.int64))
        with pytest.raises(FeedError, match=r"'words' holds sequences .*create_lod_tensor"):
            exe.run(program, feed={"words": [[1, 2], [3, 4, 5]]}, fetch_list=[loss])
        run(np.ones((5, 1), np.int64))


def test_files_and_feeds_that_are_not_there_are_named_with_their_cure(
    threads: None, tmp_path: Path
) -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        loss = fluid.layers.mean(fluid.layers.fc(x, 1))
        exe.run(fluid.default_startup_program())
        with pytest.raises(MissingFile, match=r"there is no folder '.*absent' to read"):
            fluid.io.load_persistables(exe, str(tmp_path / "absent"))
        train = on_places(fluid.default_main_program(), 2)
        portions = fluid.DataFeeder([x], fluid.CPUPlace()).feed_parallel([[([1, 2],)]] * 2, 2)
        with pytest.raises(TypeError, match=r"feed_parallel gives goes through list\(\) first"):
            exe.run(train, feed=portions, fetch_list=[loss])


def test_a_folder_without_a_program_names_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "fc_0.w_0").touch()
    with pytest.raises(
        MissingFile, match=r"The folder holds 'fc_0.w_0': name .* with model_filename"
    ):
        fluid.io.load_inference_model(str(tmp_path), fluid.Executor(fluid.CPUPlace()))


def test_a_value_of_another_shape_is_refused_with_what_to_do(tmp_path: Path) -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    for width, saved in ((2, False), (3, True)):
        with own_programs() as (main, startup):
            fluid.layers.fc(fluid.data("x", [None, 4]), width)
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            if not saved:
                fluid.io.save_persistables(exe, str(tmp_path), main)
                continue
            with pytest.raises(StateMismatch, match=r"\[3\] in the program, and \[2\].*predicate="):
                fluid.io.load_persistables(exe, str(tmp_path), main)


def test_layers_of_other_sizes_cannot_share_a_parameter() -> None:
    x = fluid.data("x", [None, 4])
    fluid.layers.fc(fluid.layers.fc(x, 4, param_attr="w"), 4, param_attr="w")
    with pytest.raises(InvalidValue, match=r"'w' .* as FP32\[4, 4\], .* as FP32\[4, 5\]\. .* same"):
        fluid.layers.fc(x, 5, param_attr="w")
    startup = fluid.default_startup_program()
    with (
        fluid.program_guard(fluid.Program(), startup),
        pytest.raises(InvalidValue, match=r"'w' was created before"),
    ):
        fluid.layers.fc(fluid.data("x", [None, 3]), 4, param_attr="w")


def _initial(value: Any) -> Any:
    return fluid.layers.create_parameter([2], "float32", attr=fluid.ParamAttr(initializer=value))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda x: fluid.layers.fc(x, 3), r"\[-1, -1\] of 'x', of shape \[4, -1, -1\], must be"),
        (
            lambda x: fluid.layers.fc(fluid.data("y", [4, 2]), 3, act="rellu"),
            "fc: act 'rellu'.*mean 'relu'",
        ),
        (lambda x: fluid.layers.fill_constant([2], "int64", float("nan")), "no INT64 is nan"),
        (lambda x: fluid.layers.concat([]), "concat: input must hold one Variable or more, got"),
        (lambda x: fluid.layers.stack([x, 3]), r"stack: x must be a Variable, got 3 \(int\)"),
        (lambda x: fluid.layers.case([]), r"case: pred_fn_pairs must be a list of pairs, got \[\]"),
        (lambda x: fluid.layers.embedding(x, 5), r"\[rows, width\] of the table, got 5"),
        (lambda x: _initial(3), r"initializer\.Constant\(0\.0\), got 3"),
        (lambda x: fluid.optimizer.SGD(0.1, regularization=0.1), r"L2Decay\(0\.01\), got 0\.1"),
        (lambda x: fluid.optimizer.SGD(0.1, grad_clip=1.0), r"ByGlobalNorm\(1\.0\), got 1\.0"),
        (
            lambda x: setattr(fluid.BuildStrategy(), "reduce_strategy", "Reduce"),
            r"\(AllReduce, Reduce, _NoReduce\), got 'Reduce'",
        ),
        (
            lambda x: fluid.CompiledProgram(fluid.Program()).with_data_parallel(places=2),
            r"got 2\. fluid\.cpu_places\(n\)",
        ),
    ],
)
def test_an_argument_of_another_kind_is_named_with_what_to_give(mistake: Any, message: str) -> None:
    with pytest.raises(EnforceNotMet, match=message):
        mistake(fluid.data("x", [4, None, None]))


def test_a_loss_name_that_is_none_is_warned_of_at_the_users_line() -> None:
    _x, loss = _net()
    fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.warns(UserWarning, match="'los' is no variable") as record:
        fluid.ParallelExecutor(use_cuda=False, loss_name="los")
    assert record[0].filename == __file__


@pytest.mark.parametrize(
    "layer", ["conv2d", "batch_norm", "fc", "layer_norm", "instance_norm", "prelu"]
)
def test_the_op_that_lost_sizes_is_named(layer: str, fresh_programs: None) -> None:
    """Where parameters need them, ops behind it that keep the shape are passed over."""
    more: dict[str, Any] = {
        "conv2d": {"num_filters": 4, "filter_size": 3}, "fc": {"size": 4}, "prelu": {"mode": "channel"}
    }.get(layer, {})  # fmt: skip
    images = fluid.layers.relu(fluid.layers.reshape(fluid.data("x", [None, 12, 8]), [2, -1, 8, 8]))
    words = rf"{layer}: .*'relu_0.tmp_0'.*\[2, -1, 8, 8\].*unknown behind reshape2, built at .*test_mistakes.py"
    with pytest.raises(InvalidValue, match=words):
        getattr(fluid.layers, layer)(images, **more)


def _loop_over(carried: Any) -> Any:
    """Build a loop of as many rounds as data say, with a product in it, and return what it carries."""
    layers = fluid.layers
    weight = layers.create_parameter([3, 3], "float32", name="w")
    rounds, limit = layers.fill_constant([1], "int64", 0), fluid.data("limit", [1], "int64")
    _, carried = layers.while_loop(
        lambda i, x: i < limit, lambda i, x: [i + 1, layers.matmul(x, weight)], [rounds, carried]
    )
    return carried


def test_a_loop_that_no_gradient_enters_is_named_with_what_it_carries() -> None:
    layers = fluid.layers
    x = fluid.data("x", [2, 3])
    words = r"no gradient enters the loop \(built at .*test_mistakes.py.*'x' had stop_gradient=True"
    with pytest.raises(InvalidValue, match=words):
        fluid.optimizer.SGD(0.1).minimize(layers.mean(_loop_over(x)))
    y = fluid.data("y", [2, 3])
    with pytest.warns(UserWarning, match=r"'w' get no gradient: .*'y' had stop_gradient=True"):
        fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.fc(_loop_over(y), 1)))
    z = fluid.data("z", [2, 3])
    z.stop_gradient = False
    _, pairs = fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.fc(_loop_over(z), 1)))
    assert "w" in {parameter.name for parameter, _ in pairs}


def test_a_condition_of_several_rows_is_told_with_what_to_write_instead() -> None:
    x = fluid.data("x", [None, 1])
    out = fluid.layers.cond(x > 0.0, lambda: x + 1.0, lambda: x - 1.0)
    words = r"condition: the condition of a branch must have one element: .*where.*BOOL\[4,1\].*test_mistakes"
    with pytest.raises(ShapeError, match=words):
        fluid.Executor().run(feed={"x": np.ones((4, 1), "float32")}, fetch_list=[out])
    (result,) = fluid.Executor().run(feed={"x": np.ones((1, 1), "float32")}, fetch_list=[out])
    assert result == 2.0


def test_a_variable_has_no_number_while_the_program_is_built() -> None:
    _, loss = _net()
    for read in (float, int, np.array, lambda x: x.item(), lambda x: x.numpy()):
        with pytest.raises(NotImplementedError, match=r"fetch_list=\[variable\]"):
            read(loss)
    with pytest.raises(
        TypeError, match=f"feed 'x': got the variable {loss.name}: .* Feed an array"
    ):
        fluid.Executor().run(feed={"x": loss}, fetch_list=[loss])


def test_an_array_among_operands_is_told_with_what_makes_a_variable_of_it() -> None:
    x, array = fluid.data("x", [None, 4]), np.ones((2, 4), "float32")
    for compute in (lambda: x + array, lambda: array - x, lambda: x < array):
        with pytest.raises(TypeError, match=r"'x' meets a NumPy array \[2, 4\].*layers\.assign"):
            compute()
    assert x in [array, x]


def test_a_fetch_list_in_the_place_of_a_feed_is_told() -> None:
    _, loss = _net()
    main = fluid.default_main_program()
    with pytest.raises(
        InvalidArgument, match=r"got dict\. A dict is a feed: write feed=\.\.\., fetch_list="
    ):
        fluid.Executor().run(main, [loss], {"x": np.ones((2, 3), "float32")})
    test = fluid.CompiledProgram(main.clone(for_test=True))
    with pytest.raises(TypeError, match="Give the one that trains"):
        test.with_data_parallel(share_vars_from=main)
    with pytest.raises(AttributeError, match="Did you mean 'relu'"):
        fluid.layers.Relu  # noqa: B018


def _saved(**keywords: Any) -> None:
    label = fluid.data("label", [None, 1], "int64")
    scores = fluid.layers.fc(fluid.data("x", [None, 3]), 2, act="softmax")
    fluid.layers.auc(scores, label)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model("model", ["x"], [scores], exe, **keywords)


def _changed() -> None:
    _, loss = _net()
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program())
    for _ in range(2):
        exe.run(program, {"x": np.ones((2, 3), "float32")}, [loss])
        fluid.layers.scale(loss)


def _parallel_too_late() -> None:
    _, loss = _net()
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program())
    exe.run(program, {"x": np.ones((2, 3), "float32")}, [loss])
    program.with_data_parallel(loss.name)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (_saved, "auc op: set its states to zero"),
        (lambda: _saved(program_only=True), "program_only is True"),
        (lambda: fluid.io.save_params(fluid.Executor(), "params"), "no variables to save"),
        (lambda: fluid.set_program_state(fluid.Program(), {"w": np.ones(1)}), "not used: w"),
        (lambda: rowlock.io.random_split([1, 2], [0.99, 0.01]), "has no samples"),
        (lambda: fluid.evaluator.EditDistance(*_net()), "use fluid.metrics.EditDistance"),
        (
            lambda: rowlock.static.amp.decorate(
                fluid.optimizer.SGD(0.1), rowlock.static.amp.CustomOpLists(), level="OD"
            ),
            "level OD",
        ),
        (
            lambda: rowlock.optimizer.lr.ExponentialDecay(0.1, 0.5).set_state_dict(
                {"last_epoch": 1, "last_lr": 0.1, "gamma": 2}
            ),
            "does not use",
        ),
        (_changed, "changed after it was compiled"),
        (_parallel_too_late, "with_data_parallel has no effect"),
    ],
)
def test_warnings_name_the_line_of_the_user(
    call: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        fluid.scope_guard(fluid.Scope()),
        warnings.catch_warnings(record=True) as caught,
        contextlib.suppress(ShapeError),  # an evaluator warns before it reads its operands
    ):
        warnings.simplefilter("always", UserWarning)
        call()
    assert {w.filename for w in caught if said in str(w.message)} == {__file__}


def test_what_another_program_predicts_is_not_saved_with_this_one(tmp_path: Path) -> None:
    with own_programs():
        score = fluid.layers.fc(fluid.data("x", [None, 3]), 2, name="other")
    folder, exe = str(tmp_path / "model"), fluid.Executor()
    for save in (
        lambda: fluid.io.save_inference_model(folder, ["x"], [score], exe),
        lambda: rowlock.static.serialize_program([], [score]),
    ):
        with pytest.raises(
            InvalidValue, match=r"'other.tmp_1' is no variable of this program\. Give"
        ):
            save()
    with pytest.raises(InvalidValue, match=r"'other.tmp_1': no operator of this program makes it"):
        fluid.default_main_program()._prune([score])


def test_labels_that_are_fewer_than_rows_are_counted() -> None:
    x = fluid.data("x", [None, 3])
    loss = fluid.layers.cross_entropy(
        fluid.layers.softmax(x), fluid.layers.data("label", [1], dtype="int64")
    )
    feed = {"x": np.ones((2, 3), "float32"), "label": np.zeros((3, 1), "int64")}
    with pytest.raises(ShapeError, match=r"Label must have as many rows: \[2, 1\] .*INT64\[3,1\]"):
        fluid.Executor().run(feed=feed, fetch_list=[loss])
    feed["label"] = np.zeros((2, 3), "int64")
    with pytest.raises(ShapeError, match="Label must have one number in a row"):
        fluid.Executor().run(feed=feed, fetch_list=[loss])


@pytest.mark.parametrize("places", [1, 2])
def test_labels_may_lack_the_dimension_of_1_that_is_declared(places: int, threads: None) -> None:
    """As in Paddle; another shape whose elements fit is refused, and told so."""
    x = fluid.data("x", [None, 3])
    label = fluid.data("label", [None, 1], "int64")
    loss = fluid.layers.cross_entropy(fluid.layers.softmax(x), label)
    program = on_places(fluid.default_main_program(), places)
    feed = {"x": np.eye(4, 3, dtype="float32"), "label": np.arange(4) % 3}
    exe = fluid.Executor()
    losses, labels = exe.run(program, feed, [loss, label])
    assert labels.tolist() == [0, 1, 2, 0]
    whole = {**feed, "label": labels[:, np.newaxis]}
    np.testing.assert_array_equal(losses.ravel(), exe.run(program, whole, [loss])[0].ravel())
    for wrong, cure in (
        (np.ones((4, 1, 3)), True),
        (np.ones((4, 2, 2)), False),
        (np.ones(4), False),
    ):
        with pytest.raises(FeedError, match=r"says shape \[-1, 3\]") as error:
            exe.run(program, {**feed, "x": wrong.astype("float32")}, [loss])
        assert ("array.reshape([-1, 3])" in str(error.value)) == cure


def test_targets_that_would_be_repeated_are_refused() -> None:
    """Paddle computes [N, N] errors of predictions [N, 1] and targets [N]."""
    price = fluid.data("price", [None, 1])
    loss = fluid.layers.mse_loss(fluid.layers.fc(fluid.data("x", [None, 3]), 1), price)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((4, 3), "float32"), "price": np.ones(4, "float32")}
    with pytest.raises(FeedError, match=r"got \[4\]. Its elements fit: array.reshape\(\[-1, 1\]\)"):
        exe.run(feed=feed, fetch_list=[loss])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fluid.Program.parse_from_string("program"), "takes bytes, got 'program'"),
        (lambda: fluid.layers.linear_lr_warmup("0.1", 3, 0, 1), "linear_lr_warmup: learning_rate"),
        (lambda: fluid.ParamAttr(initializer=fluid.initializer.Xavier), "must be one such as"),
    ],
)
def test_what_is_of_another_kind_is_named_with_its_argument(call: Any, said: str) -> None:
    with pytest.raises(EnforceNotMet, match=said):
        call()


def test_a_checkpoint_of_another_name_is_warned_of() -> None:
    _, loss = _net()
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    optimizer._set_checkpoints(["fc_0.tmp_0", "fc_0.temp_1"])
    with pytest.warns(UserWarning, match=r"'fc_0.temp_1' is no variable.*'fc_0.tmp_1'") as record:
        optimizer.minimize(loss)
    assert [warning.filename for warning in record] == [__file__]
