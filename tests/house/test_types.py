"""What a type checker says of a user's program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import rowlock.fluid as fluid
from rowlock import static

x = static.data("x", [None, 3])
loss = fluid.layers.mean(fluid.layers.fc(x, 1))
optimizer = fluid.optimizer.Adam(0.1)
reveal_type(optimizer)
reveal_type(optimizer.minimize(loss)[1][0][0])
build = fluid.BuildStrategy()
build.reduce_strategy = static.BuildStrategy.ReduceStrategy.Reduce
build.fuse_all_reduce_ops = "yes"
compiled = fluid.CompiledProgram(fluid.default_main_program(), build).with_data_parallel(loss.name)
reveal_type(compiled.explain())
fluid.layers.fc(x, size="3")
fluid.layers.fc(x, 3, activation="relu")
x.shape = 3
fluid.unknown
static.unknown
fluid.optimizer.unknown
"""
SAID = """\
7: note: Revealed type is "rowlock.graph.training.optimizer.methods.AdamOptimizer"
8: note: Revealed type is "rowlock.graph.program.variable.Parameter"
11: error: Incompatible types in assignment (expression has type "str", variable has type "bool")  [assignment]
13: note: Revealed type is "rowlock.graph.report.report.CompileReport"
14: error: Argument "size" to "fc" has incompatible type "str"; expected "int"  [arg-type]
15: error: Unexpected keyword argument "activation" for "fc"  [call-arg]
16: error: Incompatible types in assignment (expression has type "int", variable has type "Never")  [assignment]
17: error: Module has no attribute "unknown"  [attr-defined]
18: error: Module has no attribute "unknown"  [attr-defined]
19: error: Module has no attribute "unknown"  [attr-defined]
"""


@pytest.mark.slow
def test_a_program_is_checked_to_its_end(tmp_path: Path) -> None:
    """What ``make test`` has checked before is taken from mypy's cache."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "pyproject.toml",
        str(file),
    ]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    lines = [text.partition("program.py:")[2] for text in checked.stdout.splitlines()]
    said = [text for text in lines if text and "defined in" not in text]
    assert said == SAID.splitlines(), checked.stdout + checked.stderr
