"""A file of results, one a line as JSON, to which much is appended: what is written stays.

As a pytest plugin (``-p tests.gpu.results``) this appends what came of each test, as soon as it is known, to
the file that the environment names; a test that begins and does not end is the one that hung. Where the process
died in the midst of a part, a second one goes on behind that test. A GPU on which a kernel went astray refuses
all that comes later, so a process whose GPU is lost ends, and leaves the rest to another. So does one that a
test keeps longer than ``HANG_S`` says: what waits within a library for a GPU cannot be interrupted.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FILE, PART = "ROWLOCK_RESULTS", "ROWLOCK_RESULTS_PART"
REAL = "ROWLOCK_TEST_REAL_GPU"  # in the environment: no GPU is simulated in the place of a real one
NO_GPU = 96  # what a process ends with that finds no GPU
LOST = 97  # what a process ends with whose GPU is lost
# What CUDA says where a GPU never opened, as of a driver that is too old: another process fares no better.
UNOPENED = {*range(200), 802, 803, 804}
HANG_S = "ROWLOCK_TEST_HANG_S"  # in the environment: seconds that a test may take
_MOST_S = 60.0  # without it
_failed: set[str] = set()
_stderr = -1  # which tests do not capture


def append(path: str | Path, **entry: Any) -> None:
    """Append one entry, and the time; processes side by side do not mix their lines."""
    entry = {"time": round(time.time(), 3), **entry}
    line = json.dumps(entry, default=str) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, line.encode())
        os.fsync(file)
    finally:
        os.close(file)


def entries(path: str | Path) -> list[dict[str, Any]]:
    """Return what was appended; lines that were cut off, as on a full disk, are left out."""
    read = []
    for line in Path(path).read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            read.append(json.loads(line))
    return read


def of_part(lines: Iterable[dict[str, Any]], part: str) -> list[dict[str, Any]]:
    """Return what was told since a part began, the last time; nothing if it never did."""
    since: list[dict[str, Any]] = []
    began = False
    for line in lines:
        if line.get("part") != part:
            continue
        if "began" in line:
            since, began = [], True
        elif began:
            since.append(line)
    return since


def unfinished(lines: Iterable[dict[str, Any]]) -> list[str]:
    """Return the tests that began and did not end."""
    tests: dict[str, str] = {}
    for line in lines:
        if "test" in line:
            tests[line["test"]] = line["outcome"]
    return [test for test, outcome in tests.items() if outcome == "began"]


def counted(lines: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return how many tests ended how; a file that could not be read failed."""
    outcomes = Counter(line["outcome"] for line in lines if "outcome" in line)
    return {outcome: outcomes[outcome] for outcome in ("passed", "failed", "skipped")}


def _tell(**entry: Any) -> None:
    append(os.environ[FILE], part=os.environ[PART], **entry)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out what another process of this part has told about."""
    file = Path(os.environ[FILE])
    lines = of_part(entries(file), os.environ[PART]) if file.exists() else []
    before = {line["test"] for line in lines if "test" in line}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in before])
    items[:] = [item for item in items if item.nodeid not in before]


def pytest_configure(config: Any) -> None:
    """Tests are about to be read: nothing is captured yet."""
    global _stderr
    _stderr = os.dup(sys.stderr.fileno())


def pytest_runtest_logfinish(nodeid: str) -> None:
    """A test is over, its clean-up too."""
    faulthandler.cancel_dump_traceback_later()
    if nodeid in _failed and os.environ.get(REAL) and "cupy" in sys.modules:
        _failed.clear()
        cuda = sys.modules["cupy"].cuda.runtime
        try:
            cuda.deviceSynchronize()
        except cuda.CUDARuntimeError as error:
            if error.status not in UNOPENED:
                _tell(lost=str(error), behind=nodeid)
                os._exit(LOST)


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins."""
    _tell(test=nodeid, outcome="began")
    seconds = float(os.environ.get(HANG_S, _MOST_S))
    faulthandler.dump_traceback_later(seconds, exit=True, file=_stderr)


def pytest_runtest_logreport(report: Any) -> None:
    """A test ended, or did not pass before or behind its own call."""
    if report.failed:
        _failed.add(report.nodeid)
    if report.when == "call" or not report.passed:
        why = {} if report.passed else {"why": str(report.longrepr)[-2000:]}
        recorded = {"recorded": dict(report.user_properties)} if report.user_properties else {}
        seconds = round(report.duration, 4)
        _tell(test=report.nodeid, outcome=report.outcome, seconds=seconds, **why, **recorded)


def pytest_collectreport(report: Any) -> None:
    """A file could not be read."""
    if report.failed:
        _tell(file=report.nodeid, outcome="failed", why=str(report.longrepr)[-2000:])
