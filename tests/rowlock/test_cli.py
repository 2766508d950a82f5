"""The ``rowlock`` command checks what it is given."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock import cli
from rowlock.executor.device import place
from rowlock.executor.driver import values as values_module
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import InvalidArgument, ResourceExhausted
from tests.programs import own_programs


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--epochs", "0"], "--epochs: a whole number from 1 on is needed, got '0'"),
        (["demo", "--replicas", "-2"], "--replicas: a whole number"),
        (["demo", "--batch", "1"], "--batch must be at least --replicas (2)"),
        (["demo", "--batch", "5000"], "at most 1437 images"),
        (["demo", "--out", __file__], f"--out {__file__}: no folder can be made there"),
        (["ops", "relu", "tanh"], "unrecognized arguments: tanh"),
        (["ops", "--what"], "unrecognized arguments: --what"),
        (["ops", "--json"], "--json needs --table"),
        ([], "required: command"),
    ],
)
def test_arguments_are_checked(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a command prints."""
    capsys.readouterr()
    assert cli.main(arguments) == 0
    return capsys.readouterr().out


def test_the_table_has_a_mark_for_every_op_and_back_end(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "ops", "--table").splitlines()
    assert max(map(len, lines)) <= 80
    marks = {line.split()[0]: line.split()[1:] for line in lines[2 : lines.index("")]}
    assert marks.keys() == OPS.keys()
    assert all(set(row) <= set("KEF-.") and len(row) == 8 for row in marks.values())
    assert marks["conv2d"][0] == "K" and marks["adam"][0] == "E"


def test_the_table_as_data_says_why_a_cell_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    page = json.loads(printed(capsys, "ops", "--table", "--json"))
    assert page["ops"].keys() == OPS.keys() and "numpy" in page["back_ends"]
    for cells in page["ops"].values():
        for cell in cells.values():
            assert cell["why"] if cell["mark"] in ".-" else cell["where"]
    assert page["ops"]["relu"]["cudnn"]["why"] == "no kernel: cuda computes its expression"
    assert page["ops"]["py_func"]["cuda"]["why"] == "no kernel: it runs on the host beside each GPU"


@pytest.mark.parametrize("name", ["conv2d", "rmsprop", "relu"])
def test_an_op_is_shown_with_its_reasons(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "ops", name)
    assert f"{name}(" in text and "shape rule: " in text and " cublaslt: " in text
    (row,) = printed(capsys, "ops", name, "--table").splitlines()[2:3]
    assert row.split()[0] == name


def test_output_that_is_not_read_to_its_end() -> None:
    command = "from rowlock.cli import main; main(['ops', '--table'])"
    ran = subprocess.run(
        ["sh", "-c", f'{sys.executable} -c "{command}" | head -1'],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout.startswith("op ") and not ran.stderr


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"rowlock {version('rowlock')}\n"


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(rowlock.__file__).parent / "py.typed").exists()


@pytest.mark.cpu
def test_a_gpu_that_is_not_there_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "gpu_count", lambda: 0)
    for ask in (lambda: fluid.CUDAPlace(0), fluid.cuda_places):
        with pytest.raises(InvalidArgument, match=r"there is no GPU here. Use cpu_places\(\)"):
            ask()


def test_a_startup_program_too_large_for_the_host_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with own_programs() as (_main, startup):
        fluid.layers.fc(fluid.data("x", [None, 1000]), 1000)
    monkeypatch.setattr(values_module, "available_memory", lambda: 1 << 20)
    with (
        fluid.scope_guard(fluid.Scope()),
        pytest.raises(ResourceExhausted, match=r"persistables 4,004,000.*this host has 1,048,576"),
    ):
        fluid.Executor(fluid.CPUPlace()).run(startup)
