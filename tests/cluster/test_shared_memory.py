"""Shared memory: what killed processes leave is swept, what is in use is not; and where there is none."""

from __future__ import annotations

import errno
import glob
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from rowlock.cluster.channel.feed_buffer import DriverFeedBuffer
from rowlock.cluster.primitives.shm import Segment, segment_path, sweep
from rowlock.cluster.ray import session
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import CollectiveError

_context = multiprocessing.get_context("fork")
GROUP = f"test-{uuid.uuid4().hex}"


def left() -> list[str]:
    return glob.glob(segment_path(GROUP, "*"))


def makes_many(ready: Any) -> None:
    """Make memory and give it back, over and over, as drivers and replicas do."""
    ready.set()
    for number in range(1 << 30):
        area = DriverFeedBuffer.create(segment_path(GROUP, f"{number}-area"), 2, 4096, 4096)
        segment = Segment.create(segment_path(GROUP, f"{number}-0"), 10_000)
        segment.populate()
        segment.unlink()
        segment.close()
        area.close()


@pytest.mark.kills
def test_what_a_killed_process_leaves_is_swept() -> None:
    leftovers = 0
    for _ in range(25):
        ready = _context.Event()
        victim = _context.Process(target=makes_many, args=(ready,))
        victim.start()
        ready.wait(10)
        time.sleep(random.random() * 3e-3)
        os.kill(victim.pid or 0, signal.SIGKILL)
        victim.join()
        leftovers += len(left())
        sweep()
        assert not left()
    assert leftovers, "no kill struck while a name was there"


@pytest.mark.kills
def test_what_is_in_use_is_not_swept() -> None:
    """The maker may have closed the file: it is in use as long as it is mapped, here or in a child."""
    path = segment_path(GROUP, "used")
    segment = Segment.create(path, 4096)
    assert path not in sweep()
    attached = Segment.attach(path, 4096, 1, "the test")
    attached.array[0] = 7
    child = _context.Process(target=time.sleep, args=(60,))
    child.start()
    segment.close()
    assert path not in sweep(), "the child still has it"
    child.kill()
    child.join()
    sweep()
    assert not os.path.exists(path), "who attached it needs no name"
    assert attached.array[0] == 7
    attached.close()


def test_a_name_is_taken_once_and_strangers_files_are_left_alone(tmp_path: Path) -> None:
    path, link = segment_path(GROUP, "once"), segment_path(GROUP, "link")
    segment = Segment.create(path, 4096)
    with pytest.raises(CollectiveError, match="File exists"):
        Segment.create(path, 4096)
    target = tmp_path / "precious"
    target.write_bytes(b"x")
    os.symlink(target, link)
    sweep()
    assert target.exists() and os.path.lexists(link)
    os.unlink(link)
    segment.unlink()
    segment.close()
    assert not left()


def test_file_systems_without_nameless_files(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def without(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", without)
    path = segment_path(GROUP, "named")
    segment = Segment.create(path, 4096, resident=4096)
    assert path not in sweep()
    segment.close()
    sweep()
    assert not left()


# -- no room --------------------------------------------------------------------------------------


def in_small_memory(mount: str, body: str) -> str:
    """Run Python in a mount namespace of its own; returns what it prints."""
    script = f"mount -t tmpfs {mount} tmpfs /dev/shm && exec {sys.executable} -c '{body}'"
    process = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if process.returncode and "Operation not permitted" in process.stderr:
        pytest.skip("mount namespaces are not permitted here")
    assert process.returncode == 0, (process.returncode, process.stderr[-500:])
    return process.stdout


_TOLD = "\nexcept CollectiveError as error:\n print(error)\n"
_SHM = "from rowlock.cluster.primitives.shm import *\nfrom rowlock.strategies.errors import *\n"


def test_full_memory_is_an_error_and_no_signal() -> None:
    """Also where it fills up between the making of a file and its use."""
    body = _SHM + (
        "for number in range(99):\n"
        " try:\n"
        '  made = Segment.create(segment_path("g", str(number)), 100_000, resident=1)\n'
        "  made.populate()\n"
        "  made.array[:] = 1\n"
        " except CollectiveError as error:\n"
        "  print(error)\n"
        "  break\n"
    )
    text = in_small_memory("-o size=1m", body)
    assert "/dev/shm has no room for 100000 bytes (" in text and "--shm-size" in text
    assert text.count("\n") == 1


def test_a_start_without_shared_memory_is_named_at_once() -> None:
    body = _SHM + "try:\n check_shared_memory()" + _TOLD
    full = in_small_memory("-o size=500k", body)
    assert full.startswith("/dev/shm has no room for 1048576 bytes (512000 are free). Give it more")
    frozen = in_small_memory("-o ro", body)
    assert "Read-only file system. Mount it writable" in frozen


# -- errors of Ray --------------------------------------------------------------------------------


def raising(error: Exception) -> Callable[..., None]:
    def init(**_: Any) -> None:
        raise error

    return init


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "Make room in .*RAY_TMPDIR"),
        (PermissionError(errno.EACCES, "Permission denied", "/tmp/ray"), "RAY_TMPDIR and HOME"),
        (ray.exceptions.AuthenticationError("Token is wrong"), "the token of the cluster"),
        (
            RuntimeError(
                "Version mismatch: The cluster was started with:\n    Ray: 2.1\n    Python: 3.9"
            ),
            "2.1 Python: 3.9.* Use the same versions",
        ),
        (OSError("AF_UNIX path length cannot exceed 107 bytes: /x"), "shorter path in RAY_TMPDIR"),
        (
            UnicodeEncodeError("utf-8", "\udce9", 0, 1, "surrogates not allowed"),
            "not allowed. Ray takes",
        ),
        (RuntimeError("something new"), r"something new\. Its log files"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_ray_raises_is_told_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, error: Exception, cure: str
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", raising(error))
    with pytest.raises(CollectiveError, match=f"^Ray cannot be started here: .*{cure}") as caught:
        session.join_ray(ClusterConfig())
    assert "\n" not in str(caught.value)
    with pytest.raises(CollectiveError, match=r"^no Ray cluster answers at 'ray://x'"):
        session.join_ray(ClusterConfig(address="ray://x"))


def test_few_open_files_are_told_where_ray_does_not_come_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", raising(RuntimeError("Timed out waiting for file")))
    monkeypatch.setattr(session.resource, "getrlimit", lambda _: (40, 40))
    with pytest.raises(CollectiveError, match=r"may open 40 files \(ulimit -n\).*allow 256"):
        session.join_ray(ClusterConfig())


def test_ray_is_started_by_a_thread_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes end with the thread that started them, and users' threads end."""
    starters: list[threading.Thread] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: starters.append(threading.current_thread()))
    monkeypatch.setattr(ray, "cluster_resources", dict)
    monkeypatch.setattr(session, "_ours", [])
    users = threading.Thread(target=session.join_ray, args=[ClusterConfig()])
    users.start()
    users.join()
    (starter,) = starters
    assert starter is not users and starter.is_alive() and starter.daemon
    monkeypatch.setattr(ray, "init", raising(OSError("no")))
    with ThreadPoolExecutor(1) as pool, pytest.raises(CollectiveError, match="cannot be started"):
        pool.submit(session.join_ray, ClusterConfig()).result()


def test_a_full_folder_is_named_before_ray_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real, full = os.statvfs, "/nearly/full"

    def statvfs(path: str) -> Any:
        figures = real("/" if path == full else path)
        return figures if path != full else os.statvfs_result((*figures[:3], 3, 3, *figures[5:]))

    monkeypatch.setenv("RAY_TMPDIR", full)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(os, "statvfs", statvfs)
    with pytest.raises(CollectiveError, match="/nearly/full has no room for its 16777216 bytes"):
        session.join_ray(ClusterConfig())
