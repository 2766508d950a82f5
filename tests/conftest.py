"""One Ray for the whole session, started when the first test asks for it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

os.environ.update(
    OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0"
)

import pytest

from rowlock.executor.cuda.gpus import local_gpus
from rowlock.executor.cuda.simulated import COUNT

GPUS = 4  # that actors may have, simulated ones


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray that gangs join."""
    import ray

    start_ray()
    yield
    ray.shutdown()


def start_ray() -> None:
    """Start a local Ray with simulated GPUs, where there are no others."""
    import ray

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    before = os.environ.get(COUNT)
    real = local_gpus() if os.environ.get("ROWLOCK_TEST_DEVICE") == "gpu" and not before else 0
    if not real:
        os.environ.setdefault(COUNT, str(GPUS))  # for the actors; this process sees none
    ray.init(
        address="local",  # not a cluster that somebody else started here
        num_cpus=4,
        num_gpus=real or GPUS,
        include_dashboard=False,
        object_store_memory=80_000_000,
        logging_level="ERROR",
        log_to_driver=False,
    )
    if before is None:
        os.environ.pop(COUNT, None)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No shared memory of ours outlives the tests."""
    yield
    assert not glob.glob("/dev/shm/rowlock-*")
