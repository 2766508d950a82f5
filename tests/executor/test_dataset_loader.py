"""Loaders of data sets: as ``paddle.io`` of Paddle 3.3.1 in static mode, and what becomes of their workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock import io
from rowlock.strategies.errors import ExecutionError, FeedError
from tests.programs import own_programs

from ..conftest import eventually
from ..reference import loader_cases

# Once JAX is imported it warns of forks; as an error that would keep the frames, and the loader, alive.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

REFERENCE = json.loads((Path(loader_cases.__file__).parent / "loader.json").read_text())


def variables() -> tuple[Any, Any]:
    return fluid.data("image", [None, 2]), fluid.data("label", [None], "int64")


def descriptors() -> set[tuple[str, str]]:
    """Return what processes of a loader share: no sockets of the network, which a Ray of other tests opens."""
    links = {path: os.path.realpath(path) for path in map(str, Path("/proc/self/fd").iterdir())}
    local = Path("/proc/net/unix").read_text().split()
    return {
        (path, link)
        for path, link in links.items()
        if "memfd" in link
        or "pipe" in link
        or ("socket" in link and link.split(":[")[1][:-1] in local)
    }


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail if a test leaves a process or a descriptor behind."""
    process = psutil.Process()
    before = set(process.children()), descriptors(), set(os.listdir("/dev/shm"))
    yield
    assert eventually(lambda: set(process.children()) <= before[0])
    assert eventually(lambda: descriptors() <= before[1])
    left = set(os.listdir("/dev/shm")) - before[2]  # perhaps of tests that run beside these
    assert eventually(lambda: not left.intersection(os.listdir("/dev/shm")))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
        ours = loader_cases.outcomes(io, lambda n: [fluid.CPUPlace()] * n, Again())
    return json.loads(json.dumps(ours))


class Again:
    """The same two variables each time."""

    def __init__(self) -> None:
        self._variables: Any = None

    def __call__(self) -> Any:
        self._variables = self._variables or variables()
        return self._variables


@pytest.mark.parametrize("use", REFERENCE["outcomes"])
def test_batches_are_paddles(use: str, outcomes: dict[str, Any]) -> None:
    assert outcomes[use] == REFERENCE["outcomes"][use]


def test_wrong_uses_raise_what_they_do_in_paddle() -> None:
    kinds = loader_cases.refused(io)
    assert kinds.keys() == REFERENCE["refused"].keys()
    for use, kind in REFERENCE["refused"].items():
        assert kinds[use] == kind or kind in kinds[use], use


def test_what_needs_no_imperative_mode_here() -> None:
    rows = io.TensorDataset([np.arange(6).reshape(3, 2), [7, 8, 9]])
    assert len(rows) == 3 and rows[1][0].tolist() == [2, 3] and rows[1][1] == 8
    with pytest.raises(AssertionError, match=r"have \[3, 2\] rows"):
        io.TensorDataset([np.ones(3), np.ones(2)])
    assert sorted(io.SubsetRandomSampler([4, 7, 1])) == [1, 4, 7]
    parts = io.random_split(rows, [2, 1], np.random.RandomState(0))
    assert [part.indices for part in parts] == [[2, 1], [0]]
    assert [len(part) for part in io.random_split(rows, [0.5, 0.5])] == [2, 1]
    with pytest.warns(UserWarning, match="has no samples"):
        assert [len(part) for part in io.random_split(rows, [0.98, 0.01, 0.01])] == [3, 0, 0]
    with pytest.raises(TypeError, match="NumPy generator"):
        io.random_split(rows, [2, 1], 5)
    assert io.get_worker_info() is None


class Images(io.Dataset):
    """Images of 40 kB, with something that happens at one of them."""

    def __init__(self, at: int = -1, event: Callable[[], Any] = int) -> None:
        self.at, self.event = at, event

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            self.event()
        return np.full((100, 100), index, "float32"), os.getpid()


def fail() -> None:
    raise KeyError("two\nlines")


def test_batches_of_workers_are_in_order_and_writable() -> None:
    slow = Images(0, lambda: time.sleep(0.2))
    for shared in (True, False):
        batches = list(io.DataLoader(slow, batch_size=2, num_workers=3, use_shared_memory=shared))
        assert [batch[0][:, 0, 0].tolist() for batch in batches] == [
            [i, i + 1] for i in range(0, 12, 2)
        ]
        pids = [set(batch[1].tolist()) for batch in batches]
        assert pids[0] == pids[3] != pids[1] and len(set.union(*pids)) == 3
        batches[0][0][:] = 5
        assert batches[1][0][0, 0, 0] == 2


def test_an_error_of_a_worker_names_its_line() -> None:
    loader = io.DataLoader(Images(5, fail), batch_size=2, num_workers=2)
    iterator = iter(loader)
    assert next(iterator)[0][0, 0, 0] == 0
    with pytest.raises(KeyError) as failure:
        list(iterator)
    text = str(failure.value)
    line = fail.__code__.co_firstlineno + 1
    assert "worker 0 of the DataLoader raised KeyError" in text
    assert f'{Path(__file__).name}", line {line}, in fail' in text

    class Own(Exception):
        pass

    def own() -> None:
        raise Own("of the worker alone")

    with pytest.raises(ExecutionError, match=r"raised Own:[\s\S]*of the worker alone"):
        list(io.DataLoader(Images(0, own), num_workers=1))
    with pytest.raises(ExecutionError, match=r"raised SystemExit"):
        list(io.DataLoader(Images(0, sys.exit), num_workers=1))
    with pytest.raises(ZeroDivisionError, match="raised ZeroDivisionError"):
        list(io.DataLoader(Images(), num_workers=1, worker_init_fn=lambda number: 1 // number))
    with pytest.raises((AttributeError, TypeError, ExecutionError), match="pickle"):
        list(io.DataLoader(Images(), num_workers=1, collate_fn=lambda samples: lambda: samples))
    with pytest.raises(ZeroDivisionError):
        list(io.DataLoader(Images(3, lambda: 1 // 0)))


@pytest.mark.kills
def test_a_killed_and_a_silent_worker_are_named() -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ExecutionError, match=r"worker 1 .* was killed by SIGKILL"):
        list(io.DataLoader(Images(3, die), batch_size=2, num_workers=2))
    with pytest.raises(ExecutionError, match=r"worker 0 .* ended \(3\)"):
        list(io.DataLoader(Images(0, lambda: os._exit(3)), num_workers=1))
    with pytest.raises(ExecutionError, match=r"worker 0 .* gave no batch for 0.2 s \(timeout\)"):
        list(io.DataLoader(Images(0, lambda: time.sleep(60)), num_workers=1, timeout=0.2))


def test_workers_end_with_their_iteration_or_last_until_the_loader_goes() -> None:
    def workers() -> set[int]:
        return {child.pid for child in psutil.Process().children()} - before

    def gone() -> bool:
        return eventually(lambda: not workers())

    before = {child.pid for child in psutil.Process().children()}
    iterator = iter(io.DataLoader(Images(), num_workers=2))
    next(iterator)
    assert len(workers()) == 2
    del iterator
    assert gone()

    class Counting(io.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            info = io.get_worker_info()
            assert info is not None and info.dataset is not None
            return iter(range(info.id, 8, info.num_workers))

    for dataset in (Images(), Counting()):
        loader = io.DataLoader(dataset, batch_size=2, num_workers=2, persistent_workers=True)
        epochs = [[str(batch) for batch in loader] for _ in range(2)]
        same = workers()
        next(iter(loader))  # left after its first batch
        epochs.append([str(batch) for batch in loader])
        assert epochs[0] == epochs[1] == epochs[2] and len(epochs[0]) in (4, 6)
        assert workers() == same and len(same) == 2
        del loader
        assert gone()


def test_workers_draw_different_numbers_that_a_seed_repeats() -> None:
    class Noise(io.Dataset):
        def __getitem__(self, index: int) -> Any:
            return np.random.rand(3)

        def __len__(self) -> int:
            return 4

    runs = []
    for _ in range(2):
        np.random.seed(3)
        runs.append(np.concatenate(list(io.DataLoader(Noise(), num_workers=2))))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert len(np.unique(runs[0])) == 12


SCRIPT = """
import os, sys, time
import rowlock.io as io
class Endless(io.IterableDataset):
    def __iter__(self):
        while True:
            yield 1
loader = io.DataLoader(Endless(), num_workers=2)
iterator = iter(loader)
next(iterator)
print(*[p.pid for p in __import__("psutil").Process().children()], flush=True)
if sys.argv[1] == "wait":
    time.sleep(60)
"""


@pytest.mark.kills
@pytest.mark.parametrize("end", ["exit", "wait"])
def test_workers_go_with_a_driver_that_ends_or_is_killed(end: str) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, end], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    if end == "wait":
        driver.kill()
    assert driver.wait(120) == (-signal.SIGKILL if end == "wait" else 0)
    driver.stdout.close()
    assert eventually(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_loader_feeds_a_program() -> None:
    class Lines(io.Dataset):
        def __getitem__(self, index: int) -> Any:
            x = np.array([index % 5, 1], "float32")
            return x, np.array([2 * x[0] - 1], "float32")

        def __len__(self) -> int:
            return 40

    scope = fluid.Scope()
    with own_programs() as (main, startup):
        x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1])
        loss = fluid.layers.reduce_mean(
            fluid.layers.square(fluid.layers.fc(x, 1, bias_attr=False) - y)
        )
        fluid.optimizer.SGD(0.05).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope):
        exe.run(startup)
        losses = []
        dicts = fluid.io.DataLoader(
            Lines(), [x, y], fluid.cpu_places(1), batch_size=8, num_workers=1
        )
        for feed in dicts():
            losses.append(float(exe.run(main, feed=feed, fetch_list=[loss])[0].item()))
        lists = paddle.io.DataLoader(Lines(), batch_size=8, shuffle=True)
        for _ in range(8):
            for xs, ys in lists():
                (value,) = exe.run(main, feed={"x": xs, "y": ys}, fetch_list=[loss])
                losses.append(float(value.item()))
    assert losses[-1] < 0.2 * losses[0] and len(losses) == 45
    wrong = fluid.io.DataLoader(Lines(), [x], fluid.cpu_places(1))
    with pytest.raises(
        FeedError, match=re.escape("2 field(s) for the 1 variable(s) of feed_list (x)")
    ):
        next(iter(wrong))
    assert paddle.io.DataLoader.from_generator is fluid.io.DataLoader.from_generator
