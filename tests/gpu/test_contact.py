"""First contact where there is no GPU: parts that hang or die, and a run that is killed, lose nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tarfile
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from rowlock.executor.device import gpus
from rowlock.strategies.errors import Unsupported
from tests.conftest import eventually
from tests.gpu import about, contact, run
from tests.gpu.contact import Contact, Stage, caches_beside, main, stages
from tests.gpu.results import HANG_S, NO_GPU, REAL, append, entries
from tests.gpu.run import ROOT
from tests.ops import gpu as tests_gpu

PASSES = "def test_passes(record_property): record_property('rate', 7)\n"
HANGS = "import threading\ndef test_hangs(): threading.Event().wait()\n"
DIES = "import os\ndef test_dies(): os.kill(os.getpid(), 9)\n"
LOSES = """
class CUDARuntimeError(RuntimeError):
    status = 700
class Runtime:
    CUDARuntimeError = CUDARuntimeError
    def deviceSynchronize(self): raise CUDARuntimeError('an illegal address')
def test_loses(monkeypatch):
    import sys, types
    cuda = types.SimpleNamespace(runtime=Runtime())
    sys.modules["cupy"] = types.SimpleNamespace(cuda=cuda)
    assert 0
"""
LONG = 300  # seconds; longer than anything here takes


def stage(folder: Path, name: str, text: str, seconds: float = LONG) -> Stage:
    path = folder / f"test_{name}.py"
    path.write_text(text)
    return Stage(name, [str(path)], seconds)


def ended(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {line["part"]: line for line in lines if "ended" in line}


@pytest.mark.slow
def test_a_part_that_hangs_or_dies_leaves_what_it_told_and_the_next_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests behind one in which a process dies are run, and so are those behind one that loses the GPU."""
    monkeypatch.setenv(REAL, "1")
    results = tmp_path / "contact.jsonl"
    script = Contact(results, LONG, tmp_path / "caches")
    (tmp_path / "caches" / "tuned").write_text("kept")
    hangs = stage(tmp_path, "hangs", PASSES + HANGS, seconds=20)
    dies = stage(
        tmp_path,
        "dies",
        PASSES + DIES + "def test_behind(): pass\n" + LOSES + DIES.replace("_d", "_l"),
    )
    script.run([hangs, dies, stage(tmp_path, "last", PASSES)])
    lines = entries(results)
    parts = ended(lines)
    assert list(parts) == ["hangs", "dies", "last"]
    assert parts["hangs"]["over_its_limit"] and not parts["dies"]["over_its_limit"]
    hung, died = (
        [test.rpartition("::")[2] for test in parts[part]["unfinished"]]
        for part in ("hangs", "dies")
    )
    assert hung == ["test_hangs"] and died == ["test_dies", "test_lies"]
    assert parts["dies"]["counts"] == {"passed": 2, "failed": 1, "skipped": 0}
    assert parts["dies"]["ended"] == -9
    assert [line["lost"] for line in lines if "lost" in line] == ["an illegal address"]
    assert parts["last"]["ended"] == 0 and parts["last"]["counts"]["passed"] == 1
    passed = [(line["part"], line["outcome"]) for line in lines if "recorded" in line]
    assert passed == [(part, "passed") for part in ("hangs", "dies", "last")]
    assert script.failed == 2
    with tarfile.open(caches_beside(results)) as packed:
        assert packed.getnames() == ["tuned"]


@pytest.mark.slow
def test_a_test_that_hangs_costs_its_own_seconds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits in a library cannot be interrupted: the process ends, and another goes on behind the test."""
    monkeypatch.setenv(HANG_S, "0.5")
    results = tmp_path / "contact.jsonl"
    script = Contact(results, LONG, tmp_path / "caches")
    waits = "import time\ndef test_hangs(): time.sleep(600)\n"
    script.run(
        [stage(tmp_path, "hangs", PASSES + waits + PASSES.replace("passes", "passes_again"))]
    )
    (part,) = ended(entries(results)).values()
    assert part["counts"] == {"passed": 2, "failed": 0, "skipped": 0} and part["ended"]
    assert [test.rpartition("::")[2] for test in part["unfinished"]] == ["test_hangs"]
    assert not part["over_its_limit"]
    assert "in test_hangs" in results.with_suffix(".log").read_text()


def test_what_was_tuned_is_packed_before_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact, "_PACKED_BYTES", 100_000)
    script = Contact(tmp_path / "contact.jsonl", 0, tmp_path / "caches")
    for name, nbytes in (("a_code", 200_000), ("b_code", 2_000), ("tuned", 100)):
        (tmp_path / "caches" / name).write_bytes(os.urandom(nbytes))
    script._pack()
    with tarfile.open(caches_beside(script.results)) as packed:
        assert packed.getnames() == ["tuned", "b_code"]


RUN = """
import sys
from pathlib import Path
from tests.gpu.contact import Contact, Stage
folder = Path(sys.argv[1])
files = [[str(folder / f"test_{name}.py")] for name in ("first", "second")]
script = Contact(folder / "contact.jsonl", 300, folder / "caches")
script.run([Stage(str(i), one, 300) for i, one in enumerate(files)])
"""


@pytest.mark.kills
@pytest.mark.slow
@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_has_written_what_came_before(tmp_path: Path, ends: int) -> None:
    """What it runs ends with it, so that another run finds the GPU free."""
    stage(tmp_path, "first", PASSES)
    stage(tmp_path, "second", PASSES + f"import os\ndef test_told(): open({str(tmp_path / 'pid')!r}, 'w')"
                              f".write(str(os.getpid()))\n" + HANGS)  # fmt: skip
    environment = {**os.environ, HANG_S: str(LONG)}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)], cwd=ROOT, env=environment
    )
    results, pid = tmp_path / "contact.jsonl", tmp_path / "pid"

    def hangs() -> bool:
        return results.exists() and any(
            "hangs" in line.get("test", "") for line in entries(results)
        )

    try:
        assert eventually(hangs, LONG)
        process.send_signal(ends)
        process.wait(LONG)
        assert eventually(lambda: not Path(f"/proc/{pid.read_text()}").exists(), LONG / 5)
    finally:
        process.kill()
        process.wait()
        if pid.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)
    lines = entries(results)
    assert list(ended(lines)) == ["0", "1"][: 1 if ends == signal.SIGKILL else 2]
    assert [line["outcome"] for line in lines if "told" in line.get("test", "")] == [
        "began",
        "passed",
    ]


UNOPENED = LOSES.replace("status = 700", "status = 35") + "def test_behind(): pass\n"


def test_where_no_gpu_opens_little_time_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process tells that; tests that run all the same do not begin another behind each that fails."""
    monkeypatch.setenv(REAL, "1")
    monkeypatch.delenv(gpus.COUNT, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    results = tmp_path / "contact.jsonl"
    script = Contact(results, LONG, tmp_path / "caches")
    tests = stage(tmp_path, "unopened", UNOPENED)
    script.run([tests, Stage("versions", (), LONG, module="tests.gpu.about"), tests])
    lines = entries(results)
    assert not any("lost" in line for line in lines)
    first, versions = ended(lines).values()
    assert first["counts"] == {"passed": 1, "failed": 1, "skipped": 0}
    assert versions["ended"] == NO_GPU and any(line.get("no_gpu") for line in lines)
    assert lines[-1]["left_out"] == "no GPU opens" and script.failed == 2


def test_what_no_time_is_left_for_is_said(tmp_path: Path) -> None:
    results = tmp_path / "contact.jsonl"
    Contact(results, 0, tmp_path / "caches").run([stage(tmp_path, "late", PASSES)])
    assert [line["left_out"] for line in entries(results)] == ["no time was left"]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"cudnn", "ray", "yaml"}
    monkeypatch.setattr(util, "find_spec", lambda name: None if name in absent else name)
    monkeypatch.setattr(about, "library", lambda name: None if name == "nccl" else name)
    assert about.missing().keys() == absent | {"libnccl"}


def test_some_files_of_a_stage_and_one_without_tests(tmp_path: Path) -> None:
    """A file whose tests are all left out by their marks has not failed."""
    results = tmp_path / "contact.jsonl"
    for name, text in (("none", "X = 1\n"), ("other", HANGS)):
        stage(tmp_path, name, text)
    both = Stage("both", [str(tmp_path / "test_*.py")], LONG, apart=True)
    script = Contact(results, LONG, tmp_path / "caches", ["*none*"])
    script.run([both])
    assert len(ended(entries(results))) == 1 and not script.failed


def test_half_a_line_is_not_read(tmp_path: Path) -> None:
    """Nor is one to which more was appended, when a disk had room again."""
    results = tmp_path / "contact.jsonl"
    append(results, part="one")
    with results.open("a") as file:
        file.write('{"part": "tw')
    assert [line["part"] for line in entries(results)] == ["one"]
    append(results, part="three")
    append(results, part="four")
    assert [line["part"] for line in entries(results)] == ["one", "four"]


def test_what_goes_wrong_around_a_part_leaves_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process can be started, and no archive be written."""
    refused = OSError("no room")

    def refuse(*_args: object, **_settings: object) -> None:
        raise refused

    results = tmp_path / "contact.jsonl"
    script = Contact(results, LONG, tmp_path / "caches")
    monkeypatch.setattr(run, "limited", refuse)
    monkeypatch.setattr(tarfile, "open", refuse)
    script.run([stage(tmp_path, name, PASSES) for name in ("first", "second")])
    lines = entries(results)
    assert list(ended(lines)) == ["first", "second"] and script.failed == 2
    assert [line["broke"] for line in lines if "broke" in line] == [repr(refused)] * 2
    assert [line["caches"] for line in lines if "caches" in line] == ["not packed: no room"] * 2


def test_a_real_gpu_is_not_replaced_by_a_simulated_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the GPU does not open, tests that need it fail: they would say that all is well."""
    monkeypatch.delenv(gpus.COUNT, raising=False)
    monkeypatch.setenv(REAL, "")
    monkeypatch.setattr(tests_gpu, "_machines", [])
    monkeypatch.setattr(gpus, "_visible", lambda: (0, "there is no GPU that this process can use."))
    monkeypatch.setattr(Contact, "run", lambda self, stages: None)
    main(["--results", str(tmp_path / "one.jsonl"), "--cache", str(tmp_path / "cache")])
    with pytest.raises(Unsupported, match="there is no GPU"):
        tests_gpu.gpu()


def test_every_stage_has_files() -> None:
    for one in stages(2):
        assert one.module or all(list(ROOT.glob(pattern)) for pattern in one.files)
        assert one.module or all(part.files for part in one.parts(100))
        assert all(part.limit <= 100 for part in one.parts(100))


@pytest.mark.slow
def test_versions_and_caches_of_a_run_before(tmp_path: Path) -> None:
    before = tmp_path / "before.tar.gz"
    (tmp_path / "tuned").write_text("kept")
    with tarfile.open(before, "w:gz") as archive:
        archive.add(tmp_path / "tuned", "tuned")
    results = tmp_path / "runs" / "contact.jsonl"
    options = [
        "--simulated",
        "--only",
        "versions",
        "--results",
        str(results),
        "--caches",
        str(before),
        "--cache",
        str(tmp_path / "cache"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWLOCK_SIMULATED_GPUS", "1")
        assert main(options) == 0
    lines = entries(results)
    assert lines[0]["doubt"] == ""
    assert any("python" in line for line in lines) and any("gpu" in line for line in lines)
    (missing,) = (line["missing"] for line in lines if "missing" in line)
    assert "numpy" not in missing and all(missing.values())
    assert lines[-1]["finished"] and not lines[-1]["failed"]
    assert (tmp_path / "cache" / "tuned").read_text() == "kept"
    files = {path.name for path in results.parent.iterdir()}
    assert files == {"contact.jsonl", "contact.log", "contact_caches.tar.gz"}
