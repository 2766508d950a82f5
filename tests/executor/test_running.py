"""What running promises, alone and on both gangs: values, scopes, caches, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.driver.program_on_gang import bucket_bytes
from rowlock.strategies.errors import (
    EnforceNotMet,
    ExecutionError,
    FeedError,
    FeedTypeError,
    InvalidArgument,
    NotFound,
    NotInitialized,
    ShapeError,
    Unsupported,
)
from tests.conftest import lasting
from tests.programs import on_places, own_programs

RNG = np.random.default_rng(0)
PLACES = 2


@pytest.fixture(params=["threads", "ray"])
def gang(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    with lasting(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        yield


class Net:
    """A classifier with an embedding-like label check, its test clone, and an executor."""

    def __init__(self, seed: int = 3, drop: float = 0.0) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.main.random_seed = self.startup.random_seed = seed
        with fluid.program_guard(self.main, self.startup):
            x = fluid.data("x", [None, 6])
            label = fluid.data("label", [None, 1], "int64")
            hidden = fluid.layers.fc(x, 8, act="tanh")
            hidden = fluid.layers.dropout(hidden, drop) if drop else hidden
            self.logits = fluid.layers.fc(hidden, 4)
            cost = fluid.layers.softmax_with_cross_entropy(self.logits, label)
            self.loss = fluid.layers.mean(cost)
            self.test = self.main.clone(for_test=True)
            fluid.optimizer.Momentum(0.1, 0.9).minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup)

    def feed(self, rows: int = 8) -> dict[str, np.ndarray]:
        x = RNG.standard_normal((rows, 6)).astype("float32")
        return {"x": x, "label": (x[:, :1] > 0).astype("int64")}

    def parallel(self, places: int = PLACES, **settings: Any) -> fluid.CompiledProgram:
        return on_places(self.main, places, self.loss, **settings)


def value(name: str) -> np.ndarray:
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def test_replicas_stay_bit_identical(gang: str) -> None:
    net = Net(drop=0.3)
    program = net.parallel(3)
    for rows in (9, 7, 12):
        net.exe.run(program, net.feed(rows), [net.loss])
    run = program._parallel
    for name in run.values.names:
        copies = [run.gang.read(run.values.id, name, rank) for rank in range(3)]
        assert all(c.tobytes() == copies[0].tobytes() for c in copies), name


def test_fetches_are_joined_in_place_order(gang: str) -> None:
    net = Net()
    program, feed = net.parallel(), net.feed(7)
    loss, x = net.exe.run(program, feed, [net.loss, "x"])
    assert loss.shape == (2,)
    np.testing.assert_array_equal(x, feed["x"])
    parts = net.exe.run(program, feed, ["x"], return_merged=False)[0]
    assert [len(p) for p in parts] == [3, 4]
    (tensor,) = net.exe.run(program, feed, [net.loss], return_numpy=False)
    assert tensor.shape() == [2]
    assert net.exe.run(program, feed, []) == []


def test_a_list_feed_goes_place_by_place(gang: str) -> None:
    net = Net()
    program, feeds = net.parallel(), [net.feed(3), net.feed(5)]
    (x,) = net.exe.run(program, feeds, ["x"])
    np.testing.assert_array_equal(x, np.concatenate([f["x"] for f in feeds]))
    with pytest.raises(FeedError, match=r"1 elements for 2 places. Give a dict for each place"):
        net.exe.run(program, feeds[:1], ["x"])
    with pytest.raises(TypeError, match=r"must be a dict"):
        net.exe.run(program, [feeds[0], 3], ["x"])
    with pytest.raises(FeedTypeError):
        net.exe.run(program, 3, ["x"])


def test_the_scope_shows_and_sets_what_replicas_hold(gang: str) -> None:
    net = Net()
    program = net.parallel()
    before = value("fc_1.b_0")
    net.exe.run(program, net.feed(), [net.loss])
    after = value("fc_1.b_0")
    assert (before != after).any()
    np.testing.assert_array_equal(after, value("fc_1.b_0"))
    fluid.global_scope().find_var("fc_1.b_0").get_tensor().set(
        np.full(4, 9.0, "float32"), net.exe.place
    )
    (logits,) = net.exe.run(program, net.feed(), [net.logits])
    assert logits.min() > 5
    net.exe.run(net.startup)
    np.testing.assert_array_equal(value("fc_1.b_0"), np.zeros(4))
    (single,) = net.exe.run(net.test, net.feed(), [net.logits])
    assert abs(single).max() < 5


def test_train_and_test_share_replicas(gang: str) -> None:
    net = Net()
    train = net.parallel()
    test = on_places(net.test, PLACES, share_vars_from=train)
    with pytest.raises(ValueError, match=r"not run yet"):
        net.exe.run(test, net.feed(), [net.logits])
    feed = net.feed()
    net.exe.run(train, feed, [net.loss])
    (there,) = net.exe.run(test, feed, [net.logits])
    (here,) = net.exe.run(net.test, feed, [net.logits])
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)
    assert train._parallel.gang is test._parallel.gang


def test_temporaries_live_and_die_by_the_strategy(gang: str) -> None:
    net = Net()
    execution = fluid.ExecutionStrategy()
    execution.num_iteration_per_drop_scope = 3
    program = net.parallel(execution=execution)
    counts = []
    for _ in range(4):
        net.exe.run(program, net.feed())
        counts.append(program.temporaries())
    assert [c > 0 and b > 0 for c, b in counts] == [True, True, False, True]
    net.exe.run(program, net.feed(), [net.loss])  # a step that fetches drops at its end
    assert program.temporaries() == (0, 0)
    net.exe.run(program, net.feed())
    program.drop_local_exe_scopes()
    assert program.temporaries() == (0, 0)
    net.exe.run(program, net.feed(), [net.loss])


def test_another_batch_size_binds_without_compiling(gang: str) -> None:
    net = Net()
    program = net.parallel()
    for rows in (8, 6, 8, 10):
        net.exe.run(program, net.feed(rows), [net.loss])
        net.exe.run(net.test, net.feed(rows), [net.logits])
    assert program._parallel.compilations == 1
    assert net.exe.compilations == 2  # startup and test
    assert net.exe.bindings == 4


def test_compiling_leaves_the_program_alone(gang: str) -> None:
    net = Net()
    before, version = str(net.main), net.main.version
    program = net.parallel()
    net.exe.run(program, net.feed(), [net.loss])
    assert (str(net.main), net.main.version) == (before, version)
    text = str(program.explain())
    assert "  insert_collectives: " in text and "replicas meet in 1 collective(s)" in text
    (idle,) = (line for line in text.splitlines() if line.startswith("  nothing to do for "))
    assert "unread_gradients" in idle and "insert_collectives" not in idle


def test_a_replica_that_raises_is_named_and_the_next_run_works(gang: str) -> None:
    net = Net()
    program, good = net.parallel(), net.feed(8)
    net.exe.run(program, good, [net.loss])
    bad = {**good, "label": good["label"].copy()}
    bad["label"][-1] = 12
    weights = value("fc_0.w_0")
    with pytest.raises(
        ExecutionError, match=r"replica 1: operator softmax_with_cross_entropy.*label 12"
    ) as e:
        net.exe.run(program, bad, [net.loss])
    assert "test_running.py" in str(e.value)
    np.testing.assert_array_equal(value("fc_0.w_0"), weights)
    net.exe.run(program, good, [net.loss])
    assert (value("fc_0.w_0") != weights).any()


def test_bad_input_is_refused_before_anything_is_sent(gang: str) -> None:
    net = Net()
    program, feed = net.parallel(), net.feed()
    for run in (net.main, program):
        with pytest.raises(FeedError, match=r"'label'.*not fed.*test_running.py"):
            net.exe.run(run, {"x": feed["x"]}, [net.loss])
        with pytest.raises(FeedError, match=r"'labels'.*Did you mean 'label'"):
            net.exe.run(run, {"x": feed["x"], "labels": feed["label"]}, [net.loss])
        with pytest.raises(FeedError, match=r"'x'.*says shape \[-1, 6\], got \[\d, 5\]"):
            net.exe.run(run, {**feed, "x": feed["x"][:, :5]}, [net.loss])
        with pytest.raises(FeedError, match=r"dtype float32, got float64"):
            net.exe.run(run, {**feed, "x": feed["x"].astype("float64")}, [net.loss])
        with pytest.raises(NotFound, match=r"cannot fetch 'lost'"):
            net.exe.run(run, feed, ["lost"])
        with pytest.raises(RuntimeError, match=r"Feed a numpy array"):
            net.exe.run(run, {**feed, "x": feed["x"].tolist()}, [net.loss])
    with pytest.raises(FeedError, match=r"1 row.s. cannot be split over 2 places"):
        net.exe.run(program, net.feed(1), [net.loss])


def test_an_unrun_startup_program_is_told(gang: str) -> None:
    net = Net()
    for run in (net.main, net.parallel()):
        with pytest.raises(NotInitialized, match=r"'fc_0.w_0'.*Run the startup program"):
            net.exe.run(run, net.feed(), [net.loss], scope=fluid.Scope())


def test_unchecked_data_goes_through_shape_inference() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.layers.data("x", [4])
        y = fluid.layers.elementwise_add(x, fluid.layers.data("y", [4]))
    ones = np.ones((2, 4), "float32")
    with pytest.raises(ShapeError, match=r"'y'=FP32\[2,3\].*test_running.py"):
        fluid.Executor().run(main, {"x": ones, "y": ones[:, :3]}, [y])


def test_places_and_strategies_that_cannot_be() -> None:
    net = Net()
    with pytest.raises(InvalidArgument, match=r"no places"):
        net.parallel(0)
    with pytest.raises(InvalidArgument, match=r"loss_name"):
        fluid.CompiledProgram(net.main).with_data_parallel()
    with pytest.raises(InvalidArgument, match=r"called before"):
        net.parallel().with_data_parallel(loss_name="x")
    build = fluid.BuildStrategy()
    build.async_mode = True
    with rowlock.cluster(launcher="threads"), pytest.raises(Unsupported, match=r"async_mode"):
        net.exe.run(net.parallel(build=build), net.feed(), [net.loss])


def test_hints_are_listed_and_the_graph_drawn(tmp_path: Any) -> None:
    net = Net()
    build = fluid.BuildStrategy(cache_runtime_context=True, debug_graphviz_path=str(tmp_path / "g"))
    with rowlock.cluster(launcher="threads"):
        program = net.parallel(build=build)
        net.exe.run(program, net.feed(), [net.loss])
    assert "cache_runtime_context: accepted, has no effect yet" in str(program.explain())
    assert (tmp_path / "g_original_graph").read_text().startswith("digraph G {")
    build.debug_graphviz_path = "/no/such/folder/g"
    with rowlock.cluster(launcher="threads"), pytest.raises(EnforceNotMet, match=r"cannot open"):
        net.exe.run(net.parallel(build=build), net.feed(), [net.loss])


def test_parallel_executor(gang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    net = Net()
    train = fluid.ParallelExecutor(False, loss_name=net.loss.name, main_program=net.main)
    test = fluid.ParallelExecutor(False, main_program=net.test, share_vars_from=train)
    assert train.device_count == 2
    with pytest.raises(TypeError):
        train.drop_local_exe_scopes()
    (loss,) = train.run([net.loss.name], feed=net.feed())
    assert loss.shape == (2,)
    with pytest.warns(DeprecationWarning):
        test.run([net.logits.name], feed_dict=net.feed())
    train.drop_local_exe_scopes()
    with pytest.raises(TypeError, match=r"share_vars_from"):
        fluid.ParallelExecutor(False, main_program=net.test, share_vars_from=net.main)


def test_values_come_home_when_the_gang_ends(gang: str) -> None:
    net = Net()
    program, feed = net.parallel(), net.feed()
    with rowlock.cluster(launcher=gang, step_deadline_s=99):
        for _ in range(3):
            net.exe.run(program, feed, [net.loss])
        there = program._parallel.gang.read(program._parallel.values.id, "fc_0.w_0")
    np.testing.assert_array_equal(value("fc_0.w_0"), there)
    net.exe.run(net.test, feed, [net.logits])
    net.exe.run(program, feed, [net.loss])  # starts anew from the scope
    assert (value("fc_0.w_0") != there).any()


def test_buckets_follow_the_configured_size() -> None:
    net = Net()
    with rowlock.cluster(launcher="threads", bucket_bytes=64):
        program = net.parallel()
        net.exe.run(program, net.feed(), [net.loss])
        small = program.explain().buckets
    net2 = Net()
    build = fluid.BuildStrategy(fuse_all_reduce_ops=False)
    with rowlock.cluster(launcher="threads"):
        fused = net2.parallel()
        net2.exe.run(fused, net2.feed(), [net2.loss])
        plain = net2.parallel(build=build)
        net2.exe.run(plain, net2.feed(), [net2.loss])
        assert len(fused.explain().buckets) == 1
        assert len(plain.explain().buckets) == 4
    assert 1 < len(small) <= 4 and sum(small) == sum(fused.explain().buckets)


def test_dropout_does_not_depend_on_the_split() -> None:
    results = []
    for places in (1, 2, 3):
        with (
            fluid.scope_guard(fluid.Scope()),
            fluid.unique_name.guard(),
            rowlock.cluster(launcher="threads"),
        ):
            net = Net(drop=0.5)
            feed = {"x": np.ones((12, 6), "float32"), "label": np.zeros((12, 1), "int64")}
            results.append(net.exe.run(net.parallel(places), feed, [net.logits])[0])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
    np.testing.assert_allclose(results[0], results[2], rtol=1e-6)


def test_draws_go_on_from_the_first_step_that_is_given() -> None:
    main, feed = fluid.Program(), {"x": np.ones((4, 8), "float32")}
    main.random_seed = 3
    with fluid.program_guard(main, fluid.Program()):
        mask = fluid.layers.dropout(fluid.data("x", [None, 8]), 0.5)
    exe = fluid.Executor()
    draws = [exe.run(main, feed, [mask])[0] for _ in range(4)]
    exe = fluid.Executor()
    main.first_step = 2
    assert (main.clone().first_step, main.clone(for_test=True).first_step) == (2, 0)
    parallel = on_places(main, PLACES)
    with lasting("threads"):
        for program in (main, parallel):
            again = [exe.run(program, feed, [mask])[0] for _ in range(2)]
            np.testing.assert_array_equal(again, draws[2:])
    with pytest.raises(ValueError, match="first_step must be an int from 0 on, got -1"):
        main.first_step = -1


def test_gradients_travel_in_larger_buckets_among_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWLOCK_SIMULATED_GPUS", "1")
    cpu, gpu = fluid.CPUPlace(), fluid.CUDAPlace(0)
    with rowlock.cluster(launcher="threads"):
        assert (bucket_bytes(cpu), bucket_bytes(gpu)) == (2 << 20, 25 << 20)
    with rowlock.cluster(launcher="threads", bucket_bytes=7):
        assert (bucket_bytes(cpu), bucket_bytes(gpu)) == (7, 7)


def test_what_is_written_has_the_shape_of_what_was_written_last(gang: str) -> None:
    """A net that is built again under the same names, with other sizes; rows that differ by step."""

    def built(width: int) -> tuple[Any, Any, Any]:
        with own_programs() as (main, startup):
            hidden = fluid.layers.fc(fluid.data("x", [None, 3]), width)
            rows = main.global_block().create_var(
                name="rows", shape=[-1, width], dtype="float32", persistable=True
            )
            fluid.layers.assign(hidden, rows)
            loss = fluid.layers.mean(hidden)
            fluid.optimizer.SGD(0.1).minimize(loss)
        return main, startup, loss

    def shape(name: str) -> tuple[int, ...]:
        return np.array(fluid.global_scope().find_var(name).get_tensor()).shape

    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        for width in (4, 6, 4):
            main, startup, loss = built(width)
            exe.run(startup)
            assert shape("fc_0.w_0") == (3, width) and shape("fc_0.b_0") == (width,)
            program = on_places(main, 2, loss)
            for rows in (4, 8, 4):
                feed = {"x": np.ones((rows, 3), "float32")}
                exe.run(main, feed, [loss])
                assert shape("rows") == (rows, width)
                exe.run(program, feed, [loss])
                assert shape("rows") == (rows // 2, width)
