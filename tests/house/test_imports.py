"""The package imports from wherever users have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(code: str, cwd: Path, **env: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **env},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_from_the_repository_root() -> None:
    assert "layers" in run("import rowlock.fluid as f; print(f.layers.__name__)", ROOT)


def test_installed_editable_without_generic_names(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u\n"
        "try:\n    import rowlock.fluid\nexcept ImportError:\n    print('not installed')\n"
        "else:\n    assert not any(u.find_spec(n) for n in ('graph', 'strategies', 'executor', 'cluster'))"
    )
    if "not installed" in run(code, tmp_path):
        pytest.skip("the package is not installed in this environment")


@pytest.mark.ray
def test_inside_a_ray_working_dir(tmp_path: Path) -> None:
    code = f"""
import ray
ray.init("local", num_cpus=1, include_dashboard=False, object_store_memory=80_000_000, logging_level="ERROR",
         runtime_env={{"working_dir": {str(ROOT)!r}, "excludes": [".git", ".venv", "tests", "runs"]}})
@ray.remote
def where():
    import rowlock.executor.executor, rowlock.cluster.ray.replica
    return rowlock.__file__
print(ray.get(where.remote(), timeout=240))
ray.shutdown()
"""
    assert "working_dir" in run(code, tmp_path)


def test_the_cluster_package_can_be_called_whatever_was_imported_first() -> None:
    for first in ("rowlock", "rowlock.cluster", "rowlock.cluster.primitives.wire"):
        code = f"import {first}, rowlock\nwith rowlock.cluster(launcher='threads') as c: print(c.launcher)"
        assert run(code, ROOT) == "threads\n"
