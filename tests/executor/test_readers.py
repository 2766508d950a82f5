"""What a reader's thread and its batches promise beyond the contract: nothing lost, shared, hidden or stuck."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.feed.reader import Prefetch
from rowlock.strategies.errors import (
    ExecutionError,
    FeedError,
    InvalidArgument,
    InvalidType,
    InvalidValue,
)
from tests.programs import on_places, own_programs

PLACES = 2


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        yield


class Summed:
    """The sum of each batch of x, which a reader feeds; trained or not."""

    def __init__(self, *, train: bool = False, capacity: int = 4, **settings: Any) -> None:
        self.main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, startup):
            x = fluid.data("x", [None, 2])
            self.loader = fluid.io.DataLoader.from_generator(
                [x], capacity, iterable=False, **settings
            )
            self.sum = fluid.layers.reduce_sum(x)
            if train:
                self.sum = fluid.layers.mean(fluid.layers.fc(x, 1))
                fluid.optimizer.SGD(0.0).minimize(self.sum)
        self.loss = self.sum.name if train else None
        self.exe = fluid.Executor()
        self.exe.run(startup)

    def on(self, places: int) -> Any:
        return on_places(self.main, places, self.loss)

    def run(self, program: Any = None) -> list[float]:
        (total,) = self.exe.run(program or self.main, None, [self.sum])
        return list(total.tolist())

    def until_eof(self, program: Any = None) -> list[list[float]]:
        runs = []
        with pytest.raises(fluid.core.EOFException):
            while True:
                runs.append(self.run(program))
        return runs


def ones(count: int) -> Callable[[], Iterator[tuple[np.ndarray]]]:
    return lambda: iter([(np.full((1, 2), i, "float32"),) for i in range(count)])


# -- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("places", "expected"), [(1, [[0], [2], [4], [6]]), (2, [[0, 2], [4, 6]])])
def test_a_generator_may_use_its_array_again(places: int, expected: list[list[float]]) -> None:
    def generate() -> Iterator[tuple[np.ndarray]]:
        array = np.zeros((1, 2), "float32")
        for i in range(4):
            array[:] = i
            yield (array,)

    net = Summed()
    net.loader.set_batch_generator(generate)
    net.loader.start()
    time.sleep(0.1)  # the thread is done before the first batch is taken
    assert net.until_eof(None if places == 1 else net.on(places)) == expected
    net.loader.reset()


def test_a_generator_may_use_its_tensor_again() -> None:
    def generate() -> Iterator[list[Any]]:
        tensor = fluid.Tensor()
        for i in range(3):
            tensor.set(np.full((1, 2), i, "float32"))
            yield [tensor]

    net = Summed()
    net.loader.set_batch_generator(generate)
    net.loader.start()
    time.sleep(0.1)
    assert net.until_eof() == [[0], [2], [4]]
    net.loader.reset()


@pytest.mark.parametrize("drop_last", [True, False])
def test_the_last_batches_run_on_fewer_places_if_not_dropped(drop_last: bool) -> None:
    """Paddle 1.8.5: fetches of shapes (2,), (2,), (1,) without drop_last, the last one gone with it."""
    net = Summed(drop_last=drop_last)
    program = net.on(PLACES)
    net.loader.set_batch_generator(ones(5))
    for _ in range(2):
        net.loader.start()
        assert net.until_eof(program) == [[0, 2], [4, 6], [8]][: 2 if drop_last else 3]
        net.loader.reset()


def test_the_last_batches_are_dropped_in_training() -> None:
    net = Summed(train=True, drop_last=False)
    net.loader.set_batch_generator(ones(5))
    net.loader.start()
    assert [len(sums) for sums in net.until_eof(net.on(PLACES))] == [2, 2]
    net.loader.reset()


@pytest.mark.parametrize("front", ["plain", "compiled", "parallel", "executor"])
def test_a_reader_trains_as_feeds_do(front: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, whichever front the program runs behind."""
    monkeypatch.setenv("CPU_NUM", str(PLACES))
    draw = np.random.default_rng(0)
    data = [draw.standard_normal((3, 2)).astype("float32") for _ in range(6)]
    weights = []
    for read in (True, False):
        with own_programs(3) as (main, startup):
            x = fluid.data("x", [None, 2])
            loader = fluid.io.DataLoader.from_generator([x], 2, iterable=False)
            loss = fluid.layers.mean(fluid.layers.dropout(fluid.layers.fc(x, 3, act="tanh"), 0.3))
            fluid.optimizer.Adam(0.1).minimize(loss)
        loader.set_batch_generator(lambda: ((array,) for array in data))
        exe, scope = fluid.Executor(), fluid.Scope()
        exe.run(startup, scope=scope)
        program: Any = fluid.CompiledProgram(main) if front != "plain" else main
        if front == "parallel":
            program.with_data_parallel(loss.name)
        if front == "executor":
            program = fluid.ParallelExecutor(False, loss.name, main, scope=scope)
        places = PLACES if front in ("parallel", "executor") else 1
        steps = [data[i : i + places] for i in range(0, len(data), places)]
        if read:
            loader.start()
        for step in steps:
            feed = None if read else [{"x": array} for array in step]
            if front == "executor":
                program.run([loss], feed)
            else:
                exe.run(program, feed, [loss], scope=scope)
        loader.reset()
        weights.append(np.array(scope.find_var("fc_0.w_0").get_tensor()))
    assert weights[0].tobytes() == weights[1].tobytes()


def test_samples_keep_to_the_declared_dtype_and_shape() -> None:
    """A flat sample takes the declared shape if its rank is another one, as in Paddle."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        image, label = fluid.data("image", [None, 1, 2]), fluid.data("label", [None, 1], "int64")
        feeder = fluid.DataFeeder([image, label], fluid.CPUPlace())
    fed = feeder.feed([([1, 2], 3), ([4, 5], 6)])
    assert fed["image"].shape == (2, 1, 2) and fed["image"].dtype == np.float32
    assert fed["label"].tolist() == [[3], [6]] and fed["label"].dtype == np.int64
    empty = feeder.feed([])
    assert empty["image"].shape == (0, 1, 2) and empty["label"].shape == (0, 1)


def test_batch_and_shuffle_lose_no_sample() -> None:
    def numbers() -> Iterator[int]:
        return iter(range(5))

    assert list(fluid.io.batch(numbers, 2)()) == [[0, 1], [2, 3], [4]]
    assert list(fluid.io.batch(numbers, 2, drop_last=True)()) == [[0, 1], [2, 3]]
    assert list(fluid.io.batch(numbers, 2.5)()) == [[0, 1], [2, 3], [4]]  # as Paddle reads it
    with pytest.raises(InvalidValue, match="batch_size must be above 0"):
        fluid.io.batch(numbers, 0)
    for size in (0, 1, 3, 9):
        assert sorted(fluid.io.shuffle(numbers, size)()) == [0, 1, 2, 3, 4]


def test_names_are_paddles() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        reader = fluid.layers.py_reader(2, [[-1, 4], [-1, 1]], ["float32", "int64"], name="train")
        names = [variable.name for variable in fluid.layers.read_file(reader)]
    assert names == ["read_file_0.tmp_0", "read_file_0.tmp_1"]
    assert reader.iterable is False


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "match"),
    [
        ([(1,), (1, 2)], r"sample 1 .* 2 value\(s\) for 1 variable\(s\): yield one for each of x"),
        ([3], "a sample is a tuple of values, got int"),
        ([{"x": [1, 2]}], "a sample is a tuple of values, got dict"),
        ([([1, 2],), ([1, 2, 3],)], "'x' cannot be joined.*sample 1 has.*lod_level=1 if"),
        ([(["one", "two"],)], "'x' cannot be joined.*could not convert string"),
        ([([[1, 2, 3]],)], r"'x'.*\[1, 1, 3\].*declared \[-1, 2\]"),
        (3, "a batch is a list of samples, got int"),
    ],
)
def test_samples_that_do_not_fit(samples: Any, match: str) -> None:
    net = Summed()
    net.loader.set_sample_list_generator(lambda: iter([samples]))
    net.loader.start()
    for _ in range(2):
        with pytest.raises(FeedError, match=match) as caught:
            net.run()
        assert isinstance(caught.value.__cause__, FeedError)
    net.loader.reset()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_nothing_that_a_generator_raises_is_swallowed(error: BaseException) -> None:
    def generate() -> Iterator[Any]:
        yield from ones(1)()
        raise error

    net = Summed()
    net.loader.set_batch_generator(generate)
    net.loader.start()
    assert net.run() == [0]
    with pytest.raises(ExecutionError, match=type(error).__name__) as caught:
        net.run()
    assert caught.value.__cause__ is error
    net.loader.reset()


def test_a_run_that_waited_in_vain_loses_no_batch() -> None:
    go = threading.Event()

    def generate() -> Iterator[Any]:
        yield (np.full((1, 2), 0, "float32"),)
        go.wait(20)
        yield (np.full((1, 2), 1, "float32"),)

    net = Summed()
    program = net.on(PLACES)
    net.loader.set_batch_generator(generate)
    net.loader.start()
    with (
        rowlock.cluster(launcher="threads", step_deadline_s=0.2),
        pytest.raises(ExecutionError, match=r"gave no batch for 0\.2 s"),
    ):
        net.run(program)
    go.set()
    assert net.run(program) == [0, 2]
    net.loader.reset()


def test_neither_does_a_run_of_several_steps_and_readers() -> None:
    """Readers keep in step with each other."""
    go = threading.Event()

    def late() -> Iterator[Any]:
        for i in range(4):
            if i == 3:
                go.wait(20)
            yield (np.full((1, 2), 10 * i, "float32"),)

    net = Summed()
    with fluid.program_guard(net.main, fluid.Program()):
        other = fluid.data("other", [None, 2])
        second = fluid.io.DataLoader.from_generator([other], 4, iterable=False)
        net.sum = fluid.layers.reduce_sum(other) + net.sum
    program = on_places(
        net.main, PLACES, execution=fluid.ExecutionStrategy(num_iteration_per_run=2)
    )
    net.loader.set_batch_generator(ones(4))
    second.set_batch_generator(late)
    net.loader.start()
    second.start()
    for _ in range(2):
        with (
            rowlock.cluster(launcher="threads", step_deadline_s=0.2),
            pytest.raises(ExecutionError, match="gave no batch"),
        ):
            net.run(program)
    go.set()
    assert net.run(program) == [44, 66]
    net.loader.reset()
    second.reset()


def test_what_is_no_generator_is_refused_at_once() -> None:
    net = Summed()
    for name in ("set_batch_generator", "set_sample_list_generator"):
        with pytest.raises(InvalidType, match="a function that returns an iterator, got generator"):
            getattr(net.loader, name)(value for value in ())
    with pytest.raises(InvalidType, match="got list"):
        net.loader.set_sample_generator([], 2)


def test_settings_that_cannot_work_are_refused() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        for capacity in (None, 0, "4", 2.5):
            with pytest.raises(InvalidValue, match="capacity must be a whole number"):
                fluid.io.DataLoader.from_generator([x], capacity)
        loader = fluid.io.DataLoader.from_generator([x], 4)
    assert loader.iterable is True
    with pytest.raises(InvalidArgument, match="place list is empty"):
        loader.set_batch_generator(ones(1), [])
    with pytest.raises(InvalidValue, match="must be a place"):
        loader.set_batch_generator(ones(1), [3])
    with pytest.raises(InvalidValue, match="must be a place"):
        loader.set_batch_generator(ones(1), 3)


# -- threads --------------------------------------------------------------------------------------


def test_the_thread_may_drop_the_last_reference() -> None:
    """The garbage collector may end an iteration on the very thread that fills it."""
    done = threading.Event()
    iterations: list[Prefetch] = []

    def generate() -> Iterator[Any]:
        while not iterations:
            time.sleep(0.01)
        iterations.pop().stop()
        done.set()
        yield {}

    iterations.append(Prefetch(generate, 1))
    assert done.wait(60)


@pytest.mark.parametrize("state", ["full", "stuck", "iterating"])
def test_the_interpreter_ends_with_a_reader_at_work(state: str) -> None:
    code = f"""
import time, numpy as np, rowlock.fluid as fluid
def generate():
    while True:
        yield (np.zeros((1, 2), "float32"),)
        time.sleep(1000 if {state!r} == "stuck" else 0)
x = fluid.data("x", [None, 2])
loader = fluid.io.DataLoader.from_generator([x], 2, iterable={state == "iterating"})
loader.set_batch_generator(generate, fluid.CPUPlace())
if loader.iterable:
    steps = iter(loader()); next(steps)
else:
    loader.start()
time.sleep(0.05)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_generators_end_before_reset_returns() -> None:
    ended: list[str] = []

    def generate() -> Iterable[Any]:
        try:
            while True:
                yield (np.zeros((1, 2), "float32"),)
        finally:
            ended.append("closed")

    net = Summed(capacity=1)
    net.loader.set_batch_generator(generate)
    net.loader.start()
    net.run()
    net.loader.reset()
    assert ended == ["closed"]
