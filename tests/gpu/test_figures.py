"""What ``benchmarks/gpu.py`` says of contenders that do not train alike."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu
from benchmarks.contenders import WORKERS, Contender

LOSSES = np.array([4.1751, 4.1617, 4.0338, 4.0649, 3.9589, 3.9880])


def rows(*losses: Any) -> list[dict[str, Any]]:
    return [{"losses": list(one)} for one in (LOSSES, *losses)]


def test_what_differs_by_rounding_agrees() -> None:
    assert gpu.differ("gpt2/bfloat16", rows(LOSSES + 2e-4 * np.array([1, -1, 1, 0, -1, 1]))) == ""


def test_a_lost_gradient_is_seen() -> None:
    """Without any, the loss stays; without some, it falls more slowly."""
    stays = np.full(6, LOSSES[0])
    slower = LOSSES[0] + 0.9 * (LOSSES - LOSSES[0])
    for losses in (stays, slower):
        assert "move apart" in gpu.differ("gpt2/bfloat16", rows(losses))


def test_a_loss_that_moves_in_steps_is_seen() -> None:
    assert "first losses differ" in gpu.differ("gpt2/bfloat16", rows(np.round(LOSSES * 16) / 16))


def test_what_is_not_finite_is_seen() -> None:
    assert "finite" in gpu.differ("gpt2/bfloat16", rows(np.full(6, np.nan)))


def test_each_rival_can_be_left_out() -> None:
    options = Namespace(torch="python", jax="python", simulated=True, verbose=False, without=[])
    assert [one.name for one in gpu.contenders(options)] == ["Rowlock", *gpu.RIVALS]
    for rival in gpu.RIVALS:
        options.without = [rival]
        assert rival not in [one.name for one in gpu.contenders(options)]


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
            assert gpu.differ(model, both) == ""
        first_losses(theirs, "fit")
    finally:
        ours.close()
        theirs.close()


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
