"""Ray nodes without what no test asks for: a process each, which takes more than a second to start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from rowlock.cluster.primitives.ray_private import lean_node


@contextmanager
def lean_nodes() -> Iterator[None]:
    """Let nodes that are started inside scale nothing, serve no pages, and show drivers no logs of workers."""
    with lean_node(), mock.patch("ray._private.node.Node.start_log_monitor"):
        yield
