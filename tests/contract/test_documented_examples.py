"""Programs of the kinds that Paddle's documents show: only the import is ours.

Paddle 1.8.5 runs the same files once ``rowlock.fluid`` is replaced by ``paddle.fluid``.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.cluster.fleet.jobs import free_ports
from tests.conftest import lasting, one_in
from tests.programs import own_programs

ROOT = Path(__file__).parents[2]
PROCESSES = "distributed"  # is run by a launcher
EXAMPLES = sorted(
    path for path in (ROOT / "examples" / "paddle").glob("*.py") if path.stem != PROCESSES
)


@pytest.fixture(autouse=True)
def like_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CPU_NUM", "1")
    with own_programs(1), fluid.scope_guard(fluid.Scope()):
        yield


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_on_threads(threads: None, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    values = numbers(printed)
    assert values and all(abs(value) < 10 for value in values)
    if path.stem in ("regression", "train_and_test", "reader"):
        assert values[-1] < values[0] or path.stem == "train_and_test"
    if path.stem == "train_and_test":
        assert values[-1] > 0.6  # of the test rows are right
    if path.stem == "customized_loss_gradient":
        assert values[:2] == [0.25, 0.75]


def test_it_runs_on_rays_actors(ray_cluster: None, capsys: pytest.CaptureFixture[str]) -> None:
    with lasting("ray"):
        runpy.run_path(str(ROOT / "examples" / "paddle" / "two_cpu_places.py"))
    assert numbers(capsys.readouterr().out)


def run(name: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(ROOT / "examples" / "paddle" / f"{name}.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


COLLECTIVE = ("nccl2", "grad_allreduce", "local_sgd")
WITH_SERVERS = ("sync", "async", "half_async", "dc_asgd", "geo")
BY_FLEET = [f"fleet_{mode}" for mode in (*WITH_SERVERS, *COLLECTIVE) if mode != "dc_asgd"]
DRAWN = [
    case
    for modes in (WITH_SERVERS, COLLECTIVE)
    for case in one_in(10, [m for m in (*modes, *BY_FLEET) if m.endswith(modes)], more=0)
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", DRAWN)
def test_modes_of_several_trainers(mode: str, ray_cluster: None, tmp_path: Path) -> None:
    """Some modes as jobs of processes; ``test_every_mode_learns`` has every one on threads."""
    import ray

    serves = not mode.endswith(COLLECTIVE)
    (first, *_) = free_ports(1)  # the second server's is the next
    module = "launch_ps" if serves else "launch"
    ports = ["--start_port"] if serves else ["--nproc_per_node=2", "--started_port"]
    script = str(ROOT / "examples" / "paddle" / f"{PROCESSES}.py")
    line = ["-m", f"rowlock.distributed.{module}", *ports, str(first), "--log_dir", "logs", script]
    own = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *line, mode],
        cwd=tmp_path,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    losses = []
    for trainer in range(2):
        log = (tmp_path / f"logs/workerlog.{trainer}").read_text()
        losses.append(numbers("".join(re.findall(rf"trainer {trainer} loss .*\n", log))))
        if serves:
            assert "has ended" in (tmp_path / f"logs/serverlog.{trainer}").read_text()
    # A trainer that starts late finds what the other has learned: the greater first loss is the initial one.
    before, behind = np.max(losses, axis=0)
    assert behind < before / 2, losses


@pytest.mark.ray
def test_a_plain_script_starts_its_own_ray_and_ends_it() -> None:
    """No launcher, no shutdown call: nothing is said at exit, and nothing stays."""
    process = run("regression")
    assert process.returncode == 0, process.stderr
    assert "places 2 loss" in process.stdout
    assert "Traceback" not in process.stderr and "Started a local Ray" not in process.stderr
