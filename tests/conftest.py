"""One Ray for the whole session, started when the first test asks for it."""

from __future__ import annotations

import gc
import glob
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.update(
    OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0"
)
os.environ.setdefault("FLAGS_measure_kernels", "0")  # the same bits in every run

import numpy as np
import pytest

import rowlock
from rowlock import fluid
from rowlock.executor.device.gpus import local_gpus
from rowlock.executor.kernels import capabilities as able
from rowlock.executor.simulated.host_compiler import host_compiler
from rowlock.executor.simulated.simulated import COUNT
from rowlock.graph.layers.operators import PROMOTION
from rowlock.graph.program import program, seeds
from rowlock.strategies.current import pop_config
from tests.programs import own_programs

# Actors import the package hundreds of times: its bytecode halves the time in which one starts.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
GPUS = 4  # that actors may have, simulated ones
_SLOW_PART = 6  # one in so many of the slow tests is in `make test`
# Of all that is drawn at random; processes that run tests side by side, or for one, have the same.
SEED = int(os.environ.setdefault("ROWLOCK_TEST_SEED", str(random.randrange(1 << 16))))


def one_of_each(cases: Iterable[tuple[str, int]], part: int = 1) -> list[Any]:
    """Leave one sample each of one in ``part`` of the ops to ``make test``, drawn by the seed.

    As many of the other ops are slow; the rest needs ROWLOCK_TEST_LONG.
    """
    every = list(cases)
    by_op: dict[str, list[int]] = {}
    for i, (op, _) in enumerate(every):
        by_op.setdefault(op, []).append(i)
    draw = random.Random(SEED)
    order = [draw.choice(by_op[op]) for op in draw.sample(list(by_op), len(by_op))]
    first = -(-len(order) // part)
    return _marked(every, order[:first], order[first : 2 * first])


def one_in(part: int, cases: Iterable[Any], more: int | None = None) -> list[Any]:
    """Leave one in ``part`` of the cases to ``make test``, drawn by the seed.

    So many ``more`` are slow (None: as many); the rest needs ROWLOCK_TEST_LONG.
    """
    every = [case if isinstance(case, tuple) else (case,) for case in cases]
    first = -(-len(every) // part)
    order = sample(len(every), len(every))
    return _marked(every, order[:first], order[first : first + (first if more is None else more)])


def _marked(every: list[Any], drawn: Iterable[int], slow: Iterable[int]) -> list[Any]:
    """Return the cases drawn, and those that are slow so marked; the rest too, if tests may be long."""
    drawn = set(drawn)
    chosen = range(len(every)) if os.environ.get("ROWLOCK_TEST_LONG") else drawn.union(slow)
    marks = {True: (), False: pytest.mark.slow}
    return [pytest.param(*every[i], marks=marks[i in drawn]) for i in sorted(chosen)]


def draws(few: int, many: int) -> pytest.MarkDecorator:
    """Run a test on ``few`` random cases in ``make test``; on ``many``, these among them, as a slow test."""
    cases = [(few, pytest.mark.some), (many, pytest.mark.slow)]
    return pytest.mark.parametrize("draws", [pytest.param(n, marks=mark) for n, mark in cases])


# On threads, and as a slow test on actors: what these do beside that, other tests of the file show.
ON_RAY_TOO = pytest.mark.parametrize(
    "gang", ["threads", pytest.param("ray", marks=pytest.mark.slow)], indirect=True
)


def sample(cases: int, draws: int) -> list[int]:
    """Return so many of the numbers below ``cases``, drawn by the seed."""
    return random.Random(SEED).sample(range(cases), draws)


def product(least: int = 0, /, **axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize over the product of some axes.

    ``make test`` has ``least`` of the cases, or as many as the longest axis has values, drawn by the seed;
    each value of each axis is among them. As many of the others are slow; the rest needs ROWLOCK_TEST_LONG.
    """
    values = {name: list(axis) for name, axis in axes.items()}
    draw = random.Random(f"{SEED} {list(axes)}")
    columns = []
    size = max(least, *map(len, values.values()))
    for axis in values.values():
        orders = [draw.sample(range(len(axis)), len(axis)) for _ in range(-(-size // len(axis)))]
        columns.append([index for order in orders for index in order][:size])
    drawn = set(zip(*columns, strict=True))
    every = list(itertools.product(*(range(len(axis)) for axis in values.values())))
    if not os.environ.get("ROWLOCK_TEST_LONG"):
        others = [indices for indices in every if indices not in drawn]
        more = set(draw.sample(others, min(len(others), size)))
        every = [indices for indices in every if indices in drawn | more]
    cases = []
    for indices in every:
        case = [axis[i] for axis, i in zip(values.values(), indices, strict=True)]
        marks = () if indices in drawn else (pytest.mark.slow,)
        name = "-".join(v if isinstance(v, str) else repr(v) for v in case)
        cases.append(pytest.param(*case, marks=marks, id=name))
    return pytest.mark.parametrize(tuple(values), cases)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Behind a shell's & processes are born deaf to Ctrl-C, and so would be those that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
_RAY, _GPUS = {"ray", "actor calls"}, {"gpu", "nccl"}  # of what tests are parametrised over
_files_with_ray: set[Path] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that are seen to start Ray, to run kernels of a GPU, or to be attacks; draw slow tests."""
    for item in items:
        chosen = getattr(item, "callspec", None)
        values = list(chosen.params.values()) if chosen else []
        words = {
            w for v in values for w in (v if isinstance(v, tuple) else (v,)) if isinstance(w, str)
        }
        if "ray_cluster" in getattr(item, "fixturenames", ()) or words & _RAY:
            item.add_marker("ray")
        if words & _GPUS:
            item.add_marker("cuda")
        if item.get_closest_marker("attack"):
            item.add_marker("slow")
    both = [item for item in items if all(map(item.get_closest_marker, ("cuda", "ray")))]
    both = [item for item in both if "test_execution" in item.nodeid]
    for item in random.Random(SEED).sample(both, max(0, len(both) - 2)):
        item.add_marker("slow")
    _files_with_ray.update(item.path for item in items if item.get_closest_marker("ray"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    for item in random.Random(SEED).sample(slow, -(-len(slow) // _SLOW_PART)):
        item.add_marker("drawn")
    # What takes long comes first: a worker that came to such a file at the end would leave the others idle.
    waits = {item.path for item in items if any(map(item.get_closest_marker, ("ray", "timeout")))}
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in waits, -counts[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections, and keep them out of later ones, which would take 0.4 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_report_header() -> str:
    """Show what draws the same cases again."""
    return f"ROWLOCK_TEST_SEED={SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let what a test and its fixtures draw depend on the seed alone, which is shown if the test fails.

    Weights of programs without a seed, and NumPy's numbers, are the same under every seed: whether a net
    learns in a few steps, or how far a sum rounds, is no matter of luck. What needs a GPU is skipped where
    none can be simulated either.
    """
    print(f"ROWLOCK_TEST_SEED={SEED} draws the same again")
    PROMOTION.is_on = False  # a test that calls paddle.enable_static() is a program of its own
    random.seed(f"{SEED} {item.nodeid}")
    same = random.Random(item.nodeid)
    np.random.seed(same.getrandbits(32))
    seeds.randbits = same.getrandbits
    if program._default_seed:  # a program with paddle.seed ran before
        program.Program.global_seed(0)
    if item.get_closest_marker("cuda") and not local_gpus() and not host_compiler():
        pytest.skip("a simulated GPU needs g++ on this host")


_shared_ray: list[bool] = []  # not empty once a test asked for it


@pytest.fixture(scope="module", autouse=True)
def ray_of_a_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """End a Ray that gangs of a module started: others would join it, and it has the GPUs of that moment.

    Before a module that starts none, gangs of the shared Ray end: each actor takes a hundredth of a core.
    """
    if _shared_ray and request.path not in _files_with_ray:
        rowlock.shutdown()
    yield
    ray = sys.modules.get("ray")
    if not _shared_ray and ray is not None and ray.is_initialized():
        rowlock.shutdown()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray that gangs join."""
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        rowlock.shutdown()  # gangs of the same module started it
    start_ray()
    _shared_ray.append(True)
    yield
    rowlock.shutdown()
    # A driver that leaves calls Ray's server, which once never answered: without the server the call ends.
    node = ray._private.worker._global_node
    if node is not None:
        impatience = threading.Timer(60, node.kill_gcs_server, (False,))
        impatience.daemon = True
        impatience.start()
        ray.shutdown()
        impatience.cancel()


@pytest.fixture
def fresh_programs() -> Iterator[None]:
    """Build into programs of the test's own, with names and values of their own."""
    with own_programs(), fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a GPU, simulated where there is no other."""
    if not local_gpus():
        monkeypatch.setenv(COUNT, "1")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are two GPUs, simulated where there are no others."""
    if local_gpus() < 2:
        monkeypatch.setenv(COUNT, "2")


@pytest.fixture
def threads() -> Iterator[None]:
    """A gang of threads, for what does not depend on the kind."""
    with rowlock.cluster(launcher="threads"):
        yield


@pytest.fixture(scope="module")
def no_compiled_loops() -> Iterator[None]:
    """Let NumPy and oneDNN compute: to compile loops takes longer than all else of programs that run once.

    ``tests/ops`` holds loops to references, and ``tests/contract`` trains with them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(able._VERSIONS, "llvm", lambda: "")
        able.capabilities.cache_clear()
        yield
    able.capabilities.cache_clear()


@contextmanager
def lasting(launcher: str, **settings: Any) -> Iterator[None]:
    """Put a launcher in force; gangs of Ray go on behind the block, for tests that leave them as they were."""
    if launcher != "ray":
        with rowlock.cluster(launcher=launcher, **settings):
            yield
        return
    # Three processes of tests start actors on two cores: that may take longer than users would wait for it.
    config = rowlock.configure(launcher=launcher, **{"start_deadline_s": 200.0, **settings})
    try:
        yield
    finally:
        pop_config(config)


def start_ray() -> None:
    """Start a local Ray with simulated GPUs, where there are no others."""
    import ray

    from tests.lean_ray import lean_nodes

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    before = os.environ.get(COUNT)
    real = local_gpus() if os.environ.get("ROWLOCK_TEST_DEVICE") == "gpu" and not before else 0
    if not real:
        os.environ.setdefault(COUNT, str(GPUS))  # for the actors; this process sees none
    for left in (2, 1, 0):
        try:
            with lean_nodes():
                ray.init(
                    address="local",  # not a cluster that somebody else started here
                    num_cpus=4,
                    num_gpus=real or GPUS,
                    include_dashboard=False,
                    object_store_memory=80_000_000,
                    logging_level="ERROR",
                    log_to_driver=False,
                )
            break
        except Exception:
            # Ray gives a node half a minute to start, which may be too little on a busy host.
            ray.shutdown()
            if not left:
                raise
    if before is None:
        os.environ.pop(COUNT, None)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No shared memory of ours outlives the tests."""
    yield
    assert segments_end()


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Wait until a condition holds, and tell whether it does."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def segments_end() -> bool:
    """Wait until the shared memory that is there now has gone; tests beside this one make other."""
    there = set(glob.glob("/dev/shm/rowlock-*"))
    return eventually(lambda: not there.intersection(glob.glob("/dev/shm/rowlock-*")))


def freeze(pid: int) -> None:
    """Stop a process, and return once all its threads stand still: a signal takes them one after the other."""
    os.kill(pid, signal.SIGSTOP)
    assert eventually(
        lambda: all(
            stat.read_text().rpartition(")")[2].split()[0] == "T"
            for stat in Path(f"/proc/{pid}/task").glob("*/stat")
        )
    )
