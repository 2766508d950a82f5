"""Which gang a contract test runs on, and on which kind of place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

import rowlock
from rowlock import fluid
from rowlock.executor import executor
from rowlock.executor.device.gpus import local_gpus
from rowlock.executor.simulated.simulated import COUNT
from rowlock.strategies.current import current_config
from tests.conftest import GPUS, lasting

DEVICE = os.environ.get("ROWLOCK_TEST_DEVICE", "cpu")  # "gpu": all of it on GPUs
# Run on both kinds of places; on GPUs with Ray, too, the first two alone.
BOTH = ("test_execution", "test_idle_places", "test_documented_examples", "test_matrix")
ON_BOTH = pytest.mark.parametrize("device", ["cpu", "gpu"], indirect=True)  # one test alone
_GPUS = 8
_RAY = find_spec("ray") is not None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have some files run on GPUs too."""
    on_both = DEVICE == "cpu" and metafunc.module.__name__.rpartition(".")[2] in BOTH
    if on_both and not any(mark.name == "cpu" for mark in metafunc.definition.iter_markers()):
        metafunc.parametrize("device", ["cpu", "gpu"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have Ray run on GPUs in two files: others would show the same again."""
    items[:] = [item for item in items if not _shown_elsewhere(item)]


def _shown_elsewhere(item: pytest.Item) -> bool:
    both = all(map(item.get_closest_marker, ("cuda", "ray")))
    chosen = getattr(item, "callspec", None)
    by_device = chosen is not None and "device" in chosen.params
    return both and by_device and not any(name in item.nodeid for name in BOTH[:2])


@pytest.fixture(params=["threads", "ray"])
def gang(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each kind of gang in turn."""
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    with lasting(request.param):
        yield request.param


@pytest.fixture(autouse=True, scope="session")
def without_ray() -> Iterator[None]:
    """Have replicas be threads where there is no Ray, and where all of it is on GPUs, unless a test says so."""
    by_ray = _RAY and DEVICE == "cpu"
    with contextlib.nullcontext() if by_ray else rowlock.cluster(launcher="threads"):
        yield


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let what a test calls CPU places be GPUs, simulated ones if there are no others."""
    kind: str = getattr(request, "param", DEVICE)
    if kind == "gpu" and request.node.get_closest_marker("cpu"):
        pytest.skip("about CPU places")
    if kind == "gpu":
        if not local_gpus():
            monkeypatch.setenv(COUNT, str(_GPUS))
        monkeypatch.setattr(fluid, "CPUPlace", lambda: fluid.CUDAPlace(0))
        monkeypatch.setattr(executor, "default_place", lambda: fluid.CUDAPlace(0))
        monkeypatch.setattr(fluid, "cpu_places", gpu_places)
    return kind


def gpu_places(count: int = 1) -> list[fluid.CUDAPlace]:
    """Return so many GPU places; a test that needs more than there are is skipped."""
    need_gpus(count)
    return list(fluid.cuda_places(range(count)))


def need_gpus(count: int) -> None:
    """Skip a test where there are fewer GPUs, or Ray has fewer simulated ones."""
    simulated = COUNT in os.environ and current_config().launcher == "ray"
    present = min(local_gpus(), GPUS) if simulated else local_gpus()
    if count > present:
        pytest.skip(f"it needs {count} GPUs, and this host has {present}")
