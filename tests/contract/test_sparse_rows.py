"""Sparse embeddings whose gradients stay rows: as dense ones, with less memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import ExecutionError, Unsupported
from tests.conftest import product
from tests.contract.conftest import ON_BOTH
from tests.programs import executor_after, on_places, own_programs
from tests.reference import class_rows

L = fluid.layers
FIRST = fluid.optimizer
FILE = Path(__file__).parents[1] / "reference" / "sparse_rows.json"
PADDLE = json.loads(FILE.read_text())
METHODS: dict[str, Callable[..., Any]] = {
    "sgd": lambda **more: FIRST.SGD(0.1, **more),
    "momentum": lambda **more: FIRST.Momentum(0.1, 0.9, **more),
    "nesterov": lambda **more: FIRST.Momentum(0.1, 0.9, use_nesterov=True, **more),
    "adagrad": lambda **more: FIRST.Adagrad(0.1, **more),
    "adam": lambda **more: FIRST.Adam(0.01, **more),
    "rmsprop": lambda **more: FIRST.RMSProp(0.01, momentum=0.9, centered=True, **more),
    "ftrl": lambda **more: FIRST.Ftrl(0.1, l1=0.01, l2=0.01, **more),
    "lamb": lambda **more: FIRST.Lamb(0.01, **more),
    "adamax": lambda **more: FIRST.Adamax(0.01, **more),
    "adadelta": lambda **more: FIRST.Adadelta(0.1, **more),
    "decayed adagrad": lambda **more: FIRST.DecayedAdagrad(0.1, **more),
}
MOVE_ALL = {"lamb"}  # its step depends on norms of the whole table
LAZY = ("Adam", {"lazy_mode": True})
TREATMENTS: dict[str, Callable[[Any], Any]] = {
    "value": lambda method: method(grad_clip=fluid.clip.GradientClipByValue(0.01)),
    "norm": lambda method: method(grad_clip=fluid.clip.GradientClipByNorm(0.05)),
    "global norm": lambda method: method(grad_clip=fluid.clip.GradientClipByGlobalNorm(0.05)),
    "l2": lambda method: method(regularization=fluid.regularizer.L2Decay(0.1)),
    "l1": lambda method: method(regularization=fluid.regularizer.L1Decay(0.1)),
    "scaled": lambda method: fluid.contrib.mixed_precision.decorate(
        method(), init_loss_scaling=8.0, use_dynamic_loss_scaling=False
    ),
    "scaled by and by": lambda method: fluid.contrib.mixed_precision.decorate(
        method(), init_loss_scaling=8.0, incr_every_n_steps=2
    ),
}
REDUCE = {"reduce_strategy": fluid.BuildStrategy.ReduceStrategy.Reduce}
MODES: dict[str, tuple[int, dict[str, Any]]] = {
    "one place": (1, {}),
    "all-reduce": (2, {}),
    "reduce": (2, REDUCE),
    "verified": (2, {"verify_passes": True, "fuse_all_optimizer_ops": True}),
}
ROWS = (8, 8, 7, 9)  # of the steps: two places do not always get as many


class Net:
    """Two lookups of one table, of which one has a padding row, one of another table, and a loss."""

    def __init__(self, method: Callable[[], Any], sparse: bool, height: int = 50) -> None:
        with own_programs(3) as (self.main, self.startup):
            words = fluid.data("words", [None, 4], "int64")
            label = fluid.data("label", [None, 1], "float32")
            settings = {"is_sparse": sparse, "param_attr": fluid.ParamAttr("table")}
            first = fluid.embedding(words, [height, 3], padding_idx=3, **settings)
            second = fluid.embedding(L.slice(words, [1], [0], [2]), [height, 3], **settings)
            other = fluid.embedding(words, [height, 3], sparse, param_attr="other")
            h = L.reduce_sum(first, 1) + L.reduce_mean(L.tanh(second), 1) + L.reduce_max(other, 1)
            self.loss = L.mean(L.square(L.fc(h, 1) - label))
            method().minimize(self.loss)

    def train(
        self, places: int = 1, strike: Callable[[int, Any], None] | None = None, **strategy: Any
    ) -> tuple[list[float], np.ndarray, Any]:
        """Train some steps, with ``strike`` before each; return losses, tables and the program."""
        rng = np.random.default_rng(0)
        exe, losses = fluid.Executor(fluid.CPUPlace()), []
        with fluid.scope_guard(fluid.Scope()):
            exe.run(self.startup)
            program: Any = (
                on_places(self.main, places, self.loss, strategy) if places > 1 else self.main
            )
            for step, rows in enumerate(ROWS):
                if strike is not None:
                    strike(step, program)
                feed = {
                    "words": rng.integers(0, 12, (rows, 4)),
                    "label": rng.standard_normal((rows, 1)).astype("f4"),
                }
                losses.append(float(np.mean(exe.run(program, feed, [self.loss])[0])))
            tables = [
                np.array(fluid.global_scope().find_var(n).get_tensor()) for n in ("table", "other")
            ]
        return losses, np.stack(tables), program


@ON_BOTH
@pytest.mark.parametrize("mode", ["all-reduce", "reduce"])
def test_a_place_without_rows_brings_none(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.contract.test_sparse_rows.ROWS", (8, 1, 7, 1))
    weighted = fluid.BuildStrategy.GradientScaleStrategy.SampleWeighted
    strategy = {**MODES[mode][1], "gradient_scale_strategy": weighted}
    with rowlock.cluster(launcher="threads"):
        tables = [Net(METHODS["adam"], True).train(n, **strategy)[1] for n in (1, 2)]
    np.testing.assert_allclose(*tables, atol=1e-6)


@ON_BOTH
@pytest.mark.parametrize("mode", ["all-reduce", "reduce"])
def test_a_word_of_no_row_beside_a_place_without_rows_changes_nothing(mode: str) -> None:
    weighted = fluid.BuildStrategy.GradientScaleStrategy.SampleWeighted
    strategy = {**MODES[mode][1], "gradient_scale_strategy": weighted}
    net, exe = Net(METHODS["adam"], True), fluid.Executor(fluid.CPUPlace())
    program = on_places(net.main, 2, net.loss, strategy)

    def step(word: int) -> bytes:
        feed = {"words": np.full((1, 4), word), "label": np.ones((1, 1), "float32")}
        exe.run(program, feed, [net.loss])
        return table()

    def table() -> bytes:
        return np.array(fluid.global_scope().find_var("table").get_tensor()).tobytes()

    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe.run(net.startup)
        before = step(1)
        words = (
            r"operator lookup_table_v2 failed: .*index 50 is outside the 50 rows.*words.*built at"
        )
        with pytest.raises(ExecutionError, match=words):
            step(50)
        assert table() == before
        assert step(1) != before


def like_dense(method: Callable[[], Any], mode: str) -> Any:
    """Train with dense gradients and with rows, alike; return the program with rows."""
    places, strategy = MODES[mode]
    with rowlock.cluster(launcher="threads"):
        dense, sparse = (Net(method, flag).train(places, **strategy) for flag in (False, True))
    np.testing.assert_allclose(sparse[0], dense[0], rtol=1e-6)
    np.testing.assert_allclose(sparse[1], dense[1], atol=1e-6)
    return sparse[2]


def notes(program: Any) -> list[str]:
    """Return what explain() says of sparse gradients."""
    return [note for note in program.explain().graph.notes if note.startswith("sparse_rows")]


@product(method=METHODS, mode=MODES)
def test_rows_train_like_dense_gradients(method: str, mode: str) -> None:
    program = like_dense(METHODS[method], mode)
    if mode != "one place":
        assert any("dense" in note for note in notes(program)) == (method in MOVE_ALL)


@pytest.mark.parametrize("mode", MODES)
def test_tables_alone_train_like_dense_ones(mode: str) -> None:
    """No gradient is dense: owners are known without a sum that meets at one."""
    places, strategy = MODES[mode]
    results = []
    for sparse in (False, True):
        with own_programs(3) as (main, startup):
            words = fluid.data("words", [None], "int64")
            inner, outer = (fluid.embedding(words, [30, 4], sparse, param_attr=n) for n in "io")
            loss = L.mean(L.square(inner * outer - 1.0))
            fluid.optimizer.SGD(1.0).minimize(loss)
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
            exe.run(startup)
            program = on_places(main, places, loss, strategy) if places > 1 else main
            for step in range(3):
                exe.run(program, {"words": np.arange(step, step + 8)}, [loss])
            results.append([np.array(scope.find_var(name).get_tensor()) for name in "io"])
    np.testing.assert_allclose(*results, atol=1e-6)


@product(treatment=TREATMENTS, mode=MODES)
def test_gradients_are_clipped_decayed_and_scaled_as_rows(treatment: str, mode: str) -> None:
    for method in ("adagrad", "adam"):
        program = like_dense(lambda name=method: TREATMENTS[treatment](METHODS[name]), mode)
        if mode != "one place":
            assert any("dense" in note for note in notes(program)) == (treatment in ("l1", "l2"))


@pytest.mark.parametrize(
    "case",
    [case for case in PADDLE["cases"]],
)
def test_tables_are_paddles(case: str) -> None:
    entry, table = PADDLE["cases"][case], np.array(PADDLE["table"], "f4")
    options = dict(entry["options"])
    if "clip" in options:
        name, *values = options.pop("clip")
        options["grad_clip"] = getattr(fluid.clip, name)(*values)
    if "decay" in options:
        name, *values = options.pop("decay")
        options["regularization"] = getattr(fluid.regularizer, name)(*values)
    with own_programs() as (main, startup):
        ids = fluid.data("ids", [2, 2], "int64")
        attr = fluid.ParamAttr("table", initializer=fluid.initializer.NumpyArrayInitializer(table))
        first, second = (fluid.embedding(ids, table.shape, True, param_attr=attr) for _ in range(2))
        weighted = first * L.assign(np.array(PADDLE["weights"], "f4"))
        method = getattr(FIRST, entry["method"])(0.1, **options)
        method.minimize(L.reduce_sum(weighted + L.square(second)))
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for step, expected in zip(PADDLE["steps"], entry["tables"], strict=True):
            exe.run(main, {"ids": np.array(step)})
            result = np.array(scope.find_var("table").get_tensor())
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6)


def class_net(layer: str, method: str, sparse: bool = True) -> tuple[Any, Any, Any]:
    """Build a loss over classes and its training; return the programs and the loss."""
    name, options = {"sgd": ("SGD", {}), "adagrad": ("Adagrad", {})}.get(method, LAZY)
    with own_programs() as (main, startup):
        loss = class_rows.loss(fluid, layer)
        for op in main.global_block().ops:
            if "is_sparse" in op.attr_names and not sparse:
                op._set_attr("is_sparse", False)
        getattr(FIRST, name)(0.1, **options).minimize(loss)
    return main, startup, loss


@pytest.mark.parametrize("method", ["sgd", "adagrad", "lazy adam"])
@pytest.mark.parametrize("layer", class_rows.LAYERS)
def test_weights_of_classes_are_paddles(layer: str, method: str) -> None:
    main, startup, loss = class_net(layer, method)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for step, feed in enumerate(class_rows.feeds()):
            exe.run(main, feed, [loss])
            for name, steps in PADDLE["classes"][layer][method].items():
                array = np.array(scope.find_var(name).get_tensor())
                np.testing.assert_allclose(array, steps[step], rtol=1e-5, atol=2e-6)


@product(layer=class_rows.LAYERS, mode=MODES)
def test_weights_of_classes_train_like_dense_ones(layer: str, mode: str) -> None:
    places, strategy = MODES[mode]
    results = []
    for sparse in (False, True):
        main, startup, loss = class_net(layer, "adagrad", sparse)
        exe, scope, build = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), fluid.BuildStrategy()
        for name, value in strategy.items():
            setattr(build, name, value)
        with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
            exe.run(startup)
            program = on_places(main, places, loss, build=build)
            for feed in class_rows.feeds():
                exe.run(program, feed, [loss])
            assert bool(notes(program)) == sparse
            results.append([np.array(scope.find_var(name).get_tensor()) for name in "wb"])
    for dense, rows in zip(*results, strict=True):
        np.testing.assert_allclose(rows, dense, atol=1e-6)


@pytest.mark.parametrize("places", [1, 2])
def test_sums_over_sequences_have_rows(places: int) -> None:
    tables = []
    for sparse in (False, True):
        with own_programs(3) as (main, startup):
            ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
            sums = fluid.contrib.layers.fused_embedding_seq_pool(
                ids, [9, 3], sparse, padding_idx=4, param_attr="table"
            )
            loss = L.mean(L.tanh(sums))
            FIRST.Adagrad(0.1).minimize(loss)
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
            exe.run(startup)
            program = on_places(main, places, loss)
            for lengths in ([2, 0, 3, 1], [1, 4]):
                numbers = np.arange(sum(lengths))[:, None] * 2 % 9
                feed = fluid.create_lod_tensor(numbers, [lengths], fluid.CPUPlace())
                exe.run(program, {"ids": feed}, [loss])
            tables.append(np.array(scope.find_var("table").get_tensor()))
            assert bool(notes(program)) == sparse
    np.testing.assert_allclose(*tables, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["sgd", "momentum"])
def test_tables_in_low_precision(method: str, mode: str) -> None:
    """Parameters are float16 beside masters in float32."""

    def decorated() -> Any:
        more = {"multi_precision": True} if method == "momentum" else {}
        optimizers = {"sgd": rowlock.optimizer.SGD, "momentum": rowlock.optimizer.Momentum}
        return rowlock.static.amp.decorate(
            optimizers[method](0.1, **more),
            init_loss_scaling=8.0,
            use_dynamic_loss_scaling=False,
            use_pure_fp16=True,
        )

    places, strategy = MODES[mode]
    with rowlock.cluster(launcher="threads"):
        dense, sparse = (Net(decorated, flag).train(places, **strategy) for flag in (False, True))
    np.testing.assert_allclose(sparse[1], dense[1], atol=2e-3)
    if places > 1:
        assert notes(sparse[2])
        assert not any("dense" in note for note in notes(sparse[2]))


@pytest.mark.parametrize("places", [1, 2])
def test_a_gradient_is_read_as_a_whole(places: int) -> None:
    words = np.array([[1, 2, 2, 4], [1, 5, 7, 7]])
    gradients = []
    for sparse in (False, True):
        net, scope = Net(METHODS["adagrad"], sparse), fluid.Scope()
        with fluid.program_guard(net.main):
            grad = net.main.global_block().var("other@GRAD")
            whole = L.get_tensor_from_selected_rows(L.merge_selected_rows(grad))
        with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
            exe = executor_after(net.startup)
            program = on_places(net.main, places, net.loss)
            feed = {"words": words, "label": np.ones((2, 1), "f4")}
            gradients += exe.run(program, feed, [whole, "other@GRAD"])
    for grad in gradients[1:]:
        np.testing.assert_allclose(grad, gradients[0], atol=1e-6)


@pytest.mark.parametrize("places", [1, 2])
def test_an_id_outside_the_table_is_named_and_the_next_run_works(places: int) -> None:
    net = Net(METHODS["adagrad"], True)
    feed = {"words": np.full((2, 4), 50), "label": np.ones((2, 1), "f4")}
    words = (
        r"lookup_table_v2.* index 50 .*the 50 rows \(0 to 49\) \(reads table, words; built at .*py"
    )
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe = executor_after(net.startup)
        program = on_places(net.main, places, net.loss)
        with pytest.raises(ExecutionError, match=words):
            exe.run(program, feed, [net.loss])
        exe.run(program, {**feed, "words": feed["words"] - 1}, [net.loss])


def test_adam_in_lazy_mode_moves_only_rows_that_were_looked_up() -> None:
    """The numbers are Paddle 1.8.5's: the gradient of each id is (1, 2)."""
    with own_programs() as (main, startup):
        ids = fluid.data("ids", [None], "int64")
        start = np.arange(1, 5, dtype="f4")[:, None].repeat(2, 1)
        attr = fluid.ParamAttr("w", initializer=fluid.initializer.NumpyArrayInitializer(start))
        rows = fluid.embedding(ids, [4, 2], is_sparse=True, param_attr=attr)
        loss = L.reduce_sum(rows * L.assign(np.array([1, 2], "f4")))
        fluid.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for step in ([1, 3, 1], [0, 3, 3], [2, 2, 0]):
            exe.run(main, {"ids": np.array(step)}, [loss])
        w = np.array(scope.find_var("w").get_tensor())
    np.testing.assert_allclose(w[:, 0], [0.858025, 1.925587, 2.941888, 3.84273], atol=2e-6)


@pytest.mark.parametrize("mode", ["all-reduce", "reduce"])
@pytest.mark.parametrize("method", ["sgd", "adagrad", "lazy"])
def test_memory_of_a_step_is_that_of_its_rows(method: str, mode: str) -> None:
    method_of = {**METHODS, "lazy": lambda: FIRST.Adam(0.01, lazy_mode=True)}[method]
    with rowlock.cluster(launcher="threads"):
        low, high = (
            Net(method_of, True, height).train(2, **MODES[mode][1])[2] for height in (50, 50_000)
        )
        planned = [
            re.search(r"temporaries [\d,]+, scratch [\d,]+, gradients [\d,]+", str(p.explain()))
            for p in (low, high)
        ]
    assert planned[0] is not None and planned[1] is not None
    assert planned[0].group() == planned[1].group()


@pytest.mark.parametrize("mode", ["reduce", "verified"])
def test_lazy_rows_are_alike_in_any_mode(mode: str) -> None:
    def method() -> Any:
        return FIRST.Adam(0.01, lazy_mode=True)

    with rowlock.cluster(launcher="threads"):
        tables = [
            Net(method, True).train(places, **strategy)[1]
            for places, strategy in (MODES["all-reduce"], MODES[mode])
        ]
    np.testing.assert_array_equal(*tables)


def test_a_lazy_update_that_would_be_dense_is_refused() -> None:
    """How many rows each of several places brings is known before a step; one place need not know."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        ids = fluid.data("ids", [None], "int64")
        ids = ids + L.create_global_var([1], 0, "int64", persistable=True)
        rows = fluid.embedding(L.unique(ids)[0], [4, 2], is_sparse=True, param_attr="table")
        loss = L.reduce_sum(rows)
        FIRST.Adam(0.1, lazy_mode=True).minimize(loss)
    exe = executor_after(startup)
    table = fluid.global_scope().find_var("table").get_tensor()
    before = np.array(table)
    exe.run(main, {"ids": np.array([0, 2, 0])}, [])
    np.testing.assert_allclose(before - np.array(table), [[0.074414] * 2, [0] * 2] * 2, atol=1e-5)
    program = on_places(main, 2, loss)
    with (
        rowlock.cluster(launcher="threads"),
        pytest.raises(Unsupported, match="'table' cannot stay rows"),
    ):
        exe.run(program, {"ids": np.arange(4)}, [])


def test_a_lazy_update_of_what_a_loop_looks_up_is_refused() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        recurrent = L.DynamicRNN()
        with recurrent.block():
            word = recurrent.step_input(words)
            rows = L.embedding(word, [4, 2], is_sparse=True, param_attr="table")
            state = recurrent.memory(shape=[2])
            recurrent.update_memory(state, state + rows)
            recurrent.output(rows)
        FIRST.Adam(0.1, lazy_mode=True).minimize(L.mean(recurrent()))
    exe = executor_after(startup)
    feed = {"words": fluid.create_lod_tensor(np.arange(4)[:, None], [[1, 3]], fluid.CPUPlace())}
    with pytest.raises(
        Unsupported, match="'table' cannot stay rows, for it is looked up in a loop"
    ):
        exe.run(main, feed, [])


def expanded(rows: Any, words: Any) -> Any:
    """As many copies of each document's sum as it has words."""
    sums = L.sequence_expand(L.sequence_pool(rows, "sum"), words)
    return L.sequence_pool(L.concat([rows, sums], 1), "max")


def step_by_step(rows: Any, words: Any) -> Any:
    recurrent = L.DynamicRNN()
    with recurrent.block():
        step, state = recurrent.step_input(rows), recurrent.memory(shape=[4])
        new = L.fc([step, state], 4, act="tanh")
        recurrent.update_memory(state, new)
        recurrent.output(new)
    return L.sequence_last_step(recurrent())


def in_a_loop(rows: Any, words: Any) -> Any:
    """As many rounds as the first word says."""
    rounds = L.reshape(L.slice(words, [0], [0], [1]), [1])
    start = [L.fill_constant([1], "int64", 0), L.sequence_pool(rows, "sum")]
    return L.while_loop(lambda i, s: L.less_than(i, rounds), lambda i, s: [i + 1, s * 0.9], start)[
        1
    ]


@pytest.mark.parametrize("mode", ["all-reduce", "reduce"])
@pytest.mark.parametrize("body", [expanded, step_by_step, in_a_loop])
def test_rows_meet_in_programs_whose_shapes_are_data(body: Any, mode: str) -> None:
    """Lazy updates of two places are those of one; what is looked up is known before the step is cut."""
    drawn = np.array([3, 4, 5, 6, 7, 3, 8, 9, 4, 5])[:, None]  # both places' loops make 3 rounds
    feed = {"words": fluid.create_lod_tensor(drawn, [[2, 3, 1, 4]], fluid.CPUPlace())}
    tables = []
    for places, strategy in (MODES["one place"], MODES[mode]):
        with own_programs(1) as (main, startup):
            words = fluid.data("words", [None, 1], "int64", lod_level=1)
            rows = L.embedding(words, [20, 4], is_sparse=True, param_attr="table")
            loss = L.mean(L.square(L.fc(body(rows, words), 2)))
            FIRST.Adam(0.1, lazy_mode=True).minimize(loss)
        with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
            exe = executor_after(startup)
            program = on_places(main, places, loss, strategy) if places > 1 else main
            for _ in range(3):
                exe.run(program, feed, [loss])
            tables.append(np.array(fluid.global_scope().find_var("table").get_tensor()))
    np.testing.assert_allclose(*tables, atol=2e-6)


def test_rows_of_branches_and_rounds_meet_weighed_by_samples() -> None:
    """Places have other sequences, or none; tables are read in a branch and in each round of a loop."""

    def trained(places: int, **strategy: Any) -> list[np.ndarray]:
        with own_programs(3) as (main, startup):
            words = fluid.data("words", [None, 1], "int64", lod_level=1)
            n, label = fluid.data("n", [1], "int64"), fluid.data("label", [None, 1])

            def pooled(table: str, how: str) -> Any:
                return L.sequence_pool(L.embedding(words, [30, 4], True, param_attr=table), how)

            first = pooled("first", "sum")
            few = L.less_than(n, L.fill_constant([1], "int64", 2))
            state = L.cond(few, lambda: L.tanh(first), lambda: first + pooled("second", "average"))
            i = L.fill_constant([1], "int64", 0)
            going = L.less_than(i, n)
            loop = L.While(going)
            with loop.block():
                behind = L.fc(state, 4, act="tanh", param_attr="w") + pooled("first", "max")
                L.assign(behind, state)
                L.increment(i)
                L.less_than(i, n, cond=going)
            loss = L.mean(L.square(L.fc(state, 1) - label))
            fluid.optimizer.Adagrad(0.1).minimize(loss)
        exe, rng = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0)
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            program = on_places(main, places, loss, strategy) if places > 1 else main
            for rounds, lengths in enumerate(([2, 0, 1, 3, 1], [1, 4], [3, 1, 1, 0, 2, 2], [2])):
                rows = rng.integers(0, 30, (sum(lengths), 1))
                feed = {
                    "words": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace()),
                    "label": rng.standard_normal((len(lengths), 1), "float32"),
                    "n": np.array([rounds]),
                }
                exe.run(program, feed, [loss])
            scope = fluid.global_scope()
            return [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]

    weighted = {"gradient_scale_strategy": fluid.BuildStrategy.GradientScaleStrategy.SampleWeighted}
    expected = trained(1)
    with rowlock.cluster(launcher="threads"):
        for mode in ({}, REDUCE):
            for value, other in zip(trained(3, **weighted, **mode), expected, strict=True):
                np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)
