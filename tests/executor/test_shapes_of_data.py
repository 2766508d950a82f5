"""Programs whose shapes are data: sequences, values known before a step, and steps that are cut in segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.segments import cut
from rowlock.graph.passes.target import Target
from rowlock.strategies.errors import SequenceError, ShapeError

L = fluid.layers


def sequences(lengths: list[int], width: int = 2, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((sum(lengths), width)).astype("f4")
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())


class Net:
    """A program of sequences with one parameter, and what it fetches."""

    def __init__(self, build: Any, rate: float = 0.0) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.data("x", [None, 2], lod_level=1)
            start = fluid.initializer.NumpyArrayInitializer(np.linspace(-1, 1, 6).reshape(2, 3))
            h = L.fc(x, 3, param_attr=fluid.ParamAttr("w", initializer=start), bias_attr=False)
            self.fetches, self.loss = build(h)
            if rate:
                fluid.optimizer.SGD(rate).minimize(self.loss)
        self.scope = fluid.Scope()
        self.exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(self.scope):
            self.exe.run(self.startup)

    def run(self, x: Any, places: int = 1, *, verify: bool = False) -> list[Any]:
        program: Any = self.main
        if places > 1:
            if not hasattr(self, "parallel"):
                build = fluid.BuildStrategy()
                build.verify_passes = verify
                self.parallel = fluid.CompiledProgram(self.main).with_data_parallel(
                    self.loss.name, build, places=[fluid.CPUPlace()] * places
                )
            program = self.parallel
        with fluid.scope_guard(self.scope):
            return self.exe.run(program, {"x": x}, self.fetches, return_numpy=False)

    @property
    def w(self) -> np.ndarray:
        return np.array(self.scope.find_var("w").get_tensor())


def pooled(h: Any) -> tuple[list[Any], Any]:
    total = L.sequence_pool(h, "sum")
    return [total, h], L.mean(total)


def padded(h: Any) -> tuple[list[Any], Any]:
    rows, length = L.sequence_pad(h, L.fill_constant([1], "float32", 0.0))
    back = L.sequence_unpad(rows, length)
    return [rows, length, back], L.mean(L.sequence_pool(back, "sum"))


def selected(h: Any) -> tuple[list[Any], Any]:
    positive = rowlock.masked_select(h, h > 0.0)
    return [positive], L.reduce_sum(positive)


def test_what_only_reads_offsets_is_bound_once_for_rows_and_sequences() -> None:
    net = Net(pooled)
    before = net.exe.bindings
    for lengths in ([2, 3], [1, 4], [5, 0], [4, 1]):
        total, h = net.run(sequences(lengths))
        assert h.recursive_sequence_lengths() == [lengths] and total.lod() == []
        parts = np.split(np.array(h), [lengths[0]])
        np.testing.assert_allclose(total, [part.sum(0) for part in parts], atol=1e-6)
    assert net.exe.bindings == before + 1


def test_what_has_the_size_of_the_longest_is_bound_for_each_longest() -> None:
    net = Net(padded)
    before = net.exe.bindings
    for lengths in ([2, 3], [1, 4], [3, 2], [2, 3]):
        rows, length, back = net.run(sequences(lengths))
        assert rows.shape() == [2, max(lengths), 3] and length.numpy().tolist() == lengths
        assert back.recursive_sequence_lengths() == [lengths]
    assert net.exe.bindings == before + 2


def test_lengths_of_many_sequences_are_told_apart() -> None:
    net = Net(padded)
    for longest, count in ((3, 100), (7, 100), (3, 100)):  # as many rows in as many sequences
        lengths = [longest, 10 - longest, *[5] * (count - 2)]
        rows = net.run(sequences(lengths))[0]
        assert np.array(rows).shape == (count, max(lengths), 3)


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("build", [pooled, padded, selected])
def test_two_places_train_like_one(build: Any, verify: bool) -> None:
    """The gradient is the mean over places: of means over sequences, or half of a sum over all."""
    with rowlock.cluster(launcher="threads"):
        one, two = Net(build, 0.05 if build is selected else 0.1), Net(build, 0.1)
        for step in range(3):
            x = sequences([3, 1, 3, 2], seed=step)
            alone, halves = one.run(x), two.run(x, places=2, verify=verify)
            for whole, joined in zip(alone, halves, strict=True):
                np.testing.assert_allclose(joined, whole, atol=1e-5)
                assert joined.lod() == whole.lod()
            np.testing.assert_allclose(one.w, two.w, atol=1e-5)


def test_a_program_is_cut_where_a_shape_depends_on_what_it_computes() -> None:
    net = Net(selected, 0.1)
    fetches = [net.fetches[0].name]
    compiled = compile_program(net.main, ["x", "x@LOD0"], fetches, Target(), capabilities())
    first, second = cut(compiled.program)
    assert second.nodes[0].op == "where_index"
    assert "sgd" not in [node.op for node in first.nodes]
    assert "2 segments" in str(compiled.report)
    x = sequences([2, 3])
    w, (positive,) = net.w, net.run(x)
    h = np.array(x) @ w
    np.testing.assert_allclose(positive, h[h > 0], rtol=1e-5)
    np.testing.assert_allclose(net.w, w - 0.1 * np.array(x).T @ (h > 0), atol=1e-5)


def test_a_place_without_rows_adds_nothing_to_segments() -> None:
    x, net = sequences([2, 3]), Net(selected)
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(net.scope):
        parallel = fluid.CompiledProgram(net.main).with_data_parallel(places=[fluid.CPUPlace()] * 3)
        (joined,) = net.exe.run(parallel, {"x": x}, net.fetches, return_numpy=False)
        np.testing.assert_allclose(joined, net.run(x)[0], rtol=1e-6)


def test_wrong_sequences_are_refused_and_the_next_step_runs() -> None:
    net = Net(pooled)
    with pytest.raises(ShapeError, match=r"sequence_pool: 'X' holds no sequences.*Built at"):
        net.run(np.ones((5, 2), "f4"))
    short = sequences([2, 3])
    short.set(np.ones((7, 2), "f4"))
    with pytest.raises(SequenceError, match=r"'x'.*end at row 5, and it has 7 rows"):
        net.run(short)
    for lengths in ([0, 0], [2, 3]):  # sequences may have no rows
        assert net.run(sequences(lengths))[0].shape() == [2, 3]


@pytest.mark.parametrize("places", [0, 2])
def test_a_size_that_cannot_be_computed_names_what_it_is_of(places: int) -> None:
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        which = fluid.data("which", [1], "int32")
        size = L.gather(L.assign(np.array([2, 3], "int32")), which)
        out = L.fill_constant([size], "float32", 1.0)
    exe = fluid.Executor(fluid.CPUPlace())
    program: Any = main
    if places:
        program = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(places))
    with rowlock.cluster(launcher="threads"):
        words = (
            r"^gather: index 9 is outside the 2 rows.*Index 'which'=INT32\[1\].*Built at .*of_data"
        )
        with pytest.raises(ShapeError, match=words):
            exe.run(program, feed={"which": np.array([9], "int32")}, fetch_list=[out])
        feed = {"which": np.array([1], "int32")}
        assert exe.run(program, feed=feed, fetch_list=[out])[0].size == 3 * max(places, 1)


def test_what_differs_and_what_is_not_zero() -> None:
    main = fluid.Program()
    x = np.array([3, 1, 3, 0, 1], "i8")
    with fluid.program_guard(main, fluid.Program()):
        v = fluid.data("x", [None], "int64")
        fetches = [
            *L.unique_with_counts(v),
            *rowlock.unique(v, return_index=True, return_inverse=True, return_counts=True),
            rowlock.unique(L.stack([v, v], 1), axis=0),
            L.where(v),
            *rowlock.where(L.stack([v, v], 1)),
            v[v > 0],
            L.stack([v, v], 1)[v > 0],
        ]
    results = fluid.Executor(fluid.CPUPlace()).run(main, {"x": x}, fetches)
    sides = np.nonzero(np.stack([x, x], 1))
    expected = [
        *([3, 1, 0], [0, 1, 0, 2, 1], [2, 2, 1]),
        *np.unique(x, return_index=True, return_inverse=True, return_counts=True),
        np.unique(np.stack([x, x], 1), axis=0),
        np.argwhere(x),
        *(side[:, None] for side in sides),
        x[x > 0],
        np.stack([x, x], 1)[x > 0],
    ]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_a_shape_may_depend_on_a_persistable() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        mask = L.create_global_var([3], 1, "bool", persistable=True)
        places = L.where(mask)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    for elements in ([True, True, True], [False, True, False]):
        scope.find_var(mask.name).get_tensor().set(np.array(elements), fluid.CPUPlace())
        (value,) = exe.run(main, fetch_list=[places], scope=scope)
        assert value.ravel().tolist() == np.flatnonzero(elements).tolist()


def rows_of(x: Any) -> Any:
    return L.slice(L.shape(x), [0], [0], [1])


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize(
    ("build", "size"),
    [
        (lambda x: L.fill_constant([rows_of(x), 2], "float32", 1.0), lambda n: (n, 2)),
        (lambda x: L.range(0, rows_of(x), 1, "int64"), lambda n: (n,)),
        (lambda x: L.range(0, rows_of(x) + 1, 1, "int32"), lambda n: (n + 1,)),
        (lambda x: L.range(0, L.reduce_prod(L.shape(x)), 2, "int64"), lambda n: (n,)),
        (lambda x: L.slice(x, [0], [0], [rows_of(x) - 1]), lambda n: (n - 1, 2)),
        (lambda x: L.uniform_random([rows_of(x), 3]), lambda n: (n, 3)),
        (lambda x: L.gaussian_random([rows_of(x) * 2, 3]), lambda n: (2 * n, 3)),
        (lambda x: L.gaussian_random(L.shape(x)), lambda n: (n, 2)),
        (lambda x: L.reshape(x, [rows_of(x) * 2, 1]), lambda n: (2 * n, 1)),
        (lambda x: L.reshape(x, [L.reduce_prod(L.shape(x))]), lambda n: (2 * n,)),
        (lambda x: L.expand(x[:1], [rows_of(x), 2]), lambda n: (n, 4)),
        (lambda x: L.expand(x[:1], L.shape(x)), lambda n: (n, 4)),
        (lambda x: L.expand_as(x[:1], x), lambda n: (n, 2)),
        (
            lambda x: L.sequence_mask(L.fill_constant([1], "int64", 1), rows_of(x) * 2),
            lambda n: (1, 2 * n),
        ),
    ],
)
@pytest.mark.parametrize("of", ["rows", "sequences"])
def test_sizes_are_computed_from_a_shape(of: str, build: Any, size: Any, places: int) -> None:
    """Of what is fed, and of what is as long as there are sequences."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2], lod_level=1)
        out = build(L.reshape(x, [-1, 2]) if of == "rows" else L.sequence_pool(x, "sum"))
    program: Any = main
    if places > 1:
        program = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * places)
    exe = fluid.Executor(fluid.CPUPlace())
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for lengths in ([2, 3, 3, 2], [1, 4, 4, 1]):
            (value,) = exe.run(program, {"x": sequences(lengths)}, [out], return_numpy=False)
            each = (sum(lengths) if of == "rows" else len(lengths)) // places
            count, *rest = size(each)
            assert np.array(value).shape == (count * places, *rest)


class Tagged:
    """A program that keeps sequences by their tags, and trains on what is left."""

    def __init__(self) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.data("x", [None, 2], lod_level=1)
            tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
            expected = fluid.data("wanted", [None, 1], "int64")
            start = fluid.initializer.NumpyArrayInitializer(np.ones((2, 1)))
            h = L.fc(x, 1, param_attr=fluid.ParamAttr("w", initializer=start), bias_attr=False)
            out, weight = L.filter_by_instag(h, tags, expected, True)
            loss = L.reduce_sum(L.sequence_pool(out, "sum") * weight)
            fluid.optimizer.SGD(0.5).minimize(loss)
        self.fetches, self.scope = [out, weight], fluid.Scope()
        self.exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(self.scope):
            self.exe.run(self.startup)

    def run(self, wanted: list[int], lists: Any = (2, 1, 1)) -> Any:
        tags = fluid.create_lod_tensor(
            np.array([[1], [2], [2], [3]]), [list(lists)], fluid.CPUPlace()
        )
        feed = {"x": sequences([2, 1, 3]), "tags": tags, "wanted": np.array(wanted).reshape(-1, 1)}
        with fluid.scope_guard(self.scope):
            return self.exe.run(self.main, feed, self.fetches, return_numpy=False)

    @property
    def w(self) -> Any:
        return np.array(self.scope.find_var("w").get_tensor()).copy()


@pytest.mark.parametrize("source", ["fed", "persistable", "one tensor"])
def test_a_constant_is_as_large_as_the_step_says(source: str) -> None:
    """Messages of a graph are added up at its nodes, as many as there are in the step."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        messages = L.fc(fluid.data("x", [None, 3]), 2, param_attr="w")
        nodes = fluid.data("to", [None], "int64")
        if source == "persistable":
            count = L.create_global_var([1], 0, "int64", persistable=True, name="count")
            count.desc.set_shape([-1])
        else:
            count = fluid.data("count", [1], "int64")
        width = L.fill_constant([1], "int64", 2)
        sizes = L.concat([count, width]) if source == "one tensor" else [count, 2]
        start = L.fill_constant(sizes, "float32", 0.0)
        start.stop_gradient = False
        sums = L.scatter(start, nodes, messages, overwrite=False)
        many = L.fill_constant([2, 1], "float32", L.cast(L.reduce_sum(nodes), "float32"))
        loss = L.reduce_sum(L.square(sums))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope):
        exe.run(startup)
        for size in (3, 5, 3):
            rng = np.random.default_rng(size)
            feed = {"x": rng.standard_normal((4, 3)).astype("f4"), "to": np.array([0, 2, 2, 1])}
            number = np.array([size])
            if source == "persistable":
                scope.find_var("count").get_tensor().set(number, fluid.CPUPlace())
            else:
                feed["count"] = number
            w = np.array(scope.find_var("w").get_tensor())
            bias = np.array(scope.find_var("fc_0.b_0").get_tensor())
            result, filled = exe.run(main, feed, [sums, many])
            expected = np.zeros((size, 2), "f4")
            np.add.at(expected, feed["to"], feed["x"] @ w + bias)
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(filled, np.full((2, 1), 5, "f4"))
            assert not np.array_equal(w, np.array(scope.find_var("w").get_tensor()))


def test_sequences_are_kept_by_their_tags() -> None:
    net, x = Tagged(), np.array(sequences([2, 1, 3]))
    for expected, rows, lengths in (([1], [0, 1], [2]), ([3, 2], range(6), [2, 1, 3])):
        before = net.w
        out, weight = net.run(expected)
        np.testing.assert_allclose(out, (x @ before)[list(rows)], rtol=1e-5)
        assert out.recursive_sequence_lengths() == [lengths]
        assert np.array(weight).tolist() == [[1.0]] * len(lengths)
        slope = x[list(rows)].sum(0)[:, None]
        np.testing.assert_allclose(net.w, before - 0.5 * slope, rtol=1e-5)


def test_no_sequence_with_a_tag_trains_nothing() -> None:
    net = Tagged()
    before = net.w
    out, weight = net.run([7])
    assert np.array(out).tolist() == [[0.0]]
    assert np.array(weight).tolist() == [[0.0]]
    np.testing.assert_array_equal(net.w, before)
    with pytest.raises(ShapeError, match=r"Ins_tag has 2 lists of tags, Ins 3 sequences.*Built at"):
        net.run([1], lists=(2, 2))


@pytest.mark.parametrize("places", [1, 2])
def test_gradients_of_shapes_and_repeats_that_the_step_tells(places: int) -> None:
    """They are fed, or as many as there are sequences; of both forms of ``reshape``."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2], lod_level=1)
        x.stop_gradient = False
        times = fluid.data("times", [None], "int64")
        pooled = L.sequence_pool(x, "sum")
        first = main.global_block().create_var(name="first", dtype="float32")
        elements = rows_of(pooled) * 2
        elements.stop_gradient = True
        inputs = {"X": pooled, "ShapeTensor": [elements]}
        main.global_block().append_op("reshape", inputs, {"Out": first}, {"shape": [-1]})
        second = L.reshape(first, [rows_of(pooled), 1, 2])
        count = L.slice(times, [0], [0], [1])
        repeated = L.expand(second, [1, count, 1])
        loss = L.reduce_sum(L.square(repeated))
        (gradient,) = fluid.gradients([loss], [x])
    program: Any = main
    if places > 1:
        build = fluid.BuildStrategy()
        build.gradient_scale_strategy = build.GradientScaleStrategy.One
        program = fluid.CompiledProgram(main)
        program.with_data_parallel(loss.name, build, places=[fluid.CPUPlace()] * places)
    exe = fluid.Executor(fluid.CPUPlace())
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for lengths, number in (([2, 3, 3, 2], 3), ([1, 4, 4, 1], 2)):
            feed = {"x": sequences(lengths), "times": np.full(places, number)}
            results = exe.run(program, feed, [repeated, gradient], return_numpy=False)
            parts = np.split(np.array(feed["x"]), np.cumsum(lengths)[:-1])
            sums = np.array([part.sum(0) for part in parts])
            expected = np.repeat(sums[:, None], number, 1)
            np.testing.assert_allclose(np.array(results[0]), expected, rtol=1e-5)
            slopes = np.repeat(2 * number * sums, lengths, 0)
            np.testing.assert_allclose(np.array(results[1]), slopes, rtol=1e-5)
