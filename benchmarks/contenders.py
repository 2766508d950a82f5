"""Long-lived processes that train a model when told, so that rounds of several can take turns."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

WORKERS = Path(__file__).parent / "workers"
RESULTS = Path(__file__).parent / "results"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAY_worker_niceness": "0",  # or whatever else runs here goes first
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


@dataclass
class Contender:
    """A process that speaks the language of ``workers/serve.py``."""

    name: str
    command: list
    process: subprocess.Popen = None
    about: dict = field(default_factory=dict)
    quiet: bool = True
    limit: float = 0.0  # seconds for an answer, behind which the process is killed; 0: any
    failure: str = ""  # why it did not start
    errors: object = None  # a file of what it prints to stderr, where that is not shown

    def start(self):
        """Start the process; return False, with a line, if it cannot run here."""
        self.failure = ""
        if shutil.which(self.command[0]) is None:
            self.failure = "there is no {}".format(self.command[0])
            print("{}: left out, {}".format(self.name, self.failure))
            return False
        self.errors = tempfile.TemporaryFile() if self.quiet else None  # noqa: SIM115
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        try:
            self.about = self.ask(do="about")["about"]
        except RuntimeError as error:
            self.failure = str(error)
            print("{}: left out, {}".format(self.name, error))
            return False
        return True

    def ask(self, **order):
        """Send a command and return the answer.

        Raises:
            RuntimeError: the process failed, is gone, or took longer than its limit.
        """
        before = 0 if order.get("do") == "about" else self._printed()
        watchdog = threading.Timer(self.limit, self.process.kill) if self.limit else None
        if watchdog is not None:
            watchdog.start()
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            if watchdog is not None:
                watchdog.cancel()
        if not line:
            raise RuntimeError(
                "its process ended ({}){}".format(self.process.wait(), self._said(before))
            )
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _printed(self):
        """Return how many bytes the process has printed to stderr."""
        return 0 if self.errors is None else os.fstat(self.errors.fileno()).st_size

    def _said(self, before):
        """Return the last line that it printed behind so many bytes, after a colon; "" if there is none."""
        first = max(before, self._printed() - 4096)
        # Not by seek: the process writes where this file stands.
        text = b"" if self.errors is None else os.pread(self.errors.fileno(), 4096, first)
        lines = [line.strip() for line in text.decode(errors="replace").split("\n")]
        return "".join(": " + line[-500:] for line in [line for line in lines if line][-1:])

    def processor_seconds(self):
        """Return what the process and its descendants have spent on processors so far."""
        parents, seconds = {}, {}
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:  # it ended
                continue
            number = int(entry.parent.name)
            parents[number], seconds[number] = int(fields[1]), sum(map(int, fields[11:15]))
        family = {self.process.pid}
        while more := {n for n, parent in parents.items() if parent in family} - family:
            family |= more
        return sum(seconds[n] for n in family if n in seconds) / os.sysconf("SC_CLK_TCK")

    def close(self):
        """End the process."""
        if self.process is not None and self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        if self.errors is not None:
            self.errors.close()


def rowlock(name, switches=None):
    """Return Rowlock with these switches."""
    script = str(WORKERS / "fluid_steps.py")
    return Contender(name, [sys.executable, script, "rowlock.fluid", json.dumps(switches or {})])


def rivals(torch="", jax="", paddle=""):
    """Return the contenders whose interpreters were given."""
    contenders = []
    if torch:
        script = str(WORKERS / "torch_steps.py")
        contenders.append(Contender("torch DDP", [torch, script]))
        contenders.append(Contender("torch DDP compiled", [torch, script, "compiled"]))
    if jax:
        contenders.append(Contender("JAX", [jax, str(WORKERS / "jax_steps.py")]))
    if paddle:
        script = str(WORKERS / "fluid_steps.py")
        contenders.append(Contender("Paddle 1.8.5", [paddle, script, "paddle.fluid"]))
    return contenders


def machine():
    """Return what the numbers depend on: processor, its vector units, cores, kernel."""
    about = {"kernel": " ".join(os.uname()[:3:2]), "cores": len(os.sched_getaffinity(0))}
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return about
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    processor = {key.strip(): value.strip() for key, value in lines.items()}
    flags = processor.get("flags", "").split()
    wide = [flag for flag in flags if flag.startswith(("avx", "amx", "fma", "sse4"))]
    load = os.getloadavg()[0]
    return {**about, "cpu": processor.get("model name", "?"), "flags": wide, "load before": load}


def keep(name, now, about, figures, text):
    """Write figures, and what they depend on, to a pair of files of this name and date; return a line on it."""
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / "{}_{}".format(name, now.strftime("%Y-%m-%d_%H%M%S"))
    about = {"when": now.isoformat(timespec="seconds"), "machine": machine(), **about}
    stem.with_suffix(".json").write_text(json.dumps({**about, **figures}, indent=1) + "\n")
    head = json.dumps(about, indent=1)
    stem.with_suffix(".txt").write_text("{}\n\n{}\n".format(head, text))
    return "kept as {}.json and .txt".format(stem)
