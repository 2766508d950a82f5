"""A file of results, one a line as JSON, to which much is appended: what is written stays.

As a pytest plugin (``-p tests.gpu.results``) this appends what came of each test, as soon as it is known, to
the file that the environment names; a test that begins and does not end is the one that hung.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FILE, PART = "ROWLOCK_RESULTS", "ROWLOCK_RESULTS_PART"


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
    """Return what was appended; a last line that was cut off is left out."""
    whole = Path(path).read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def unfinished(lines: Iterable[dict[str, Any]]) -> list[str]:
    """Return the tests that began and did not end."""
    tests: dict[str, str] = {}
    for line in lines:
        if "test" in line:
            tests[line["test"]] = line["outcome"]
    return [test for test, outcome in tests.items() if outcome == "began"]


def counted(lines: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return how many tests ended how."""
    outcomes = Counter(line["outcome"] for line in lines if "test" in line)
    return {outcome: outcomes[outcome] for outcome in ("passed", "failed", "skipped")}


def _tell(**entry: Any) -> None:
    append(os.environ[FILE], part=os.environ[PART], **entry)


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins."""
    _tell(test=nodeid, outcome="began")


def pytest_runtest_logreport(report: Any) -> None:
    """A test ended, or did not pass before or behind its own call."""
    if report.when == "call" or not report.passed:
        why = {} if report.passed else {"why": str(report.longrepr)[-2000:]}
        recorded = {"recorded": dict(report.user_properties)} if report.user_properties else {}
        seconds = round(report.duration, 4)
        _tell(test=report.nodeid, outcome=report.outcome, seconds=seconds, **why, **recorded)


def pytest_collectreport(report: Any) -> None:
    """A file could not be read."""
    if report.failed:
        _tell(file=report.nodeid, outcome="failed", why=str(report.longrepr)[-2000:])
