"""Damaged and foreign caches of compiled code: the same bits come out, whatever lies there."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .kills import Enough
from .report import Report

_PROGRAM = """
import numpy as np, rowlock.fluid as fluid
main, startup = fluid.Program(), fluid.Program()
main.random_seed = startup.random_seed = 3
with fluid.program_guard(main, startup):
    x = fluid.data("x", [None, 8])
    hidden = fluid.layers.fc(x, 8, act="tanh")
    loss = fluid.layers.mean(hidden)
    fluid.optimizer.Adam(0.1).minimize(loss)
exe = fluid.Executor()
exe.run(startup)
rows = np.linspace(-1, 1, 80, dtype="float32").reshape(10, 8)
for _ in range(3):
    fetched = exe.run(main, {"x": rows}, [loss, hidden])
print("BITS", *(array.tobytes().hex() for array in fetched))
"""
_WITHIN_S = 120.0
_AT_ONCE = 2
_NOBODY = 65534

Damage = Callable[[Path, random.Random], None]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 64)


def _flipped(folder: Path, draw: random.Random) -> None:
    for path in _files(folder):
        data = bytearray(path.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)


def _cut(folder: Path, draw: random.Random) -> None:
    for path in _files(folder):
        os.truncate(path, draw.randrange(path.stat().st_size))


def _swapped(folder: Path, draw: random.Random) -> None:
    """Each file is whole, and under the name of another."""
    files = _files(folder)
    contents = [path.read_bytes() for path in files]
    for path, content in zip(files, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)


def _poisoned(folder: Path, draw: random.Random) -> None:
    """Garbage with a digest that anybody could have made."""
    import hashlib

    for path in _files(folder):
        code = b"\x7fELF" + draw.randbytes(2000)
        path.write_bytes(hashlib.sha256(code).digest() + code)


def _open_to_all(folder: Path, draw: random.Random) -> None:
    _poisoned(folder, draw)
    folder.chmod(0o777)


def _of_another(folder: Path, draw: random.Random) -> None:
    _poisoned(folder, draw)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY)


def _linked(folder: Path, draw: random.Random) -> None:
    """Every file is a link to one in a folder of somebody else."""
    elsewhere = Path(f"{folder}.elsewhere")
    elsewhere.mkdir(mode=0o777)
    for path in _files(folder):
        target = elsewhere / path.name
        shutil.move(path, target)
        path.symlink_to(target)
    _poisoned(elsewhere, draw)


def _a_file(folder: Path, draw: random.Random) -> None:
    shutil.rmtree(folder)
    folder.write_text("no folder")


def _untouched(folder: Path, draw: random.Random) -> None:
    pass


DAMAGES: dict[str, Damage] = {
    "untouched": _untouched,
    "flipped bits": _flipped,
    "cut short": _cut,
    "files under other names": _swapped,
    "garbage with a digest": _poisoned,
    "a folder that all may write": _open_to_all,
    "another owner": _of_another,
    "links": _linked,
    "a file where the folder was": _a_file,
}


def attack(report: Report, enough: Enough) -> None:
    """Run a program on caches in every bad state, until it is enough."""
    draw = random.Random(report.seed)
    with tempfile.TemporaryDirectory() as room:
        whole = Path(room) / "whole"
        expected = _run(whole)
        if not expected.startswith("BITS"):
            report.note(f"an empty cache: {expected}")
        report.counts["files kept"] = len(_files(whole))
        while not report.counts["caches"] or not enough(report.counts["caches"]):
            folders: dict[str, Path | None] = {"no home": None}
            for name, damage in DAMAGES.items():
                if name == "another owner" and os.getuid() != 0:
                    continue
                folders[name] = folder = Path(room) / f"{report.counts['caches']}-{len(folders)}"
                shutil.copytree(whole, folder)
                damage(folder, draw)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for name, output in zip(folders, pool.map(_run, folders.values()), strict=True):
                    _compare(report, name, expected, output)


def _compare(report: Report, name: str, wanted: str, output: str) -> None:
    report.counts["caches"] += 1
    if output != wanted:
        report.note(f"{name}: {output[-500:]}")


def _run(folder: Path | None) -> str:
    """Return what a process prints that runs the program with its cache there (None: without a home)."""
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "ROWLOCK_CACHE_DIR")}
    if folder is not None:
        environment.update(ROWLOCK_CACHE_DIR=str(folder), HOME=str(folder.parent))
    else:
        environment["HOME"] = "/nonexistent"
    try:
        process = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {_WITHIN_S:g} s"
    lines = [line for line in process.stdout.splitlines() if line.startswith("BITS")]
    return (
        lines[0]
        if lines and not process.returncode
        else f"exit {process.returncode}: {process.stderr}"
    )
