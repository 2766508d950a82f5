"""Groups over the backends that ``ray.util.collective`` brings itself: GLOO (through torch) and NCCL (CuPy)."""

from __future__ import annotations

import contextlib
import importlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import ray
from ray.util import collective
from ray.util.collective import types

from ...executor.plan.group import DEADLINE_S, WHEN, CollectiveGroup, Ints, When, spans
from ...executor.replica.agreement import NO_STEP, format_step, named
from ...strategies.errors import CollectiveAborted, CollectiveError
from .combine import check_op, flat

_OPS = {
    "sum": types.ReduceOp.SUM,
    "mean": types.ReduceOp.SUM,
    "product": types.ReduceOp.PRODUCT,
    "min": types.ReduceOp.MIN,
    "max": types.ReduceOp.MAX,
}
_NEEDS = {
    "gloo": ("Ray's GLOO backend needs torch: pip install torch", ["torch"]),
    "nccl": (
        "Ray's NCCL backend needs CuPy with NCCL, torch, and a GPU for each rank: "
        "pip install cupy-cuda13x[ctk] torch",
        ["cupy", "cupy.cuda.nccl", "torch"],
    ),
}


class RayGroup(CollectiveGroup):
    """One rank's handle; ``backend`` is "gloo" or "nccl".

    Arrays are NumPy's with gloo, CuPy's with nccl, of types that the backend knows. Ray offers neither a
    deadline nor an abort here: :class:`When`'s is not kept, an abort stops this rank's next collective but
    releases no rank that waits (torch gives up after half an hour; a gang ends the actors), ranks that come for
    different things are noticed at a barrier or a vote only, and results need not be the same bits in each run.

    Raises:
        CollectiveError: the backend cannot work here (the message says what to install), or failed.
    """

    def __init__(
        self, name: str, rank: int, size: int, backend: str, within: float = DEADLINE_S
    ) -> None:
        self.name, self.rank, self.size, self.backend = name, rank, size, backend
        self._given_up: str | None = None
        self._step = NO_STEP
        self._arrays = _module(backend)
        with self._explained("forming the group"):
            milliseconds = int(within * 1e3)  # for rank 0 to tell its address; GLOO alone heeds it
            collective.init_collective_group(
                size,
                rank,
                backend.upper(),  # type: ignore[arg-type]
                name,
                milliseconds,
            )
        node = zlib.crc32(ray.get_runtime_context().get_node_id().encode())
        nodes = self.all_gather(self._arrays.asarray([node], dtype="int64"))
        self.local_size = sum(int(other[0]) == node for other in nodes)

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        if self._given_up is not None:
            raise CollectiveAborted(f"group {self.name}: {what} was aborted: {self._given_up}")
        try:
            yield
            if self.backend == "nccl":  # Ray's streams wait for ours, but not ours for them
                self._arrays.cuda.runtime.deviceSynchronize()
        except Exception as error:
            raise CollectiveError(
                f"group {self.name}: {what} failed in Ray's {self.backend.upper()}: {error}"
            ) from error

    def buffer(self, nbytes: int) -> Any:
        """Return ``nbytes`` of zeroed memory (uint8) where the backend wants it."""
        return self._arrays.zeros(nbytes, "uint8")

    def begin(self, step: int) -> None:
        """Say which step the barriers and votes that follow belong to; ranks in different steps stop."""
        self._step = step

    def all_reduce(self, array: Any, op: str = "sum", when: When = WHEN) -> None:
        """Combine ``array`` over the ranks, in place. ``op``: sum, mean, product, min, max."""
        check_op(op, array.dtype)
        with self._explained(f"all_reduce/{op} {when.tag}"):
            collective.allreduce(flat(array), self.name, _OPS[op])
        self._divided(array, op)

    def _divided(self, array: Any, op: str) -> None:
        if op == "mean":
            self._arrays.divide(array, self.size, out=array, casting="unsafe")

    def reduce_parts(
        self, array: Any, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
        check_op(op, array.dtype)
        row = flat(array)
        for span, root in zip(spans(ends), roots, strict=True):
            part = row[span]
            # NCCL may use the memory of the others as scratch.
            operand = part if root == self.rank else part.copy()
            with self._explained(f"reduce/{op} {when.tag}"):
                collective.reduce(operand, root, self.name, _OPS[op])
            if root == self.rank:
                self._divided(part, op)

    def broadcast_parts(self, array: Any, ends: Ints, roots: Ints, when: When = WHEN) -> None:
        row = flat(array)
        for span, root in zip(spans(ends), roots, strict=True):
            with self._explained(f"broadcast {when.tag}"):
                collective.broadcast(row[span], root, self.name)

    def all_gather(self, array: Any, when: When = WHEN) -> list[Any]:
        gathered = [self._arrays.empty_like(array) for _ in range(self.size)]
        with self._explained(f"all_gather {when.tag}"):
            collective.allgather(gathered, array, self.name)
        return gathered

    def reduce_scatter(self, arrays: Sequence[Any], op: str = "sum", when: When = WHEN) -> Any:
        check_op(op, arrays[0].dtype)
        result = self._arrays.empty_like(arrays[self.rank])
        with self._explained(f"reduce_scatter/{op} {when.tag}"):
            copies = [array.copy() for array in arrays]  # Ray's GLOO writes into them
            collective.reducescatter(result, copies, self.name, _OPS[op])
        self._divided(result, op)
        return result

    def exchange(self, numbers: np.ndarray, when: When = WHEN) -> np.ndarray:
        parts = self._arrays.stack(self.all_gather(self._arrays.asarray(numbers), when))
        return np.array(parts) if self.backend == "gloo" else self._arrays.asnumpy(parts)

    def barrier(self, when: When = WHEN) -> None:
        """Return when every rank is here, for the same thing and in the same step."""
        request = [zlib.crc32(when.tag.encode()), self._step]
        row = self._arrays.asarray(request, dtype="int64")
        requests = self.all_gather(row, when.about("barrier"))
        others = [r for r, their in enumerate(requests) if [int(word) for word in their] != request]
        if others:
            raise CollectiveError(
                f"group {self.name}: {named(others)} came for another collective than rank {self.rank}, "
                f"which came for barrier ({when.tag}){format_step(self._step)}."
            )

    @property
    def aborted(self) -> str | None:
        return self._given_up

    def abort(self, reason: str) -> None:
        """Refuse further collectives of this rank; ranks that wait for it are not released."""
        self._given_up = self._given_up or f"rank {self.rank} failed: {reason}"

    def reset(self, epoch: int) -> None:
        self._given_up = None

    def close(self) -> None:
        collective.destroy_collective_group(self.name)


def _module(backend: str) -> Any:
    """Return the library whose arrays the backend takes, or say what is missing."""
    needs, modules = _NEEDS[backend]
    load: Callable[[str], Any] = importlib.import_module
    try:
        libraries = [load(module) for module in modules]
        if backend == "gloo":
            return np
        if not libraries[0].cuda.runtime.getDeviceCount():
            raise CollectiveError("there is no GPU")
    except Exception as error:
        raise CollectiveError(f"{needs}. Here: {error}.") from error
    return libraries[0]
