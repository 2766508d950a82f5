"""What kernels assert of their operands, such as that an index is a row: noted on the GPU, told by the host.

The host does not see operands on a GPU. A kernel that finds a wrong one writes the number of its assertion to a
word of device memory, which holds back every later write to persistables, and to page-locked memory, which the
host reads where it waits for the GPU anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...strategies.errors import ExecutionError
from .kernel import CudaKernel
from .runtime import Runtime


class Assertion(NamedTuple):
    """What an operator asserts: ``problem`` with ``{}`` for the wrong number, and the operator's own words."""

    problem: str
    op: str
    reads: tuple[str, ...]
    where: str


class DeviceAsserts:
    """The assertions of one replica's kernels. ``word`` (int64, device memory) is not 0 once one has failed.

    The first that fails in the order of the stream is told.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.word = runtime.empty(8).view(np.int64)
        self._noted = runtime.pinned(16).view(np.int64)  # the wrong number, then the assertion's
        self._assertions: dict[Assertion, int] = {}
        self.reset()

    def arguments(self, assertion: Assertion) -> list[Any]:
        """Return what a kernel passes to ``refuse`` of ``assert.cuh``, before the number that is wrong."""
        number = self._assertions.setdefault(assertion, len(self._assertions) + 1)
        return [self.word, self._noted, number]

    def __bool__(self) -> bool:
        """Tell whether any kernel that was bound asserts something."""
        return bool(self._assertions)

    def guarded(self, kernel: CudaKernel, arguments: Sequence[Any]) -> tuple[CudaKernel, list[Any]]:
        """Return a kernel that does nothing once an assertion has failed, and its arguments."""
        return kernel.guarded(unless=True), [*arguments, self.word]

    def failed(self, replica: int | None) -> ExecutionError | None:
        """Return the error of the assertion that failed, as far as the host knows: of all work that is done."""
        wrong, number = self._noted.tolist()
        if not number:
            return None
        problem, op, reads, where = list(self._assertions)[number - 1]
        return ExecutionError.of(replica, op, problem.format(wrong), reads, where)

    def check(self, replica: int | None) -> None:
        """Raise what :meth:`failed` returns.

        Raises:
            ExecutionError: names operator, number, what was read, and the user's line.
        """
        error = self.failed(replica)
        if error is not None:
            raise error

    def reset(self) -> None:
        """Let steps write again; nothing of a step that failed is under way any more."""
        self._runtime.synchronize()
        self._noted.fill(0)
        self._runtime.copy(self.word, self._noted[:1], self._runtime.compute)
        self._runtime.synchronize()
