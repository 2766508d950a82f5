"""What Ray keeps private and the cluster uses, each with a way to go on where a Ray lacks it.

No other module names them. ``tests/cluster/test_ray_private.py`` tells which one a Ray changed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import ray

FREE = ("ray._private.state", "available_resources_per_node")
NODE = ("ray._private.worker", "_global_node")
NODE_ENDINGS = ("kill_all_processes", "_drain_node_before_shutdown")
NODE_CLASS = ("ray._private.node", "Node")
NODE_SERVICES = ("start_monitor", "start_api_server")  # scale clusters; serve pages and count usage
PUT = ("ray.experimental.internal_kv", "_internal_kv_put")
GET = ("ray.experimental.internal_kv", "_internal_kv_get")
DELETE = ("ray.experimental.internal_kv", "_internal_kv_del")
CONFIG = ("ray._raylet", "Config")
TOKENS = ("ray._raylet", "AuthenticationTokenLoader")
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_NAMESPACE = "rowlock"


def part(module: str, name: str) -> Any:
    """Return a private part of Ray, None where this Ray has none of that name."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def free_per_node() -> dict[str, dict[str, float]] | None:
    """Return what is free now on each node, by node id and resource.

    None: this Ray does not tell; its public functions tell the sum over all nodes only.
    """
    tell = part(*FREE)
    return None if tell is None else tell()


def leave_parents_node() -> None:
    """Have this process, forked while Ray was in use, end nothing of the Ray that its parent started.

    Without the private part there is nothing to undo here: what a public exit handler does is undone elsewhere.
    """
    node = part(*NODE)
    for name in NODE_ENDINGS:
        if hasattr(node, name):
            setattr(node, name, lambda *args, **how: None)


@contextmanager
def lean_node() -> Iterator[None]:
    """Let a head node that is started inside leave out services of clusters, a Python process each.

    They would take as long to start as a replica, at the same time. Without the private part all are started.
    """
    node = part(*NODE_CLASS)
    services = {name: getattr(node, name) for name in NODE_SERVICES if hasattr(node, name)}
    for name in services:
        setattr(node, name, lambda *args, **how: None)
    try:
        yield
    finally:
        for name, start in services.items():
            setattr(node, name, start)


def authenticate(environment: MutableMapping[str, str], path: str) -> None:
    """Have the processes of an environment prove themselves with the token in a file, if it names no other way.

    The mode "token" alone names none: Ray sets it in a process that starts a Ray, and its children inherit it.
    Without the private parts this process could not join such a Ray any more: no token is asked for then.
    """
    mode, own_path = environment.get(MODE, "token"), environment.get(TOKEN_PATH, path)
    if mode.lower() != "token" or own_path != path or TOKEN in environment:
        return
    renew, tokens = getattr(part(*CONFIG), "initialize", None), part(*TOKENS)
    if renew is None or tokens is None:
        environment[MODE] = "disabled"
        return
    environment.update({MODE: "token", TOKEN_PATH: path})
    if environment is os.environ:
        renew("")  # Ray read its environment when it was imported,
        tokens.instance().reset_cache()  # and the token of another Ray that this process was in


# -- a table that all processes of a Ray cluster share ------------------------------------------------


@ray.remote(num_cpus=0)
class _Table:
    """The table where Ray's own is out of reach: an actor of this name, which the cluster keeps."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value."""
        self._values[key] = value

    def get(self, key: bytes) -> bytes | None:
        """Return a value, None without one."""
        return self._values.get(key)

    def delete(self, key: bytes) -> None:
        """Forget a value."""
        self._values.pop(key, None)


def _table() -> Any:
    how: dict[str, Any] = {"name": "rowlock table", "namespace": _NAMESPACE}
    return _Table.options(**how, get_if_exists=True, lifetime="detached").remote()  # type: ignore[attr-defined]


def put(key: str, value: bytes) -> None:
    """Set a value of the table."""
    own = part(*PUT)
    if own is None:
        ray.get(_table().put.remote(key.encode(), value))
    else:
        own(key.encode(), value, namespace=_NAMESPACE.encode())


def get(key: str) -> bytes | None:
    """Return a value of the table, None without one."""
    own = part(*GET)
    if own is None:
        value: bytes | None = ray.get(_table().get.remote(key.encode()))
    else:
        value = own(key.encode(), namespace=_NAMESPACE.encode())
    return value


def delete(key: str) -> None:
    """Forget a value of the table."""
    own = part(*DELETE)
    if own is None:
        ray.get(_table().delete.remote(key.encode()))
    else:
        own(key.encode(), namespace=_NAMESPACE.encode())
