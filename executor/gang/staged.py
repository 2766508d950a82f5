"""StagedGroup: collectives of GPU arrays by way of the host: copy down, combine there, copy up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..cuda.runtime import Runtime
from ..plan.group import WHEN, CollectiveGroup, Ints, When


class StagedGroup(CollectiveGroup):
    """One rank's handle, for GPUs that NCCL does not join.

    Every buffer has a twin in the group's own memory, where its parts meet; other arrays meet in any memory.
    """

    def __init__(self, group: CollectiveGroup, runtime: Runtime) -> None:
        self.rank, self.size, self.local_size = group.rank, group.size, group.local_size
        self._group, self._runtime = group, runtime
        self._twins: list[tuple[Any, np.ndarray]] = []

    def buffer(self, nbytes: int) -> Any:
        twin = self._group.buffer(nbytes)
        buffer = self._runtime.empty(max(nbytes, 1))[:nbytes]
        buffer.fill(0)
        if nbytes:
            self._runtime.pin(twin)
        self._twins.append((buffer, twin))
        return buffer

    def release(self, buffer: Any) -> None:
        (entry,) = [pair for pair in self._twins if pair[0] is buffer]
        self._twins = [pair for pair in self._twins if pair is not entry]
        self._runtime.synchronize()
        self._runtime.unpin(entry[1])
        self._group.release(entry[1])

    def _twin(self, array: Any) -> np.ndarray:
        """Return the memory of the host in which an array meets: in its buffer's twin, if it is in one."""
        address = self._runtime.address(array)
        for buffer, twin in self._twins:
            offset = address - self._runtime.address(buffer)
            if offset >= 0 and offset + array.nbytes <= buffer.nbytes:
                return twin[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
        return np.empty(array.shape, array.dtype)

    def _staged(self, array: Any, work: Callable[[np.ndarray], None]) -> None:
        """Bring an array to the host, let it meet the others there, and bring it back."""
        runtime, twin = self._runtime, self._twin(array)
        runtime.copy(twin, array, runtime.compute)
        runtime.record(runtime.compute).synchronize()
        work(twin)
        runtime.copy(array, twin, runtime.compute)
        runtime.record(runtime.compute).synchronize()

    def all_reduce(self, array: Any, op: str = "sum", when: When = WHEN) -> None:
        self._staged(array, partial(self._group.all_reduce, op=op, when=when))

    def bound_all_reduce(
        self, array: Any, op: str = "sum", when: When = WHEN
    ) -> Callable[[], None]:
        meet = self._group.bound_all_reduce(self._twin(array), op, when)
        return partial(self._staged, array, lambda twin: meet())

    def reduce_parts(
        self, array: Any, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
        meet = partial(self._group.reduce_parts, ends=ends, roots=roots, op=op, when=when)
        self._staged(array, meet)

    def broadcast_parts(self, array: Any, ends: Ints, roots: Ints, when: When = WHEN) -> None:
        meet = partial(self._group.broadcast_parts, ends=ends, roots=roots, when=when)
        self._staged(array, meet)

    def exchange(self, numbers: np.ndarray, when: When = WHEN) -> np.ndarray:
        return self._group.exchange(numbers, when)

    def barrier(self, when: When = WHEN) -> None:
        self._group.barrier(when)

    def vote(self, when: When = WHEN) -> None:
        self._group.vote(when)

    @property
    def waited(self) -> float:
        return self._group.waited

    def begin(self, step: int) -> None:
        self._group.begin(step)

    def share_cores(self, at_work: Callable[[], bool]) -> None:
        """Pass on when other threads of this process have use for the processor."""
        self._group.share_cores(at_work)

    @property
    def aborted(self) -> str | None:
        return self._group.aborted

    def abort(self, reason: str) -> None:
        self._group.abort(reason)

    def reset(self, epoch: int) -> None:
        self._group.reset(epoch)

    def close(self) -> None:
        self._runtime.synchronize()
        for _, twin in self._twins:
            self._runtime.unpin(twin)
        self._twins = []
        self._group.close()
