"""Programs over sequences, as people write them, print Paddle's numbers: losses, measures, decoded words.

On one place, and on two replicas on Ray.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

import rowlock
import rowlock.fluid as fluid
from tests.conftest import lasting, one_in

ROOT = Path(__file__).parents[2]
RECORD: dict[str, list[float]] = json.loads(
    (ROOT / "tests" / "reference" / "sequence_programs.json").read_text()
)


def numbers_of(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[float]:
    """Run a program in ``examples/programs`` under the alias; return what numbers it prints."""
    from rowlock import alias

    name, *arguments = command.split()
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    alias.install()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    before = set(sys.modules)
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        runpy.run_path(str(ROOT / "examples" / "programs" / f"{name}.py"), run_name="__main__")
    for module in set(sys.modules) - before:
        if module.split(".")[0] == "paddle":
            monkeypatch.delitem(sys.modules, module)
    return [float(text) for text in re.findall(r"-?\d+\.?\d*", capsys.readouterr().out)]


ALONE = [c for c in RECORD if "--places" not in c]


@pytest.mark.parametrize("command", ALONE)
def test_one_place_prints_paddles_numbers(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with rowlock.cluster(launcher="threads"):
        numbers = numbers_of(command, monkeypatch, capsys)
    assert numbers == pytest.approx(RECORD[command], abs=1e-4)


@pytest.mark.cpu  # places=[place] * 2: a GPU holds one replica
@pytest.mark.parametrize("command", one_in(2, [c for c in RECORD if "--places 2" in c]))
def test_two_replicas_print_paddles_numbers(
    command: str,
    ray_cluster: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    with lasting("ray"):
        numbers = numbers_of(command, monkeypatch, capsys)
    assert numbers == pytest.approx(RECORD[command], abs=1e-4)
