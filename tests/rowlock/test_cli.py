"""The ``rowlock`` command checks what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock import cli
from rowlock.executor import executor as executor_module
from rowlock.executor.device import place
from rowlock.strategies.errors import InvalidArgument, ResourceExhausted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--epochs", "0"], "--epochs: a whole number from 1 on is needed, got '0'"),
        (["demo", "--replicas", "-2"], "--replicas: a whole number"),
        (["demo", "--batch", "1"], "--batch must be at least --replicas (2)"),
        (["demo", "--batch", "5000"], "at most 1437 images"),
        (["ops", "relu", "tanh"], "unrecognized arguments: tanh"),
        (["ops", "--what"], "unrecognized arguments: --what"),
        ([], "required: command"),
    ],
)
def test_arguments_are_checked(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"rowlock {rowlock.__version__}\n"


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
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fluid.layers.fc(fluid.data("x", [None, 1000]), 1000)
    monkeypatch.setattr(executor_module, "available_memory", lambda: 1 << 20)
    with (
        fluid.scope_guard(fluid.Scope()),
        pytest.raises(ResourceExhausted, match=r"persistables 4,004,000.*this host has 1,048,576"),
    ):
        fluid.Executor(fluid.CPUPlace()).run(startup)
