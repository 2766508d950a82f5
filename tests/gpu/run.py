"""Everything that needs a GPU, in turn, and what was run on which GPU with which libraries.

    make test-gpu

Each part is a pytest of its own, so that one that ends badly leaves the others. The last table is also written
to ``runs/test_gpu.json``, with what tests measured.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from rowlock.executor.cuda.runtime import Runtime
from rowlock.executor.device import gpus
from rowlock.strategies.errors import Unsupported

ROOT = Path(__file__).parents[2]
KERNELS = ("tests/ops/test_cuda_*.py", "tests/ops/test_cublaslt*.py", "tests/ops/test_cudnn*.py")
PLANS = ("tests/gpu", "tests/executor/test_*gpu*.py", "tests/executor/test_cuda*.py")
NCCL = ("tests/cluster/test_*nccl*.py",)
CONTRACT = ("tests/contract",)
ON_GPUS = {"ROWLOCK_TEST_DEVICE": "gpu"}
CHECKERS = ("memcheck", "racecheck")
MISSED = 99  # what compute-sanitizer ends with if it found something


@dataclass
class Part:
    """Some tests, and what came of them."""

    name: str
    files: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()  # a command that runs pytest
    options: Sequence[str] = ()
    told: dict[str, int] = field(default_factory=dict)
    measured: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    status: int = 0

    def run(self) -> None:
        """Run them, and keep counts and what tests recorded."""
        found = sorted(path for pattern in self.files for path in glob.glob(pattern, root_dir=ROOT))
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            command = [*self.before, sys.executable, "-m", "pytest", "-q", f"--junitxml={report}"]
            command += ["-p", "no:cacheprovider", *self.options, *found]
            environment = {**os.environ, **self.environment}
            self.status = subprocess.run(command, cwd=ROOT, env=environment).returncode
            if report.exists():
                self._read(ElementTree.parse(report).getroot())
        self.seconds = time.monotonic() - began

    def _read(self, root: ElementTree.Element) -> None:
        suite = root if root.tag == "testsuite" else root[0]
        counts = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
        self.told = {
            "passed": counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"],
            "failed": counts["failures"] + counts["errors"],
            "skipped": counts["skipped"],
        }
        for found in suite.iter("property"):
            self.measured[found.get("name", "")] = found.get("value", "")

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {what}" for what, n in self.told.items() if n) or "nothing ran"
        ended = "" if self.status == 0 else f" (ended with {self.status})"
        return f"{self.name:28} {counts}, {self.seconds:.0f} s{ended}"


def parts() -> list[Part]:
    """Return what is run; compute-sanitizer, if it is installed, watches the kernels once more."""
    found = [
        Part("kernels of every back end", KERNELS),
        Part("runtime, graphs, memory", PLANS),
        Part("NCCL", NCCL),
        Part("contract on GPUs", CONTRACT, ON_GPUS),
    ]
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is not None:
        options = ("-p", "tests.gpu.no_pool", "--timeout=1800")
        for tool in CHECKERS:
            before = (sanitizer, "--tool", tool, "--error-exitcode", str(MISSED))
            name = f"compute-sanitizer {tool}"
            found.append(Part(name, KERNELS[:1], before=before, options=options))
    return found


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
    done = parts()
    for part in done:
        print(f"\n--- {part.name}", flush=True)
        part.run()
    print("\nwhat was run")
    for name, value in described.items():
        print(f"  {name:14} {value}")
    for part in done:
        print(f"  {part}")
        for name, value in part.measured.items():
            print(f"      {name}: {value}")
    folder = ROOT / "runs"
    folder.mkdir(exist_ok=True)
    data = {"about": described, "parts": [asdict(part) for part in done]}
    (folder / "test_gpu.json").write_text(json.dumps(data, indent=1, default=str) + "\n")
    return int(any(part.status for part in done))


if __name__ == "__main__":
    sys.exit(main())
