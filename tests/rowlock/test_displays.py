"""What a person sees: tracebacks, one-line displays, pages for notebooks, and pictures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import numpy as np
import rowlock.fluid as fluid
x = fluid.data("x", [None, 3])
def train():
    y = fluid.layers.fc(x, 2)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    exe.run(feed={"x": np.ones((2, 4), np.float32)}, fetch_list=[y])
train()
"""


def _stderr(script: Path, **more: str) -> str:
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env={**os.environ, **more}
    ).stderr


def test_a_traceback_ends_at_the_users_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    short = _stderr(script)
    assert short.count("  File ") == 2 and "script.py" in short
    assert "feed 'x': its declaration says shape [-1, 3], got [2, 4]" in short
    full = _stderr(script, ROWLOCK_TRACEBACK="full")
    assert "executor.py" in full and full.count("  File ") > 3
