"""Every notebook runs from top to bottom."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from ..conftest import one_in

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # Jupyter's own
@pytest.mark.parametrize("path", one_in(2, NOTEBOOKS), ids=lambda p: p.stem)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:  # a short path, as sockets need
        # Ports that are free when they are looked for may be another process's when the kernel starts.
        sockets = {"transport": "ipc", "ip": f"{folder}/kernel"}
        NotebookClient(
            notebook,
            timeout=240,
            startup_timeout=240,
            config=Config({"KernelManager": sockets}),
            resources={"metadata": {"path": str(ROOT / "notebooks")}},
        ).execute()
