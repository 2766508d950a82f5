"""Programs that are fed by readers: what Paddle 1.8.5 does, and errors that do not hang."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.execution import ExecutionStrategy
from tests.conftest import eventually, one_in
from tests.programs import on_places, own_programs


def batches(count: int = 5) -> Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Batch i is full of i."""

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i in range(count):
            yield np.full((4, 2), i, "float32"), np.full((4, 1), i, "int64")

    return generate


def samples(count: int) -> Callable[[], Iterator[tuple[np.ndarray, int]]]:
    return lambda: ((np.full(2, i, "float32"), i) for i in range(count))


class Fed:
    """The mean of x, which a reader feeds, in a program of its own."""

    def __init__(self, iterable: bool = False, capacity: int = 2, **settings: Any) -> None:
        self.main = fluid.Program()
        with fluid.program_guard(self.main, fluid.Program()), fluid.unique_name.guard():
            self.x = fluid.data("x", [None, 2])
            self.y = fluid.data("y", [None, 1], "int64")
            self.loader = fluid.io.DataLoader.from_generator(
                [self.x, self.y], capacity, iterable=iterable, **settings
            )
            self.mean = fluid.layers.mean(self.x)
        self.exe = fluid.Executor()
        self.scope = fluid.Scope()

    def run(self, program: Any = None, feed: Any = None) -> list[float]:
        program = self.main if program is None else program
        (values,) = self.exe.run(program, feed, [self.mean], scope=self.scope)
        return [float(value) for value in values]

    def compiled(self, places: int, **execution: Any) -> fluid.CompiledProgram:
        return on_places(self.main, places, execution=execution)


def reader_threads() -> int:
    return sum(thread.name == "rowlock-reader" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    gc.collect()
    assert eventually(lambda: reader_threads() == 0)


def test_one_place_reads_until_the_end() -> None:
    fed = Fed()
    fed.loader.set_batch_generator(batches())
    for _ in range(2):
        fed.loader.start()
        assert [fed.run() for _ in range(5)] == [[float(i)] for i in range(5)]
        for _ in range(2):
            with pytest.raises(fluid.core.EOFException, match="no next batch"):
                fed.run()
        fed.loader.reset()


@pytest.mark.parametrize("places", one_in(2, [2, 3]))
def test_each_place_takes_a_batch(gang: str, places: int) -> None:
    fed = Fed()
    fed.loader.set_batch_generator(batches())
    program = fed.compiled(places)
    for _ in range(2):
        fed.loader.start()
        for step in range(5 // places):
            assert fed.run(program) == [float(places * step + i) for i in range(places)]
        left = rf"{5 % places} batch\(es\) left for {places} places"
        with pytest.raises(fluid.core.EOFException, match=left):  # they are lost
            fed.run(program)
        fed.loader.reset()


def test_leftovers_go_to_the_first_places(gang: str) -> None:
    fed = Fed(drop_last=False)
    fed.loader.set_batch_generator(batches())
    program = fed.compiled(3)
    fed.loader.start()
    assert [fed.run(program) for _ in range(2)] == [[0.0, 1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(fluid.core.EOFException):
        fed.run(program)
    fed.loader.reset()


def test_several_steps_in_a_call_take_a_batch_each(gang: str) -> None:
    fed = Fed()
    fed.loader.set_batch_generator(batches(9))
    fed.loader.start()
    program = fed.compiled(2, num_iteration_per_run=2)
    assert fed.run(program) == [2.0, 3.0]
    assert fed.run(program) == [6.0, 7.0]
    with pytest.raises(fluid.core.EOFException):
        fed.run(program)
    fed.loader.reset()


def test_uneven_batches_and_weights(threads: None) -> None:
    """Batches of a reader may differ in size, and SampleWeighted weighs each step by its own."""
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 2])
        loader = fluid.io.DataLoader.from_generator([x], 4, iterable=False)
        loss = fluid.layers.mean(fluid.layers.fc(x, 1))
        fluid.optimizer.SGD(0.5).minimize(loss)
    draw = np.random.default_rng(0)
    parts = [draw.standard_normal((rows, 2)).astype("float32") for rows in (1, 4, 3, 2)]
    results = []
    for places in (1, 2):
        exe, scope = fluid.Executor(), fluid.Scope()
        startup.random_seed = 9
        exe.run(startup, scope=scope)
        if places == 1:
            for pair in (parts[:2], parts[2:]):
                exe.run(main, {"x": np.concatenate(pair)}, [], scope=scope)
        else:
            loader.set_batch_generator(lambda: iter(parts))
            loader.start()
            build = BuildStrategy(
                gradient_scale_strategy=BuildStrategy.GradientScaleStrategy.SampleWeighted
            )
            program = on_places(
                main, 2, loss, build=build, execution=ExecutionStrategy(num_iteration_per_run=2)
            )
            exe.run(program, None, [], scope=scope)
            loader.reset()
        results.append(np.array(scope.find_var("fc_0.w_0").get_tensor()))
    np.testing.assert_allclose(*results, 1e-6)


def test_other_variables_are_fed_beside(threads: None) -> None:
    fed = Fed()
    with fluid.program_guard(fed.main, fluid.Program()):
        factor = fluid.layers.data("factor", [1], append_batch_size=False)
        fed.mean = fluid.layers.mean(fluid.layers.elementwise_mul(fed.x, factor))
    fed.loader.set_batch_generator(batches())
    fed.loader.start()
    program = fed.compiled(2)
    assert fed.run(program, {"factor": 10.0}) == [0.0, 10.0]
    assert fed.run(None, {"factor": 10.0}) == [20.0]
    whole = {"x": np.ones((2, 2), "float32"), "y": np.ones((2, 1), "int64"), "factor": 3.0}
    assert fed.run(None, whole) == [3.0]  # what the user feeds is not read
    assert fed.run(None, {"factor": 10.0}) == [30.0]
    fed.loader.reset()


def test_a_test_program_reads_the_same_reader() -> None:
    fed = Fed()
    fed.loader.set_batch_generator(batches(2))
    fed.loader.start()
    assert fed.run(fed.main.clone(for_test=True)) == [0.0]
    assert fed.run() == [1.0]
    fed.loader.reset()


def test_a_test_program_keeps_what_a_reader_feeds_and_no_op_reads() -> None:
    fed = Fed()
    startup = fluid.Program()
    with fluid.program_guard(fed.main, startup):
        fluid.data("unfed", [None, 1])
        before = fed.main.clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(fed.x, 1)))
    after = fed.main.clone(for_test=True)
    assert before.global_block().has_var("unfed") and not after.global_block().has_var("unfed")
    fed.exe.run(startup, scope=fed.scope)
    fed.loader.set_batch_generator(batches(2))
    fed.loader.start()
    for i in range(2):
        (labels,) = fed.exe.run(after, fetch_list=[fed.y], scope=fed.scope)
        np.testing.assert_array_equal(labels, np.full((4, 1), i))
    fed.loader.reset()


def test_iterable_loaders() -> None:
    fed = Fed(iterable=True)
    fed.loader.set_batch_generator(batches(), places=fluid.cpu_places(2))
    steps = list(fed.loader())
    assert [[feed["x"][0, 0] for feed in step] for step in steps] == [[0, 1], [2, 3]]
    assert set(steps[0][0]) == {"x", "y"}
    fed.loader.set_batch_generator(batches(), places=fluid.CPUPlace())
    assert [fed.run(feed=step) for step in fed.loader] == [[float(i)] for i in range(5)]
    rest = Fed(iterable=True, drop_last=False)
    rest.loader.set_batch_generator(batches(), places=fluid.cpu_places(2))
    assert [len(step) for step in rest.loader] == [2, 2, 1]
    listed = Fed(iterable=True, return_list=True)
    listed.loader.set_batch_generator(batches(), places=fluid.cpu_places(2))
    assert [array.shape for array in next(iter(listed.loader()))[0]] == [(4, 2), (4, 1)]


def test_leaving_an_iteration_ends_its_thread() -> None:
    fed = Fed(iterable=True)
    fed.loader.set_batch_generator(batches(1000), places=fluid.CPUPlace())
    for _ in fed.loader():
        break
    gc.collect()


def test_samples_are_made_into_batches() -> None:
    fed = Fed(iterable=True)
    for drop_last, sizes in ((True, [3, 3]), (False, [3, 3, 1])):
        fed.loader.set_sample_generator(samples(7), 3, drop_last, fluid.CPUPlace())
        steps = [step[0] for step in fed.loader()]
        assert [len(feed["x"]) for feed in steps] == sizes
        assert steps[0]["y"].dtype == np.int64 and steps[0]["y"].shape == (3, 1)
    lists = fluid.io.batch(fluid.io.shuffle(samples(6), 6), 4)
    fed.loader.set_sample_list_generator(lists, fluid.CPUPlace())
    seen = np.concatenate([step[0]["y"] for step in fed.loader()])
    assert sorted(seen[:, 0]) == list(range(6))


def test_paddle_1_readers() -> None:
    with own_programs() as (main, _):
        reader = fluid.layers.py_reader(4, [(-1, 2), (-1, 1)], ["float32", "int64"], name="train")
        x, y = fluid.layers.read_file(fluid.layers.double_buffer(reader))
        total = fluid.layers.elementwise_add(x, fluid.layers.cast(y, "float32"))
        one = fluid.layers.create_py_reader_by_data(2, [fluid.data("z", [None, 1])])
        z = fluid.layers.read_file(one)
    assert x.shape == (-1, 2) and z.name == "z"
    reader.decorate_paddle_reader(fluid.io.batch(samples(4), 2))
    one.decorate_tensor_provider(lambda: iter([np.ones((2, 1), "float32")] * 2))
    reader.start()
    one.start()
    exe = fluid.Executor()
    sums = [exe.run(main, fetch_list=[total])[0][:, 0].tolist() for _ in range(2)]
    assert sums == [[0.0, 2.0], [4.0, 6.0]]
    with pytest.raises(fluid.core.EOFException):
        exe.run(main, fetch_list=[total])
    reader.reset()
    one.reset()
    py_reader = fluid.io.PyReader([fluid.data("w", [None, 2])], 2, iterable=True)
    py_reader.decorate_batch_generator(lambda: iter([np.ones((1, 2), "float32")]), fluid.CPUPlace())
    assert len(list(py_reader())) == 1


def test_data_feeder() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        image = fluid.layers.data("image", [1, 2, 2])
        fluid.layers.data("words", [1], dtype="int64", lod_level=1)
        feeder = fluid.DataFeeder([image, "words"], fluid.CPUPlace())
    fed = feeder.feed([([0, 1, 2, 3], [5]), ([4, 5, 6, 7], [6, 7])])
    assert fed["image"].shape == (2, 1, 2, 2) and fed["image"].dtype == np.float32
    assert fed["words"].recursive_sequence_lengths() == [[1, 2]]
    assert np.array(fed["words"]).tolist() == [[5], [6], [7]]
    with pytest.raises(
        ValueError, match=r"sample 0 .* 1 value\(s\) for 2 variable\(s\): .* of image, words,"
    ):
        feeder.feed([([0, 1, 2, 3],)])
    with pytest.raises(ValueError, match="3 mini-batches for 2 places"):
        feeder.feed_parallel([[], [], []], 2)
    with pytest.raises(TypeError, match="variables or their names"):
        fluid.DataFeeder([3], fluid.CPUPlace())


# -- what goes wrong ------------------------------------------------------------------------------


def test_order_of_calls() -> None:
    fed = Fed()
    with pytest.raises(RuntimeError, match="has no generator: call set_batch_generator"):
        fed.loader.start()
    fed.loader.set_batch_generator(batches())
    with pytest.raises(
        RuntimeError, match=r"x, y, and their reader was not started: call start\(\)"
    ):
        fed.run()
    fed.loader.reset()
    fed.loader.start()
    fed.loader.start()  # already reading
    assert fed.run() == [0.0]
    with pytest.raises(AssertionError, match="not iterable"):
        iter(fed.loader)
    fed.loader.reset()
    with pytest.raises(RuntimeError, match="not started"):
        fed.run()
    with pytest.raises(AssertionError, match="iterable=False"):
        Fed(iterable=True).loader.start()
    with pytest.raises(AssertionError, match="places it feeds"):
        Fed(iterable=True).loader.set_batch_generator(batches())


def test_an_error_of_the_generator_reaches_the_run() -> None:
    def broken() -> Iterator[Any]:
        yield from batches(1)()
        raise OSError("the disk is gone")

    fed = Fed()
    fed.loader.set_batch_generator(broken)
    fed.loader.start()
    assert fed.run() == [0.0]
    problem = (
        r"generator failed: OSError: the disk is gone \(raised at .*test_readers.py:.*in broken"
    )
    with pytest.raises(RuntimeError, match=problem) as caught:
        fed.run()
    assert isinstance(caught.value.__cause__, OSError)
    fed.loader.reset()


@pytest.mark.parametrize(
    ("yielded", "match"),
    [
        ((np.ones((4, 2), "float32"),), r"1 array\(s\) for 2 variable\(s\): .* of x, y,"),
        (3, "yields tuples of arrays, got int"),
        ((np.ones((4, 2)), np.ones((4, 1), "int64")), "dtype float32, got float64"),
        ((np.ones((4, 3), "float32"), np.ones((4, 1), "int64")), r"shape \[-1, 2\], got \[4, 3\]"),
    ],
)
def test_batches_that_do_not_fit(yielded: Any, match: str) -> None:
    fed = Fed()
    fed.loader.set_batch_generator(lambda: iter([yielded]))
    fed.loader.start()
    with pytest.raises(fluid.core.EnforceNotMet, match=match):
        fed.run()
    fed.loader.reset()


def test_a_generator_that_hangs_meets_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()

    def stuck() -> Iterator[Any]:
        stop.wait(20)
        yield from batches(1)()

    fed = Fed()
    fed.loader.set_batch_generator(stuck)
    with rowlock.cluster(launcher="threads", step_deadline_s=0.2):
        fed.loader.start()
        with pytest.raises(RuntimeError, match=r"gave no batch for 0\.2 s"):
            fed.run()
    stop.set()
    fed.loader.reset()


def test_reset_ends_a_thread_that_waits_for_room() -> None:
    fed = Fed(capacity=1)
    fed.loader.set_batch_generator(batches(100))
    fed.loader.start()
    fed.run()
    fed.loader.reset()
    assert reader_threads() == 0


def test_a_forgotten_loader_ends_its_thread() -> None:
    fed = Fed()
    fed.loader.set_batch_generator(batches(100))
    fed.loader.start()
    fed.run()
    del fed
