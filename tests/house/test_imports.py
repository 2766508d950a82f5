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


def test_installed_editable_without_generic_names(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u\n"
        "try:\n    import rowlock.fluid\nexcept ImportError:\n    print('not installed')\n"
        "else:\n    assert not any(u.find_spec(n) for n in ('graph', 'strategies', 'executor', 'cluster'))"
    )
    if "not installed" in run(code, tmp_path):
        pytest.skip("the package is not installed in this environment")


def test_from_the_repository_root_whatever_is_imported_first() -> None:
    """The package of the cluster can be called, and is a package."""
    for first in ("rowlock", "rowlock.cluster", "rowlock.cluster.primitives.wire"):
        code = f"import {first}, rowlock\nwith rowlock.cluster(launcher='threads') as c: print(c.launcher)"
        assert run(f"{code}\nimport rowlock.fluid as f; print(f.layers.__name__)", ROOT) == (
            "threads\nrowlock.fluid.layers\n"
        )
