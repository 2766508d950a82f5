"""Native functions: compiled once, kept on disk, loaded without the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

ROOT = Path(__file__).parents[2]
ADD = """
def run(words):
    x, out, n = f32(words[0]), f32(words[1]), words[2]
    for i in range(n):
        out[i] = x[i] + np.float32({constant})
"""
PROGRAM = f"""
import sys, warnings
import numpy as np
from rowlock.executor.codegen import native
x, out = np.arange(5, dtype=np.float32), np.empty(5, np.float32)
warnings.simplefilter("error")
for constant in sys.argv[1:]:
    source = {ADD!r}.format(constant=constant)
    native.launch(source, [x.ctypes.data, out.ctypes.data, 5], x, out)()
assert (out == x + float(constant)).all(), out
print("rowlock.executor.codegen.compiler" in sys.modules)
"""


def start(cache: Path, *constants: float) -> subprocess.Popen[str]:
    """Start a process that compiles one function for each constant, and runs it."""
    env = {**os.environ, "ROWLOCK_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, *map(str, constants or (1.5,))]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[bool, int]:
    """Wait for a process: did it import the compiler, how often did it complain."""
    out, said = process.communicate()
    assert process.returncode == 0, said
    return out == "True\n", said.count("cannot be kept")


def process(cache: Path, *constants: float) -> tuple[bool, int]:
    return ended(start(cache, *constants))


def test_several_processes_may_compile_the_same_at_once(tmp_path: Path) -> None:
    cache = tmp_path / "not" / "there" / "yet"
    ends = [ended(process) for process in [start(cache, 1.5, 2.5) for _ in range(3)]]
    assert [complaints for _, complaints in ends] == [0] * 3
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".o", ".o"], "whole files only"
    assert not process(cache, 1.5, 2.5)[0], "what was kept is good"


def test_a_second_process_loads_what_the_first_compiled_if_it_is_whole(tmp_path: Path) -> None:
    assert process(tmp_path) == (True, 0)
    assert not process(tmp_path)[0]
    (code,) = tmp_path.glob("*.o")
    code.write_bytes(code.read_bytes()[:-7])
    assert process(tmp_path)[0]
    assert process(tmp_path, 2.5)[0], "another source is another function"
    assert not process(tmp_path, 1.5, 2.5)[0]


def test_without_a_place_to_keep_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert process(tmp_path / "file" / "below", 1.5, 2.5) == (True, 1), "logged once"


def test_arrays_live_as_long_as_the_call() -> None:
    from rowlock.executor.codegen import native

    out = np.empty(4, np.float32)
    x = np.arange(4, dtype=np.float32)
    call = native.launch(ADD.format(constant=3), [x.ctypes.data, out.ctypes.data, 4], x, out)
    del x
    call()
    np.testing.assert_array_equal(out, [3, 4, 5, 6])


UPDATE = """
import numpy as np
import rowlock.fluid as fluid
from rowlock.executor.codegen import native
x = fluid.data("x", [None, 4])
hidden = fluid.layers.fc(fluid.layers.fc(x, 3, act="tanh"), 1, act="relu")
fluid.optimizer.Lamb(0.1).minimize(fluid.layers.mean(hidden))
exe, build = fluid.Executor(), fluid.BuildStrategy()
build.fuse_elewise_add_act_ops = True
exe.run(fluid.default_startup_program())
exe.run(fluid.CompiledProgram(fluid.default_main_program(), build), {"x": np.ones((2, 4), "f4")}, [])
print(sorted(native._loaded))
"""


def test_every_process_has_the_same_sources() -> None:
    """Replicas in processes of their own add up in one order, however Python orders its sets there."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", UPDATE],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2", "3")
    ]
    sources = {process.communicate()[0] for process in processes}
    assert len(sources) == 1
    assert "run(words)" in sources.pop()
