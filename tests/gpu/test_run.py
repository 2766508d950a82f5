"""What ``make test-gpu`` says and does where there is no GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rowlock.executor.device import gpus
from tests.gpu import run
from tests.gpu.run import LEFT_BEHIND, ROOT, Part, limited, main, parts


def test_without_a_gpu_one_sentence_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(gpus.COUNT, raising=False)
    monkeypatch.setattr(gpus, "_visible", lambda: (0, "there is no GPU that this process can use."))
    assert main() == 1
    said = "make test-gpu needs a GPU, and tested nothing: there is no GPU that this process can use.\n"
    assert capsys.readouterr().out == said


def test_simulated_gpus_are_not_taken_for_real_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(gpus.COUNT, "2")
    assert main() == 1
    assert gpus.COUNT in capsys.readouterr().out


def test_every_part_has_files() -> None:
    for part in parts():
        for pattern in part.files:
            assert list(ROOT.glob(pattern)), pattern


def test_a_part_counts_and_keeps_what_tests_recorded(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(
        "import pytest\n"
        "def test_one(record_property): record_property('rate', 7)\n"
        "def test_two(): assert 0\n"
        "@pytest.mark.skip\ndef test_three(): pass\n"
    )
    part = Part("three", [str(tmp_path / "test_three.py")])
    part.run()
    assert part.status == 1
    assert part.counts == {"passed": 1, "failed": 1, "skipped": 1}
    assert part.measured == {"rate": "7"}
    assert "1 passed, 1 failed, 1 skipped" in str(part) and "ended with 1" in str(part)


class Stuck(subprocess.Popen[bytes]):
    """A process that does not end although it is killed, as one within a driver."""

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None
        raise subprocess.TimeoutExpired("stuck", timeout)


def test_what_cannot_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", Stuck)
    assert limited(["sleep", "60"], {}, 0.1, None) == LEFT_BEHIND


@pytest.mark.parametrize(
    ("command", "limit", "status"),
    [
        *(("exit 3", 0, 3), ("exit 3", 60, 3), ("sleep 60 & wait", 0.2, -9)),
        *(("kill -ABRT $$", 60, -6), ("kill -INT $$", 60, -2), ("kill -KILL $$", 60, -9)),
    ],
)
def test_a_command_ends_as_by_itself_or_at_its_limit(
    command: str, limit: float, status: int
) -> None:
    assert limited(["sh", "-c", command], dict(os.environ), limit, None) == status


@pytest.mark.parametrize("text", ["", "<testsuites><testsuite tests='3'"])
def test_half_a_report_is_not_read(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(command: Sequence[str], *_others: object) -> int:
        report = next(one for one in command if one.startswith("--junitxml="))
        Path(report.partition("=")[2]).write_text(text)
        return -9

    monkeypatch.setattr(run, "limited", killed)
    part = Part("one", ["tests/gpu/test_run.py"])
    part.run()
    assert (part.status, part.counts) == (-9, {})
