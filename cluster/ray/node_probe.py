"""The actor that looks at processes of a node. It imports no more: one starts on each node of a gang."""

from __future__ import annotations

import contextlib
import os
import signal

import ray

from ..primitives.processes import look_at


@ray.remote(num_cpus=0, max_restarts=0)
class NodeProbe:
    """Looks at processes of a node for the driver, which cannot."""

    def look(self, pid: int) -> tuple[str, int]:
        """Return a process's state letter, and the clock ticks that it computes in a moment."""
        return look_at(pid)

    def kill(self, pid: int) -> None:
        """End a process that does not hear Ray."""
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
