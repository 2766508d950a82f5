"""What a person sees: tracebacks, one-line displays, pages for notebooks, and pictures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.graph.ir.reader import from_program
from rowlock.graph.program.where import user_line
from rowlock.graph.report.svg import to_svg
from tests.programs import on_places, own_programs

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


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
def run(cell):
    shell.run_cell(cell, store_history=True)
run("import time, numpy as np, rowlock.fluid as fluid")
run("def build():\\n    return fluid.data('x', [None, 3])\\nx = build()")
run("fluid.Executor().run(feed={'x': np.ones((2, 4), np.float32)}, fetch_list=[x])")
"""
INTERRUPT = """
import os, signal, time
import numpy as np
import rowlock.fluid as fluid
def interrupted(x):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
x = fluid.data("x", [None, 3])
out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[-1, 3])
fluid.layers.py_func(interrupted, x, out)
fluid.Executor().run(feed={"x": np.ones((2, 3), np.float32)}, fetch_list=[out])
"""


def test_lines_of_a_notebook_are_named_by_their_cell() -> None:
    output = subprocess.run([sys.executable, "-c", CELLS], capture_output=True, text=True).stdout
    assert "got [2, 4]. Declared at Cell In[2]:2, in build." in output


def test_an_older_ipython_names_no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(compile=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert user_line().startswith(f"{__file__}:")


def test_ctrl_c_in_a_step_shows_the_users_line_alone(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPT)
    short = _stderr(script)
    assert short.rstrip().endswith("KeyboardInterrupt") and short.count("  File ") == 1
    assert "executor.py" in _stderr(script, ROWLOCK_TRACEBACK="full")


def test_fetches_print_as_arrays() -> None:
    main, startup, loss, _ = _trained()
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {"x": np.zeros((2, 13), np.float32), "y": np.ones((2, 1), np.float32)}
    fetched = exe.run(main, feed, [loss], scope=scope)
    assert repr(fetched) == "[array([1.], dtype=float32)]"


def _trained() -> tuple[fluid.Program, Any, Any, Any]:
    with own_programs() as (main, startup):
        x, y = fluid.data("x", [None, 13]), fluid.data("y", [None, 1])
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
        optimizer = fluid.optimizer.Adam(0.1)
        optimizer.minimize(loss)
    return main, startup, loss, optimizer


def test_a_loaded_model_shows_its_parameters_and_feeds(tmp_path: Path) -> None:
    main, startup, *_ = _trained()
    exe, out = fluid.Executor(fluid.CPUPlace()), main.global_block().var("fc_0.tmp_1")
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe, main)
        model, *_ = fluid.io.load_inference_model(str(tmp_path), exe)
    assert "2 parameters (14 numbers), feeds x." in repr(model)


def test_a_tensor_shows_the_newest_value_of_its_replicas(threads: None) -> None:
    main, startup, loss, _ = _trained()
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    feed = {"x": np.ones((4, 13), np.float32), "y": np.ones((4, 1), np.float32)}
    with fluid.scope_guard(scope):
        exe.run(startup)
        program = on_places(main, 2, loss)
        exe.run(program, feed=feed)
        tensor = scope.find_var("fc_0.b_0").get_tensor()
        for _ in range(2):
            exe.run(program, feed=feed)
            shown = repr(scope.find_var("fc_0.b_0"))
            assert shown == f"ScopeVariable(Tensor('fc_0.b_0', {np.array(tensor)!r}))"
    assert repr(fluid.Scope().var("w")) == "ScopeVariable(Tensor('w', no value yet))"


def test_displays_fit_a_terminal_and_pages_show_all() -> None:
    main, startup, loss, optimizer = _trained()
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    feed = {"x": np.ones((4, 13), np.float32), "y": np.ones((4, 1), np.float32)}
    with fluid.scope_guard(scope), rowlock.cluster(launcher="threads"):
        exe.run(startup)
        program = on_places(main, 2, loss)
        future = exe.run_async(program, feed=feed, fetch_list=[loss])
        future.result()
        report = program.explain()
    attr = fluid.ParamAttr("w", learning_rate=2.0)
    for shown in (main, program, report, exe, scope, future, optimizer, attr):
        assert "\n" not in repr(shown) and len(repr(shown)) < 240, repr(shown)
    assert repr(main).startswith("<Program: ") and "2 parameters (14 numbers), feeds x, y" in repr(
        main
    )
    assert repr(attr) == "ParamAttr(name='w', learning_rate=2.0)"
    start = fluid.initializer.Normal(0.0, 0.1, seed=3)
    decay, clip = fluid.regularizer.L2Decay(0.5), fluid.clip.GradientClipByNorm(2.0)
    assert repr(fluid.ParamAttr(initializer=start, regularizer=decay)) == (
        "ParamAttr(initializer=NormalInitializer(loc=0.0, scale=0.1, seed=3), "
        "regularizer=L2DecayRegularizer(regularization_coeff=0.5))"
    )
    assert repr(clip) == "GradientClipByNorm(clip_norm=2.0)"
    assert repr(future) == "<StepFuture: done, fetches mean_0.tmp_0>"
    assert repr(optimizer).startswith("<AdamOptimizer: learning_rate=0.1, ")
    page = report._repr_html_()
    for part in ("<svg", "Passes", "Kernels", "Memory", "why not more", "numpy"):
        assert part in page
    assert "<svg" in main._repr_html_() and "fc_0.w_0" in main._repr_html_()


def test_a_picture_has_whole_labels_shapes_a_legend_and_edges_to_gradients() -> None:
    main, *_ = _trained()
    svg = ElementTree.fromstring(to_svg(from_program(main, ["x", "y"])))
    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in svg.iter(f"{name}text")]
    assert {"forward", "backward", "update", "mul", "FP32[-1,1]", "square_grad"} <= set(texts)
    for box in svg.iter(f"{name}g"):
        width = float(box.find(f"{name}rect").get("width"))  # type: ignore[union-attr,arg-type]
        assert all(len(text.text or "") * 6 < width for text in box.iter(f"{name}text"))
    across = [path for path in svg.iter(f"{name}path") if path.get("class") == "a"]
    assert len(across) > 3  # one is the legend's
