"""What is kept on disk is loaded only if nobody else can have written it; without a disk all works the same."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import logging
import os
import pwd
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from rowlock.executor.codegen import native
from rowlock.executor.cuda import cupy_runtime
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.host import disk_cache
from rowlock.executor.host.disk_cache import DiskCache
from rowlock.executor.simulated import host_compiler

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def fresh() -> DiskCache:
    """Return the cache as the next process has it."""
    disk_cache._open.cache_clear()
    return disk_cache.disk_cache()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the cache that is not there yet."""
    path = tmp_path / "not" / "yet"
    monkeypatch.setenv("ROWLOCK_CACHE_DIR", str(path))
    disk_cache._warn_once.cache_clear()
    disk_cache._open.cache_clear()
    yield path
    disk_cache._open.cache_clear()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_kept_is_the_users_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        assert fresh().write("a.o", b"code") == b"code"
    finally:
        os.umask(before)
    assert fresh().read("a.o") == b"code"
    assert fresh().read("b.o") is None
    assert [mode_of(path) for path in (folder.parent, folder)] == [0o700, 0o700]
    assert {path.name: mode_of(path) for path in folder.iterdir()} == {"a.o": 0o600, "key": 0o600}
    fresh().drop("a.o")
    assert fresh().read("a.o") is None


def test_processes_side_by_side_keep_the_first_choice(folder: Path) -> None:
    assert fresh().write("a.plan", b"one", first=True) == b"one"
    assert fresh().write("a.plan", b"two", first=True) == b"one"
    (folder / "a.plan").write_bytes(b"damaged")
    assert fresh().write("a.plan", b"three", first=True) == b"three"
    assert fresh().read("a.plan") == b"three"


def unkeyed(path: Path) -> None:
    path.write_bytes(hashlib.sha256(b"evil").digest() + b"evil")


def another_files(path: Path) -> None:
    fresh().write("b.o", b"evil")
    path.write_bytes((path.parent / "b.o").read_bytes())


def linked(path: Path) -> None:
    os.rename(path, path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [
        unkeyed,
        another_files,
        linked,
        piped,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.chmod(0o620),
        lambda path: path.chmod(0o602),
        pytest.param(lambda path: os.chown(path, NOBODY, NOBODY), marks=as_root),
        lambda path: (path.parent / "key").write_bytes(b"short"),
        lambda path: (path.parent / "key").chmod(0o640),  # others may know it
        pytest.param(
            lambda path: os.chown(path.parent / "key", NOBODY, NOBODY), marks=as_root, id="key"
        ),
    ],
)
def test_a_file_that_is_damaged_or_foreign_is_written_again(
    folder: Path, spoil: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    fresh().write("a.o", b"code")
    spoil(folder / "a.o")
    assert fresh().read("a.o") is None
    fresh().write("a.o", b"again")
    assert fresh().read("a.o") == b"again"
    assert mode_of(folder / "key") == 0o600
    assert not caplog.records


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.chmod(0o777), "can be written by others (mode 0777)"),
        (lambda path: path.chmod(0o1777), "can be written by others (mode 1777)"),
        (lambda path: path.chmod(0o770), "can be written by others (mode 0770)"),
        (lambda path: path.parent.chmod(0o777), "can be written by others (mode 0777)"),
        pytest.param(
            lambda path: os.chown(path, NOBODY, -1), f"belongs to user {NOBODY}", marks=as_root
        ),
        pytest.param(
            lambda path: os.chown(path.parent, NOBODY, -1),
            f"belongs to user {NOBODY}",
            marks=as_root,
        ),
    ],
)
def test_a_folder_that_others_can_change_is_not_used(
    folder: Path, spoil: Callable[[Path], object], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    fresh().write("a.o", b"code")
    before = sorted(folder.iterdir())
    spoil(folder)
    for _ in range(3):
        assert fresh().read("a.o") is None
        assert fresh().write("b.o", b"code", first=True) == b"code"
    assert sorted(folder.iterdir()) == before
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for part in (str(folder.parent), reason, "chmod go-w", "ROWLOCK_CACHE_DIR"):
        assert part in record.getMessage()


def test_a_parent_with_the_sticky_bit_is_as_good_as_tmp(folder: Path) -> None:
    folder.parent.mkdir()
    folder.parent.chmod(0o1777)
    fresh().write("a.o", b"code")
    assert fresh().read("a.o") == b"code"


def no_entry(uid: int) -> NoReturn:
    raise KeyError(uid)


@pytest.mark.parametrize("home", [None, ".", "a file"])
def test_without_a_home_nothing_is_kept(
    home: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any
) -> None:
    monkeypatch.delenv("ROWLOCK_CACHE_DIR", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    (tmp_path / "a file").write_text("")
    monkeypatch.chdir(tmp_path)
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home if home == "." else str(tmp_path / home))
    cache = fresh()
    assert cache.write("a.o", b"code") == b"code"
    assert cache.read("a.o") is None
    cache.drop("a.o")
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def full(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_takes_nothing_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = fresh()
    monkeypatch.setattr(os, "replace", full)  # at the last moment
    assert cache.write("a.o", b"code") == b"code"
    assert [path.name for path in folder.iterdir()] == ["key"], "nothing is left behind"
    monkeypatch.setattr(tempfile, "mkstemp", full)
    assert [cache.write("a.o", b"code") for _ in range(3)] == [b"code"] * 3
    assert cache.read("a.o") is None
    (record,) = caplog.records
    assert "No space left" in record.getMessage()


def test_where_there_are_no_links_files_are_moved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any) -> NoReturn:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    fresh().write("a.plan", b"one", first=True)
    assert fresh().read("a.plan") == b"one"


@pytest.mark.parametrize("trusted", [True, False])
def test_cupy_keeps_its_kernels_where_others_cannot_write(
    folder: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUPY_CACHE_DIR", "CUPY_CACHE_IN_MEMORY"):
        monkeypatch.setenv(name, "")  # so that it is as before in the end
        monkeypatch.delenv(name)
    fresh()
    (folder / "cupy").mkdir(0o700)
    (folder / "cupy").chmod(0o700 if trusted else 0o770)
    cupy_runtime._keep_cupys_kernels()
    expected = (str(folder / "cupy"), None) if trusted else (None, "1")
    assert (os.environ.get("CUPY_CACHE_DIR"), os.environ.get("CUPY_CACHE_IN_MEMORY")) == expected


ADD = """
def run(words):
    x = f32(words[0])
    x[0] = x[0] + np.float32(41.5)
"""
DOUBLE = CudaKernel("double_it", (("float*", "x"),), "  x[threadIdx.x] *= 2;")


def loops() -> None:
    """Compile a loop as the next process does, and run it."""
    native._loaded.pop(ADD, None)
    x = np.ones(1, np.float32)
    native.launch(ADD, [x.ctypes.data], x)()
    assert x[0] == 42.5


@pytest.mark.parametrize("keeps", [True, False])
def test_foreign_machine_code_is_never_run(folder: Path, keeps: bool) -> None:
    """An object with a digest that anybody can compute ended the process, or ran as its user."""
    pytest.importorskip("llvmlite")
    loops()
    (code,) = folder.glob("*.o")
    garbage = hashlib.sha256(b"garbage").digest() + b"garbage"
    code.write_bytes(garbage)
    if not keeps:
        folder.chmod(0o777)
    fresh()
    loops()
    assert (code.read_bytes() == garbage) == (not keeps)


@pytest.mark.cuda
@pytest.mark.skipif(host_compiler.host_compiler() is None, reason="needs g++")
def test_kernels_of_a_simulated_gpu_are_loaded_from_what_was_checked(folder: Path) -> None:
    def doubled() -> float:
        host_compiler._functions.pop(DOUBLE.key, None)
        x = np.full(1, 21, np.float32)
        argument = ctypes.c_void_p(x.ctypes.data)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        host_compiler.compiled(DOUBLE)((ctypes.c_uint * 6)(1, 1, 1, 1, 1, 1), pointers)
        return float(x[0])

    host_compiler._precompiled.cache_clear()
    assert doubled() == 42
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".gch", ".so"]
    (code,) = folder.glob("*.so")
    assert doubled() == 42
    code.write_bytes(b"no code")
    assert doubled() == 42
    assert code.read_bytes() != b"no code", "it is compiled again"
