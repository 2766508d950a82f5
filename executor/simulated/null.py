"""A GPU that holds no data and does nothing, so that a step takes the host's time only.

Everything is bound and captured as on a real one. Device memory is address space that is never touched, so
programs of any size can be bound, without a GPU and without a compiler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..cuda.kernel import CudaKernel
from ..cuda.runtime import Dims, Event, Fork, Properties, Step
from ..host.arena import Region
from .on_host import HostMemoryRuntime


class NullStream:
    """A queue in which nothing waits."""

    ptr = 0


class NullEvent(Event):
    """An event that every stream has passed."""

    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        """There is nothing to wait for."""


class NullStep:
    """Work that a graph can hold: nothing."""

    captured = True

    def __call__(self) -> None:
        """Do nothing."""


class NullFork(Fork):
    """Work on another stream, and the call that waits for it: nothing."""

    finish = NullStep()

    def __call__(self) -> None:
        """Do nothing."""


class NullRuntime(HostMemoryRuntime):
    """A GPU with an H200's properties.

    ``call_counts`` counts the calls that reached a stream by kind, ``launch_counts`` the kernels that were
    bound by name.
    """

    name = "null"
    nccl = None

    def __init__(self) -> None:
        self.index = 0
        self.properties = Properties("null GPU", (9, 0), 132, 141 << 30)
        self.compute, self.copies, self.fetches = (NullStream() for _ in range(3))
        self.call_counts: Counter[str] = Counter()
        self.launch_counts: Counter[str] = Counter()

    def versions(self) -> dict[str, str]:
        return dict.fromkeys(("cuda", "cublaslt", "cudnn"), "null")

    def empty(self, nbytes: int) -> np.ndarray:
        return Region(max(nbytes, 1)).bytes[:nbytes]

    def on_host(self, array: Any) -> bool:
        """False: all memory counts as the GPU's."""
        return False

    def pinned(self, nbytes: int) -> np.ndarray:
        return np.empty(nbytes, np.uint8)

    def memory(self) -> tuple[int, int]:
        return self.properties.memory, self.properties.memory

    def launch(self, kernel: CudaKernel, grid: Dims, block: Dims, arguments: Sequence[Any]) -> Step:
        self.launch_counts[kernel.name] += 1
        return NullStep()

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        self.call_counts["copy"] += 1

    def copying(self, target: Any, source: Any) -> Step:
        return NullStep()

    def execute(self, steps: Sequence[Step]) -> None:
        """Count the calls, and make none."""
        self.call_counts["execute"] += len(steps)

    def stream(self, urgent: bool = False) -> NullStream:
        return NullStream()

    def fork(self, stream: NullStream, step: Step) -> NullFork:
        return NullFork()

    def host(self, step: Step) -> None:
        """Count a call of the host, and do not make it."""
        self.call_counts["host"] += 1

    def capture(self, steps: Sequence[Step]) -> Step:
        return self._launch_graph

    def _launch_graph(self) -> None:
        self.call_counts["graph"] += 1

    def record(self, stream: Any) -> NullEvent:
        self.call_counts["record"] += 1
        return NullEvent()

    def wait(self, stream: Any, event: Any) -> None:
        self.call_counts["wait"] += 1

    def synchronize(self) -> None:
        """There is nothing to wait for."""
