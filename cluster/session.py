"""Which Ray gangs run on: the one in force, the one that is named, or one of our own."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from ..executor.cuda.simulated import simulated_gpus
from ..executor.launchers import launching
from ..strategies.cluster import ClusterConfig
from ..strategies.errors import CollectiveError, InvalidState

_OBJECT_STORE_BYTES = 200_000_000  # steps do not use the object store
_QUIET: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": True}
_KNOCK_S = 10.0
_ours: list[str] = []  # the Ray that was started here
_forked: list[int] = []  # this process, if it was forked while Ray was in use


def _after_fork() -> None:
    """Leave the parent's Ray alone: it would be ended when this process exits, or is terminated."""
    if not ray.is_initialized():
        return
    _forked[:] = [os.getpid()]
    atexit.unregister(ray.shutdown)
    node = getattr(ray._private.worker, "_global_node", None)
    for name in ("kill_all_processes", "_drain_node_before_shutdown"):
        if hasattr(node, name):
            setattr(node, name, lambda *args, **how: None)


os.register_at_fork(after_in_child=_after_fork)


def join_ray(config: ClusterConfig) -> None:
    """Join the Ray that is initialised, or the one named (RAY_ADDRESS counts), or start one here.

    Raises:
        CollectiveError: no Ray answers at the address.
    """
    with launching():
        _join(config)


def _join(config: ClusterConfig) -> None:
    if ray.is_initialized():
        if _forked:
            raise InvalidState(
                f"process {os.getpid()} was forked from one that uses Ray, which answers that process alone: "
                f"run the program there, or in a process that is spawned, not forked."
            )
        return
    address = config.address or os.environ.get("RAY_ADDRESS")
    if address and address != "local":
        try:
            _knock(address)
            ray.init(address=address, **_QUIET)
        except (
            OSError,
            ValueError,
        ) as error:  # ValueError: an address of another kind, such as http://
            raise CollectiveError(f"no Ray cluster answers at {address!r}: {error}") from error
        return
    with _workers_import_this_package():
        ray.init(  # "local", or Ray would look for clusters that somebody else started
            address="local",
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            num_gpus=simulated_gpus() or None,  # None: those that Ray finds
            **_QUIET,
        )
    _ours[:] = [session()]


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
def _workers_import_this_package() -> Iterator[None]:
    """Let the workers of a Ray started inside find the package where this process has it."""
    root = Path(__file__).resolve().parents[1]
    home = root if (root / "rowlock").is_dir() else root.parent  # source checkout, or installed
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "RAY_USAGE_STATS_ENABLED")}
    paths = [str(home), before["PYTHONPATH"]]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
