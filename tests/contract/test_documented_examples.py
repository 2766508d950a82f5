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

import pytest

import rowlock.fluid as fluid
from tests.conftest import lasting

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "paddle").glob("*.py"))


@pytest.fixture(autouse=True)
def like_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CPU_NUM", "1")
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_on_threads(threads: None, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    found = numbers(printed)
    assert found and all(abs(value) < 10 for value in found)
    if path.stem in ("regression", "train_and_test", "reader"):
        assert found[-1] < found[0] or path.stem == "train_and_test"
    if path.stem == "train_and_test":
        assert found[-1] > 0.6  # of the test rows are right
    if path.stem == "customized_loss_gradient":
        assert found[:2] == [0.25, 0.75]


def test_it_runs_on_rays_actors(ray_cluster: None, capsys: pytest.CaptureFixture[str]) -> None:
    with lasting("ray"):
        runpy.run_path(str(ROOT / "examples" / "paddle" / "two_cpu_places.py"))
    assert numbers(capsys.readouterr().out)


@pytest.mark.ray
def test_a_plain_script_starts_its_own_ray_and_ends_it() -> None:
    """No launcher, no shutdown call: nothing is said at exit, and nothing stays."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "paddle" / "regression.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "places 2 loss" in done.stdout
    assert "Traceback" not in done.stderr and "Started a local Ray" not in done.stderr
