"""Run by test_jobs.py in a process of its own: the example as a job, the way Ray's JobSupervisor starts one.

A job is a driver started by an actor in the unpacked working_dir, with RAY_ADDRESS and the job's runtime_env
in its environment. Nothing else tells the nodes where the package is: they have no PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ray
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray.cluster_utils import Cluster

from tests.lean_ray import lean_nodes

ROOT = Path(__file__).parents[2]
EXCLUDED = [".git", ".venv", "runs", "notebooks", "benchmarks", "tests", "*.egg-info"]
TRAIN = "examples/job/train.py"
LOCATE = """
import ray, rowlock
ray.init(logging_level="ERROR")
there = ray.remote(lambda: __import__("rowlock").__file__)
print("from", rowlock.__file__, ray.get(there.remote(), timeout=240))
"""
AUTO = f"""
import ray, runpy
ray.init(address="auto", logging_level="ERROR")
runpy.run_path({TRAIN!r}, run_name="__main__")
"""


@ray.remote(num_cpus=0)
class Supervisor:
    """Starts drivers of the job whose runtime_env it has."""

    def __init__(self, address: str) -> None:
        env = dict(ray.get_runtime_context().runtime_env)
        config = json.dumps({"runtime_env": env, "metadata": {"job_name": "train"}})
        own = {"RAY_ADDRESS": address, RAY_JOB_CONFIG_JSON_ENV_VAR: config}
        self._environment = {**os.environ, **own}

    def run(self, *arguments: str) -> tuple[int, str]:
        """Return the exit status and output of a driver."""
        return ran(self._environment, *arguments)


def ran(environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    process = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return process.returncode, process.stdout


def main() -> None:
    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(
            initialize_head=True, head_node_args={"include_dashboard": False, **small}
        )
        # A node removes what it finds of a package before it unpacks it. In the head's folder that
        # would be the folder that the job's processes work in.
        cluster.add_node(temp_dir=folder, **small)
        try:
            check_job(cluster.address)
            check_auto(cluster.address)
        finally:
            ray.shutdown()
            cluster.shutdown()
    check_address()


def check_job(address: str) -> None:
    env = {"working_dir": str(ROOT), "excludes": EXCLUDED}
    ray.init(address=address, runtime_env=env, logging_level="ERROR", log_to_driver=False)
    supervisor = Supervisor.remote(address)

    def job(*arguments: str) -> tuple[int, str]:
        return ray.get(supervisor.run.remote(*arguments), timeout=240)

    status, said = job("-c", LOCATE)
    assert status == 0 and said.count("working_dir_files") == 2, said
    each = ("--replicas-per-node", "1", "--cpus", "1", "--steps", "21")
    status, said = job(TRAIN, "--places", "2", *each)
    assert status == 0 and "step 20" in said and "on 2 places" in said, said
    # refused at once; the job fails with the sentence
    status, said = job(TRAIN, "--places", "3", *each)
    assert status == 1 and "Ask for at most 2 places" in said, said
    ray.kill(supervisor)


def check_auto(address: str) -> None:
    """``ray.init(address="auto")``, from the checkout."""
    status, said = ran({**os.environ, "RAY_ADDRESS": address}, "-c", AUTO)
    assert status == 0 and "step 100" in said, said


def check_address() -> None:
    """No cluster: no local Ray is started where an address was meant."""
    server = "http://127.0.0.1:8265"  # for ray job submit, not for drivers
    status, said = ran({**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": server}, TRAIN)
    assert status == 1 and f"CollectiveError: no Ray cluster answers at {server!r}" in said, said


if __name__ == "__main__":
    with lean_nodes():
        main()
    print("jobs: done")
