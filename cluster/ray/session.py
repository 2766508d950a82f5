"""Which Ray gangs run on: the one in force, the one that is named, or one of our own."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import random
import resource
import socket
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from ...executor.gang.launchers import launching
from ...executor.simulated.simulated import simulated_gpus
from ...strategies.cluster import ClusterConfig
from ...strategies.errors import CollectiveError, InvalidState
from ...strategies.log import log
from ..primitives.ray_private import lean_node, leave_parents_node
from ..primitives.shm import FORMING_BYTES, check_shared_memory, sweep
from .shared_head import ROLES, shared_address

_OBJECT_STORE_BYTES = 200_000_000  # steps do not use the object store
_QUIET: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": True}
_FILES_BYTES = 16 << 20  # sockets and logs of the first minutes
_OPEN_FILES = 256  # with fewer Ray's processes may not come up
_KNOCK_S = 10.0
_REASON_CHARACTERS = 300
_ours: list[str] = []  # the Ray that was started here
_forked: list[int] = []  # this process, if it was forked while Ray was in use


def _after_fork() -> None:
    """Leave the parent's Ray alone: it would be ended when this process exits, or is terminated."""
    if not ray.is_initialized():
        return
    _forked[:] = [os.getpid()]
    atexit.unregister(ray.shutdown)
    leave_parents_node()


os.register_at_fork(after_in_child=_after_fork)


def join_ray(config: ClusterConfig, replicas: int = 1, shared: bool = False) -> None:
    """Join the Ray that is initialised, or the one named (RAY_ADDRESS counts), or start one for them here.

    ``shared``: without an address, it is one for all processes of this training on this host; so it is where
    the environment has a role (PADDLE_TRAINING_ROLE).

    Python's random numbers go on as if no Ray had been joined.

    Raises:
        CollectiveError: no Ray answers at the address, or it cannot be started; says why, and what to do.
    """
    state = random.getstate()  # Ray draws from it; the programs' shuffles must not depend on that
    with launching():
        try:
            _join(config, replicas, shared or any(role in os.environ for role in ROLES))
        finally:
            random.setstate(state)


def _join(config: ClusterConfig, replicas: int, shared: bool) -> None:
    sweep()
    if ray.is_initialized():
        if _forked:
            raise InvalidState(
                f"process {os.getpid()} was forked from one that uses Ray, which answers that process alone: "
                f"run the program there, or in a process that is spawned, not forked."
            )
        return
    address = config.address or os.environ.get("RAY_ADDRESS")
    named_by = "ClusterConfig.address" if config.address else "RAY_ADDRESS"
    if shared and not address:
        address = shared_address()
    if address and address != "local":
        try:
            _knock(address)
        except OSError as error:
            raise CollectiveError(
                f"no Ray cluster answers at {address!r} ({named_by}): {error}. Name one that runs, start one "
                f"there (ray start --head), or unset {named_by}: then a local one is started here."
            ) from None
        with _explained(f"no Ray cluster answers at {address!r}"):
            ray.init(address=address, **_QUIET)
        log.info("joined the Ray cluster at %s", address)
        return
    check_shared_memory(replicas * FORMING_BYTES)
    _check_folder()
    with _environment_of_workers(), lean_node(), _explained("Ray cannot be started here"):
        _start(  # "local", or Ray would look for clusters that somebody else started
            address="local",
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            num_gpus=simulated_gpus() or None,  # None: those that Ray finds
            **_QUIET,
        )
    _ours[:] = [session()]
    cpus = ray.cluster_resources().get("CPU", 0)
    log.info("started a local Ray with %g CPUs, which ends with this process%s", cpus, unjoined())


def _start(**options: Any) -> None:
    """Call ``ray.init`` on a thread that lives as long as this process.

    Ray has the kernel end its processes with their parent (PR_SET_PDEATHSIG), and that is the thread that
    started them: one of a pool would take the cluster along when it ends.
    """
    if threading.current_thread() is threading.main_thread():
        ray.init(**options)
        return
    started: Future[None] = Future()

    def start_and_stay() -> None:
        try:
            ray.init(**options)
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(None)
        threading.Event().wait()

    threading.Thread(target=start_and_stay, name="rowlock-ray", daemon=True).start()
    started.result()


def unjoined() -> str:
    """Return a sentence about a Ray head that runs on this host and was not joined; empty without one."""
    if not _ours:
        return ""
    try:
        address = (Path(_folder()) / "ray" / "ray_current_cluster").read_text().strip()
        _knock(address)
    except (OSError, ValueError):
        return ""
    return (
        f". A Ray head runs on this host at {address} and was not joined: name it in RAY_ADDRESS or in "
        f"ClusterConfig.address to use its CPUs and GPUs."
    )


def _folder() -> str:
    """Return the folder in which a Ray that is started here keeps its files."""
    return os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()


def _check_folder() -> None:
    """Raise CollectiveError if that folder is full: Ray would wait for its own files until it gives up."""
    with contextlib.suppress(OSError):
        status = os.statvfs(_folder())
        free = status.f_bavail * status.f_frsize
        if status.f_blocks and free < _FILES_BYTES:
            raise CollectiveError(
                f"Ray cannot be started here: {_folder()} has no room for its {_FILES_BYTES} bytes of files "
                f"({free} are free). Make room there, or name another folder in RAY_TMPDIR."
            )


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn whatever Ray raises into one sentence with what to do about it."""
    try:
        yield
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = textwrap.shorten(" ".join(lines[:3]), _REASON_CHARACTERS, placeholder=" …")
        raise CollectiveError(
            f"{what}: {type(error).__name__}: {(reason or 'no reason is told').rstrip('.')}. {_cure(error)}"
        ) from error


def _cure(error: Exception) -> str:
    """Return what to do about an error of ``ray.init``."""
    text, folder = str(error), _folder()
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text:
        return f"Make room in {folder}, or name a folder that has some in RAY_TMPDIR."
    if "AF_UNIX path" in text:
        return "Name a folder with a shorter path in RAY_TMPDIR."
    if isinstance(error, UnicodeError):
        return (
            "Ray takes names of files that are UTF-8 alone: run the script from a folder with such a name, or "
            "replicas as threads (rowlock.configure(launcher='threads'))."
        )
    if isinstance(error, ray.exceptions.AuthenticationError) or "token" in text.lower():
        return (
            "Give this process the token of the cluster (RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH for a file "
            "that holds it), or set RAY_AUTH_MODE=disabled for a cluster without one."
        )
    if isinstance(error, ConnectionError):
        # something listens there, or it would not have come to this
        return (
            "Something listens there and does not let this process in: give it the cluster's token "
            "(RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH) and version of Ray."
        )
    if "ersion mismatch" in text:
        return "Use the same versions of Ray and Python here as on the cluster."
    if isinstance(
        error, (PermissionError, FileNotFoundError, NotADirectoryError, FileExistsError)
    ) or (number == errno.EROFS):
        return (
            f"Ray keeps files in {folder} and in the home directory: let this user write there, or name other "
            f"folders in RAY_TMPDIR and HOME."
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < _OPEN_FILES:
        return f"Each process may open {files} files (ulimit -n), which may be too few: allow {_OPEN_FILES}."
    return "Its log files are in " + os.path.join(folder, "ray", "session_latest", "logs") + "."


def leave_ray() -> None:
    """End the Ray that was started for gangs; leave one that was joined."""
    if _forked:
        return
    if _ours and ray.is_initialized() and session() == _ours[0]:
        ray.shutdown()
    _ours.clear()


def session() -> str:
    """Return what tells this connection to Ray from any other; empty without one."""
    if not ray.is_initialized():
        return ""
    context = ray.get_runtime_context()
    return f"{context.get_node_id()}/{context.get_job_id()}"


def _knock(address: str) -> None:
    """Raise OSError if nothing listens at ``host:port``; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()


@contextmanager
def _environment_of_workers() -> Iterator[None]:
    """Let the workers of a Ray started inside find the package where this process has it, and be its equals.

    Ray would run them at nice 15: any other busy process would leave them a thirtieth of a core.
    """
    root = Path(__file__).resolve().parents[2]
    home = root if (root / "rowlock").is_dir() else root.parent  # source checkout, or installed
    names = ("PYTHONPATH", "RAY_USAGE_STATS_ENABLED", "RAY_worker_niceness")
    before = {name: os.environ.get(name) for name in names}
    paths = [str(home), before["PYTHONPATH"]]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
