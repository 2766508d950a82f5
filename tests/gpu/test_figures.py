"""What ``benchmarks/gpu.py`` says of contenders that do not train alike."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu as gpu_figures
from benchmarks import gpu_kernels, large_models
from benchmarks.contenders import WORKERS, Contender
from benchmarks.gpu_kernels import Bound
from benchmarks.sizes import TINY
from rowlock import fluid
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.simulated.null import NullRuntime
from tests.gpu.results import entries
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler

LOSSES = np.array([4.1751, 4.1617, 4.0338, 4.0649, 3.9589, 3.9880])


def rows(*losses: Any) -> list[dict[str, Any]]:
    return [{"losses": list(one)} for one in (LOSSES, *losses)]


def test_what_differs_by_rounding_agrees() -> None:
    assert (
        gpu_figures.differ("gpt2/bfloat16", rows(LOSSES + 2e-4 * np.array([1, -1, 1, 0, -1, 1])))
        == ""
    )


def test_a_lost_gradient_is_seen() -> None:
    """Without any, the loss stays; without some, it falls more slowly."""
    stays = np.full(6, LOSSES[0])
    slower = LOSSES[0] + 0.9 * (LOSSES - LOSSES[0])
    for losses in (stays, slower):
        assert "move apart" in gpu_figures.differ("gpt2/bfloat16", rows(losses))


def test_a_loss_that_moves_in_steps_is_seen() -> None:
    assert "first losses differ" in gpu_figures.differ(
        "gpt2/bfloat16", rows(np.round(LOSSES * 16) / 16)
    )


def test_what_is_not_finite_is_seen() -> None:
    assert "finite" in gpu_figures.differ("gpt2/bfloat16", rows(np.full(6, np.nan)))


def test_each_rival_can_be_left_out() -> None:
    options = Namespace(
        torch="python", jax="python", simulated=True, verbose=False, without=[], limit=60
    )
    assert [one.name for one in gpu_figures.contenders(options)] == ["Rowlock", *gpu_figures.RIVALS]
    for rival in gpu_figures.RIVALS:
        options.without = [rival]
        assert rival not in [one.name for one in gpu_figures.contenders(options)]


def contender(worker: str, python: str = sys.executable) -> Contender:
    settings = json.dumps({"tiny": True, "device": "cpu"})
    return Contender(worker, [python, str(WORKERS / f"gpu_{worker}.py"), settings], quiet=False)


def first_losses(one: Contender, model: str) -> list[float]:
    one.ask(do="build", model=model)
    losses: list[float] = one.ask(do="run", steps=1)["losses"]
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("rival", ["jax", "torch"])
def test_contenders_train_large_models_alike(rival: str) -> None:
    python = os.environ.get(f"{rival.upper()}_PYTHON", "")
    if not python and importlib.util.find_spec(rival) is None:
        pytest.skip(
            f"{rival} is not here; {rival.upper()}_PYTHON may name an interpreter that has it"
        )
    ours, theirs = contender("rowlock"), contender(rival, python or sys.executable)
    try:
        assert ours.start() and theirs.start()
        for model in ("resnet50/float32", "gpt2/float32", "resnet50/bfloat16"):
            both = [{"losses": first_losses(one, model)} for one in (ours, theirs)]
            assert gpu_figures.differ(model, both) == ""
        first_losses(theirs, "fit")
    finally:
        ours.close()
        theirs.close()


WORKER = f"""
import sys, time
sys.path.insert(0, {str(WORKERS.parents[1])!r})
from benchmarks.workers.serve import serve
def build(model):
    if model == "mlp":
        raise ValueError("no room")
    if model == "lenet":
        time.sleep(600)
serve(dict, build, lambda step, count: {{"steps": count}})
"""


def test_a_contender_that_fails_or_hangs_is_left_out_of_a_model_and_answers_are_kept(
    tmp_path: Path,
) -> None:
    results = tmp_path / "figures.jsonl"
    options = Namespace(results=results, rounds=2, simulated=True)
    contender = Contender("Rowlock", [sys.executable, "-c", WORKER], limit=5)
    assert contender.start()
    try:
        rounds = [
            gpu_figures.measure(model, [contender], options) for model in ("mlp", "lenet", "fit")
        ]
    finally:
        contender.close()
    assert rounds == [{}, {}, {"Rowlock": [{"steps": 2}] * 2}]
    lines = entries(results)
    assert [line["why"] for line in lines[:2]] == ["ValueError: no room", "its process ended (-9)"]
    assert [line["of"] for line in lines] == ["mlp", "lenet", *["fit"] * 4]


def test_why_a_contender_does_not_start_and_what_a_part_broke_on_are_kept(tmp_path: Path) -> None:
    options = Namespace(results=tmp_path / "figures.jsonl")
    for command in ([sys.executable, "-c", "import no_such_library"], ["/no/such/python"]):
        assert not gpu_figures.starts(Contender("JAX", command), options)

    def breaks() -> None:
        raise ValueError("no room")

    assert "no room" in gpu_figures.unbroken("replays", options, breaks)
    lines = entries(options.results)
    assert "No module named 'no_such_library'" in lines[0]["why"] and lines[0]["left_out"] == "JAX"
    assert lines[1]["why"] == "there is no /no/such/python"
    assert lines[2]["broke"] == "replays" and "no room" in lines[2]["why"]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("model", ["resnet50", "gpt2"])
def test_operations_of_all_instructions_are_those_of_the_model(model: str) -> None:
    bound = Bound(f"{model}/bfloat16", gpu().runtime, tiny=True)  # type: ignore[no-untyped-call]
    total = 2 * sum(bound.work.multiply_adds(node) for node in bound.program.nodes)
    size = TINY[model]
    if model == "resnet50":
        pixels = (size.pixels // 2) ** 2
        total += 2 * size.rows * pixels * size.stem * 3 * 49  # images get no gradient
        assert total == size.operations()
    else:  # attention computes its scores again; norms and biases are no products
        assert 0.8 < total / size.operations() < 1.2


@pytest.mark.slow
@needs_compiler
def test_every_part_leaves_figures(tmp_path: Path) -> None:
    results = tmp_path / "figures.jsonl"
    script = str(Path(gpu_figures.__file__))
    options = [
        "--simulated",
        "--rounds",
        "1",
        "--models",
        "gpt2/bfloat16",
        "--results",
        str(results),
    ]
    subprocess.run([sys.executable, script, *options], check=True, timeout=500)
    lines = entries(results)
    (steps,) = [line for line in lines if "model" in line]
    (row,) = steps["rows"]
    assert {"quartiles", "host us", "first s", "declined"} <= set(row) and row["memory"][
        "planned"
    ] > 0
    (losses,) = [line for line in lines if "losses" in line]
    assert len(losses["rows"][0]["losses"]) == 50
    (replays,) = [line for line in lines if "replays" in line]
    assert replays["memory"] and replays["before"] and replays["longest"] >= replays["host"]
    assert any("TFLOP/s" in line.get("kernels", "") for line in lines)
    assert any("sanitizer" in line for line in lines)


def defined(path: Path) -> set[str]:
    """Return the names that a file defines or imports at its top."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        else:
            names |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return names


@pytest.mark.parametrize("path", sorted(WORKERS.glob("*.py")), ids=lambda path: path.stem)
def test_workers_name_what_their_modules_have(path: Path) -> None:
    """Workers run where this interpreter cannot import them: PyTorch's, JAX's, Paddle's."""
    tree, modules = ast.parse(path.read_text()), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks"):
            assert node.module is not None
            folder = WORKERS.parents[1] / node.module.replace(".", "/")
            for alias in node.names:
                if (source := folder / f"{alias.name}.py").exists():
                    modules[alias.asname or alias.name] = defined(source)
                else:
                    assert alias.name in defined(folder.with_suffix(".py")), alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert node.attr in modules.get(node.value.id, {node.attr}), ast.unparse(node)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt2/bfloat16", "resnet50/bfloat16"])
def test_kernels_of_a_large_model_compile_for_its_sizes(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written for the shapes at hand, of which tests of ops have smaller ones."""
    kernels: dict[str, CudaKernel] = {}
    launch = NullRuntime.launch

    def noted(self: NullRuntime, kernel: CudaKernel, *how: Any) -> Any:
        launched = kernel.over(how[2], self.address)
        kernels[launched.key] = launched
        return launch(self, kernel, *how)

    monkeypatch.setattr(NullRuntime, "launch", noted)
    # Parameters are address space, which nothing reads, and the startup program does not run.
    monkeypatch.setattr(gpu_kernels, "fill", lambda *_: None)
    monkeypatch.setattr(large_models, "weights", lambda *_: {})
    monkeypatch.setattr(large_models, "attr", lambda drawn, name: fluid.ParamAttr(name=name))
    plan = Bound(model, NullRuntime(), tiny=False).plan
    assert [segment.capturable for segment in plan.segments] == [True]
    assert_compile_for_a_gpu(kernels)
