"""Everything that needs a GPU, in turn, and what was run on which GPU with which libraries.

    make test-gpu

Each part is a pytest of its own, so that one that ends badly leaves the others. The last table is also written
to ``runs/test_gpu.json``, with what tests measured, behind each part. Where nothing can be installed,
``python -m tests.gpu.run`` uses what an interpreter has.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from rowlock.executor.cuda.runtime import Runtime
from rowlock.executor.device import gpus
from rowlock.strategies.errors import Unsupported
from tests.gpu.results import REAL

ROOT = Path(__file__).parents[2]
GUARD = Path(__file__).with_name("guard.py")
KERNELS = ("tests/ops/test_cuda_*.py", "tests/ops/test_cublaslt*.py", "tests/ops/test_cudnn*.py")
PLANS = (
    "tests/gpu",
    *("tests/executor/test_*gpu*.py", "tests/executor/test_cu*.py", "tests/executor/test_page*.py"),
)
NCCL = ("tests/cluster/test_*nccl*.py",)
CONTRACT = ("tests/contract",)
ON_GPUS = {"ROWLOCK_TEST_DEVICE": "gpu"}
CHECKERS = ("memcheck", "racecheck")
# jax computes on the host here; it would take three quarters of the GPU's memory before
ON_HOST = {"JAX_PLATFORMS": "cpu"}
LEFT_BEHIND = 98  # what :func:`limited` returns of a process that cannot be killed
GRACE_S = 5.0  # that one which was killed may take to end
MISSED = 99  # what compute-sanitizer ends with if it found something
_running: set[int] = set()  # process groups


@dataclass
class Part:
    """Some tests, and what came of them."""

    name: str
    files: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()  # a command that runs pytest
    options: Sequence[str] = ()
    counts: dict[str, int] = field(default_factory=dict)
    measured: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    status: int = 0
    module: str = ""  # run in place of tests
    limit: float = 0.0  # seconds that it may take; 0: as many as it needs

    def run(self, log: IO[bytes] | None = None) -> None:
        """Run them, and keep counts and what tests recorded; their output goes to ``log``, if there is one."""
        paths = sorted(path for pattern in self.files for path in glob.glob(pattern, root_dir=ROOT))
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            command = [*self.before, sys.executable, "-m", "pytest", "-q", f"--junitxml={report}"]
            # CuPy warns in our name: most of it has no frames of Python.
            command += ["-p", "no:cacheprovider", "-W", "default", *self.options, *paths]
            environment = {**ON_HOST, **os.environ, **self.environment}
            if self.module:
                command = [sys.executable, "-m", self.module]
            self.status = limited(command, environment, self.limit, log)
            # One that was killed may have written half a report.
            with contextlib.suppress(OSError, ElementTree.ParseError):
                self._read(ElementTree.parse(report).getroot())
        self.seconds = time.monotonic() - began

    def _read(self, root: ElementTree.Element) -> None:
        suite = root if root.tag == "testsuite" else root[0]
        counts = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
        self.counts = {
            "passed": counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"],
            "failed": counts["failures"] + counts["errors"],
            "skipped": counts["skipped"],
        }
        for entry in suite.iter("property"):
            self.measured[entry.get("name", "")] = entry.get("value", "")

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {what}" for what, n in self.counts.items() if n) or "nothing ran"
        ended = "" if self.status == 0 else f" (ended with {self.status})"
        return f"{self.name:28} {counts}, {self.seconds:.0f} s{ended}"


def limited(
    command: Sequence[str], environment: Mapping[str, str], limit: float, log: IO[bytes] | None
) -> int:
    """Run a command and return its status; one that takes longer than its limit is killed with its children.

    So is one whose starter, this process, ends. What does not end although it was killed, as may be within a
    GPU's driver, is left behind, with the status :data:`LEFT_BEHIND`.
    """
    command = [sys.executable, "-I", "-S", str(GUARD), f"{limit:.3f}", *command]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # closes when this process ends
        stdout=log,
        stderr=log,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    _running.add(process.pid)
    status = LEFT_BEHIND
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(limit + GRACE_S if limit else None)
    finally:  # an interrupt ends it, too
        _kill(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        _running.discard(process.pid)
        if process.stdin is not None:
            process.stdin.close()
    return status


def kill_all() -> None:
    """Kill what runs on other threads of this process."""
    for group in tuple(_running):
        _kill(group)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def parts() -> list[Part]:
    """Return what is run; compute-sanitizer, if it is installed, watches the kernels once more."""
    parts = [
        Part("kernels of every back end", KERNELS),
        Part("runtime, graphs, memory", PLANS),
        Part("NCCL", NCCL),
        Part("contract on GPUs", CONTRACT, ON_GPUS),
    ]
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is not None:
        options = ("-p", "tests.gpu.no_pool", "-o", "timeout=1800")  # its plugin may be missing
        for tool in CHECKERS:
            before = (sanitizer, "--tool", tool, "--error-exitcode", str(MISSED))
            name = f"compute-sanitizer {tool}"
            parts.append(Part(name, KERNELS[:1], before=before, options=options))
    return parts


def about(runtime: Runtime) -> dict[str, str]:
    """Return what the GPU is, and the versions of what computes on it."""
    properties = runtime.properties
    gigabytes = properties.memory / 1e9
    major, minor = properties.capability
    driver = runtime.xp.cuda.runtime.driverGetVersion()
    return {
        "GPU": f"{properties.name}, {gigabytes:.0f} GB, compute capability {major}.{minor}",
        "driver's CUDA": f"{driver // 1000}.{driver % 1000 // 10}",
        **runtime.versions(),
    }


def main() -> int:
    """Run all parts; return 0 if nothing failed."""
    if gpus.simulated_gpus():
        print(f"make test-gpu tests a real GPU: take {gpus.COUNT} out of the environment.")
        return 1
    try:
        described = about(gpus.open_gpu(0))
    except Unsupported as error:
        print(f"make test-gpu needs a GPU, and tested nothing: {error}")
        return 1
    os.environ[REAL] = "1"
    done: list[Part] = []
    folder = ROOT / "runs"
    folder.mkdir(exist_ok=True)
    for part in parts():
        print(f"\n--- {part.name}", flush=True)
        part.run()
        done.append(part)
        data = {"about": described, "parts": [asdict(part) for part in done]}
        (folder / "test_gpu.json").write_text(json.dumps(data, indent=1, default=str) + "\n")
    print("\nwhat was run")
    for name, value in described.items():
        print(f"  {name:14} {value}")
    for part in done:
        print(f"  {part}")
        for name, value in part.measured.items():
            print(f"      {name}: {value}")
    return int(any(part.status for part in done))


if __name__ == "__main__":
    sys.exit(main())
