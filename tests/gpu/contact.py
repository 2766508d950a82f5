"""The first minutes with a GPU: what tells most comes first, under a time limit, and nothing told is lost.

    python -m tests.gpu.contact --minutes 25

Needs no Ray (gangs are threads), no registry and no plugin of pytest. Everything is appended at once to
``runs/contact.jsonl``, what processes print to ``runs/contact.log``; what libraries were tuned to is packed
behind each stage as ``runs/contact_caches.tar.gz``, which ``--caches`` of a later run unpacks. ``--only`` and
``--files`` go on with some stages, or some of their files. ``--results`` puts these three files elsewhere, and
nothing beside them. ``--simulated`` tries the script on a simulated GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from rowlock.executor.device import gpus
from rowlock.executor.host.disk_cache import distrust
from tests.gpu import run
from tests.gpu.results import (
    FILE,
    LOST,
    NO_GPU,
    PART,
    REAL,
    append,
    counted,
    entries,
    of_part,
    unfinished,
)
from tests.gpu.run import Part

FOLDER = run.ROOT / "runs"
CACHE = "ROWLOCK_CACHE_DIR"
# Others must not be able to write there, nor in folders around it, as a copy of a repository may allow.
CACHE_FOLDER = Path(tempfile.gettempdir()) / f"rowlock-contact-{os.geteuid()}"
_NO_TESTS = 5  # what pytest ends with where all tests of a file are left to other marks
_NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # each process would import them all
_MOST_WORKERS = 12  # whose contexts share a GPU's memory
_PACKED_BYTES = 15 << 20  # of an archive: what it is taken along by may carry no more
OPTIONS = ("-p", "tests.gpu.results", "--continue-on-collection-errors", "--tb=short")


@dataclass
class Stage:
    """Parts that run so many at a time, each for at most ``seconds``."""

    name: str
    files: Sequence[str]
    seconds: float
    side_by_side: int = 1
    apart: bool = False  # a part for each file: one that hangs or dies leaves the others
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    module: str = ""  # run in place of tests

    def parts(self, left: float, chosen: Sequence[str] = ("*",)) -> list[Part]:
        """Return what is run, of files of ``chosen`` patterns, within the seconds that are left."""
        paths = [path for one in self.files for path in sorted(glob.glob(one, root_dir=run.ROOT))]
        paths = [path for path in paths if any(fnmatch(path, one) for one in chosen)]
        if not paths and not self.module:
            return []
        groups = [[path] for path in paths] if self.apart else [paths]
        limit = max(1.0, min(self.seconds, left))
        more = {"options": [*OPTIONS, *self.options], "limit": limit, "module": self.module}
        return [
            Part(f"{self.name}: {group[0]}" if self.apart else self.name, group,
                 self.environment, **more)
            for group in groups
        ]  # fmt: skip


def stages(workers: int) -> list[Stage]:
    """Return all stages, in the order in which they tell most."""
    quick = ("-m", "not slow and not ray")
    return [
        Stage("versions", (), 60, module="tests.gpu.about"),
        Stage("runtime", ("tests/executor/test_cupy_runtime.py", "tests/gpu/test_runtime.py"), 120),
        Stage("smoke", ("tests/gpu/test_smoke.py",), 240),
        Stage("smoke, kept plans", ("tests/gpu/test_smoke.py",), 120),
        Stage("plans", ("tests/gpu/test_plans.py",), 240),
        Stage("NCCL", ("tests/gpu/test_nccl.py", *run.NCCL), 180, options=quick),
        Stage("programs", ("tests/gpu/test_programs.py", *run.PLANS[1:]), 300, options=quick),
        Stage("kernels", run.KERNELS[::-1], 400, workers, apart=True, options=quick),
        Stage(
            "contract on threads",
            ("tests/contract/test_*.py",),
            300,
            workers,
            apart=True,
            environment=run.ON_GPUS,
            options=quick,
        ),
    ]


class Contact:
    """Runs stages until the time is over; ``results`` is appended to, and so is the log beside it."""

    def __init__(
        self, results: Path, seconds: float, cache: Path, files: Sequence[str] = ("*",)
    ) -> None:
        self.results, self.cache, self.files = results, cache, files
        self.until = time.monotonic() + seconds
        self.failed = 0
        self.none_left = "no time was left"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)

    def run(self, stages: Sequence[Stage]) -> None:
        """Run one after the other, and pack the caches behind each; where no GPU opens, none tells anything."""
        for stage in stages:
            left = self.until - time.monotonic()
            if left < 1:
                append(self.results, stage=stage.name, left_out=self.none_left)
                continue
            parts = stage.parts(left, self.files)
            with ThreadPoolExecutor(stage.side_by_side) as pool:
                try:
                    list(pool.map(self._part, parts))
                except BaseException:  # an interrupt does not reach the threads that wait
                    self.until = 0.0
                    run.kill_all()
                    raise
            if any(part.status == NO_GPU for part in parts):
                self.until, self.none_left = 0.0, "no GPU opens"
            self._pack()

    def _part(self, part: Part) -> None:
        left = self.until - time.monotonic()
        if left < 1:
            append(self.results, part=part.name, left_out=self.none_left)
            return
        part.limit = limit = min(part.limit, left)
        append(self.results, part=part.name, began=True, limit=limit)
        part.environment = {
            **_NO_PLUGINS, **part.environment, FILE: str(self.results), PART: part.name,
            CACHE: str(self.cache),
        }  # fmt: skip
        began, count, ended, stuck = time.monotonic(), 0, 0, 0
        while True:
            self._run(part)
            lines = of_part(entries(self.results), part.name)
            before, count = count, sum("test" in line for line in lines)
            seconds = time.monotonic() - began
            part.limit = limit - seconds
            ended = ended if part.status in (0, _NO_TESTS) else part.status
            hung, stuck = len(unfinished(lines)) > stuck, len(unfinished(lines))
            died = hung or part.status < 0 or part.status == LOST
            if not died or count == before or part.limit < 1:
                break  # else a second process leaves out what was told, and the test in which the first died
        part.seconds, part.status = seconds, ended or part.status
        self.failed += part.status not in (0, _NO_TESTS)
        files = len(self._kept())
        part.counts = counted(lines)
        over = seconds >= limit
        append(self.results, part=part.name, ended=part.status, over_its_limit=over, counts=part.counts,
               seconds=round(seconds, 1), unfinished=unfinished(lines), kept=files)  # fmt: skip
        how = f", over its limit of {limit:.0f} s" if over else ""
        print(f"{part}{how}", flush=True)

    def _run(self, part: Part) -> None:
        try:
            with open(self.results.with_suffix(".log"), "ab") as log:
                part.run(log)
        except Exception as error:  # no memory for one more process, no room on a disk
            part.status = part.status or 1
            append(self.results, part=part.name, broke=repr(error))

    def _kept(self) -> list[Path]:
        return [path for path in self.cache.rglob("*") if path.is_file()]

    def _pack(self) -> None:
        """Pack the caches beside the results; whoever reads the file finds an old one or a whole one.

        The smallest files come first, what libraries were tuned to among them: not all machine code may fit.
        """
        packed = caches_beside(self.results)
        partial = packed.with_suffix(".partial")
        try:
            with tarfile.open(partial, "w:gz", compresslevel=1) as archive:
                for path in sorted(self._kept(), key=lambda path: path.stat().st_size):
                    with contextlib.suppress(FileNotFoundError):  # what was left behind goes on
                        if partial.stat().st_size + path.stat().st_size > _PACKED_BYTES:
                            break
                        archive.add(path, path.relative_to(self.cache))
            os.replace(partial, packed)
        except OSError as error:
            append(self.results, caches=f"not packed: {error}")


def caches_beside(results: Path) -> Path:
    """Return where a run packs its caches."""
    return results.with_name(f"{results.stem}_caches.tar.gz")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages that the command line names; return 0 if nothing failed."""
    names = [stage.name for stage in stages(1)]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=25, help="for everything")
    parser.add_argument("--results", type=Path, default=FOLDER / "contact.jsonl")
    parser.add_argument("--caches", type=Path, help="packed by a run before, on such a GPU")
    parser.add_argument("--cache", type=Path, default=CACHE_FOLDER, help="the folder")
    workers = max(1, min((os.cpu_count() or 1) - 2, _MOST_WORKERS))
    parser.add_argument(
        "--workers", type=int, default=workers, help="side by side, of kernels' tests"
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--files", nargs="+", default=["*"], help="of these stages, such as '*sequences*'"
    )
    parser.add_argument("--simulated", action="store_true", help="on a simulated GPU")
    options = parser.parse_args(arguments)
    if options.simulated:
        os.environ[gpus.COUNT] = "1"
    elif gpus.simulated_gpus():
        parser.error(f"this meets a real GPU: take {gpus.COUNT} out of the environment")
    else:
        os.environ[REAL] = "1"
    results = options.results.absolute()
    results.parent.mkdir(parents=True, exist_ok=True)
    contact = Contact(results, 60 * options.minutes, options.cache.absolute(), options.files)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # parts end with it
    if options.caches:
        with tarfile.open(options.caches) as archive:
            archive.extractall(contact.cache, filter="data")
    doubt = distrust(contact.cache.resolve())
    append(
        results, contact=sys.argv, minutes=options.minutes, cache=str(contact.cache), doubt=doubt
    )
    contact.run([stage for stage in stages(options.workers) if stage.name in options.only])
    append(results, finished=True, failed=contact.failed)
    return int(contact.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
