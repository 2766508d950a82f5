"""The example trains as a job, and on ``ray.init(address="auto")``."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .namespaces import DASHBOARD, CannotMakeHosts, hosts

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


def clean_environment() -> dict[str, str]:
    left_out = ("RAY_ADDRESS", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in left_out}


@pytest.mark.slow
def test_the_example_as_a_job_and_without() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.cluster.jobs"],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert "jobs: done" in process.stdout


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("aiohttp_cors") is None,
    reason="ray job submit needs ray[default], which is not installed",
)
def test_ray_job_submit() -> None:
    """The real client and job server, in a network namespace of their own."""
    try:
        with hosts(1, cpus=2, dashboard=True) as one:
            submit = "from ray.scripts.scripts import main; main()"
            job = ["job", "submit", "--working-dir", ".", "--", sys.executable]
            driver = one.driver(
                0, "-c", submit, *job, "examples/job/train.py", RAY_API_SERVER_ADDRESS=DASHBOARD
            )
            driver.until("step 100: loss", 90)
            assert driver.end(30) == 0, driver.output
    except CannotMakeHosts as error:
        pytest.skip(f"no hosts as network namespaces here: {error}")
