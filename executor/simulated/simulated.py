"""A GPU that is simulated on the host: the same plans, kernels and transfers, without the hardware.

Device memory is host memory and kernels are compiled as C++ (``host_compiler.py``). Work stays on its stream
until the host or a stream waits for it, as late as is allowed: a host that reads too early, or a stream that
does not wait for another one, finds old values here as it would on a GPU. NumPy computes products, convolutions
and attention, which libraries compute on a GPU.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import numpy as np

from ...strategies.errors import Unsupported
from ..cuda.kernel import CudaKernel
from ..cuda.runtime import Captured, Dims, Event, Fork, Properties, Step, Waiting
from ..host.host_memory import MemoryRanges, aligned, when_gone
from .host_compiler import compiled, host_compiler
from .on_host import HostMemoryRuntime
from .streams import ALLOCATED, LOOK_S, NOT_YET, SimulatedStream, in_graph

COUNT = "ROWLOCK_SIMULATED_GPUS"  # in the environment: how many GPUs to simulate
MEMORY = "ROWLOCK_SIMULATED_GPU_BYTES"  # of memory for each (default: 4 GiB)


def simulated_gpus() -> int:
    """Return how many GPUs to simulate, by the environment."""
    text = os.environ.get(COUNT, "")
    return int(text) if text.isdigit() else 0


class SimulatedEvent(Event):
    """A point in a stream."""

    def __init__(self, stream: SimulatedStream) -> None:
        self._stream, self._point = stream, stream.put

    def done(self) -> bool:
        """Tell whether the stream has passed this event; each call advances it, as time would."""
        stream = self._stream
        if stream.did < self._point and not stream.advance(stream.did + 1):
            stream.let_others()
        return self._stream.did >= self._point

    def synchronize(self) -> None:
        self._stream.reach(self._point)

    def passed(self) -> Any:
        """As a piece of another stream's work: let that wait for this point."""
        return None if self._stream.advance(self._point) else NOT_YET


class SimulatedFork(Fork):
    """A call of the host that puts work on another stream, behind what is on the compute stream by then."""

    def __init__(self, compute: SimulatedStream, stream: SimulatedStream, step: Step) -> None:
        self._compute, self._stream, self._step = compute, stream, step
        self._ends: deque[int] = deque()  # of work that is still waited for
        self.finish = Captured(self._finish)

    def __call__(self) -> None:
        self._stream.add(SimulatedEvent(self._compute).passed)
        self._step()
        self._ends.append(self._stream.put)

    def _finish(self) -> Any:
        if not self._stream.advance(self._ends[0]):
            return NOT_YET
        self._ends.popleft()
        return None


class SimulatedRuntime(HostMemoryRuntime):
    """One simulated GPU."""

    name = "simulated"

    def __init__(self, index: int = 0) -> None:
        if host_compiler() is None:
            raise Unsupported("a simulated GPU needs a C++ compiler (g++) on this host.")
        memory = int(os.environ.get(MEMORY, 4 << 30))
        self.index = index
        self.properties = Properties("simulated GPU", (9, 0), 4, memory)
        self._streams: list[SimulatedStream] = []
        self._turn = threading.RLock()
        self.compute, self.copies, self.fetches = (self.stream() for _ in range(3))
        self._used_bytes = 0
        self._pinned = MemoryRanges()

    @cached_property
    def nccl(self) -> Any:
        """Collectives through sockets of this host."""
        from . import nccl as simulated_nccl

        return simulated_nccl

    def versions(self) -> dict[str, str]:
        return dict.fromkeys(("cuda", "cublaslt", "cudnn", "nccl"), "simulated")

    def empty(self, nbytes: int) -> np.ndarray:
        """Return device memory, filled with bytes that are NaN as floats."""
        free, _ = self.memory()
        if nbytes > free:
            raise MemoryError(f"{nbytes:,} bytes are needed, {free:,} are free")
        memory = aligned(nbytes)
        memory.fill(0xFF)
        self._used_bytes += nbytes
        address = self.address(memory)
        ALLOCATED[address] = nbytes
        when_gone(memory, partial(self._give_back, address, nbytes))
        return memory

    def _give_back(self, address: int, nbytes: int) -> None:
        self._used_bytes -= nbytes
        ALLOCATED.pop(address, None)

    def pinned(self, nbytes: int) -> np.ndarray:
        return self._pinned.bytes(nbytes)

    def on_host(self, array: np.ndarray) -> bool:
        return array in self._pinned

    def memory(self) -> tuple[int, int]:
        return self.properties.memory - self._used_bytes, self.properties.memory

    def launch(self, kernel: CudaKernel, grid: Dims, block: Dims, arguments: Sequence[Any]) -> Step:
        kernel = kernel.over(arguments, self.address)
        return HostLaunch(compiled(kernel), kernel, (*grid, *block), arguments)

    def copy(self, target: Any, source: Any, stream: SimulatedStream) -> None:
        stream.add(partial(np.copyto, target, source))

    def copying(self, target: Any, source: Any) -> Step:
        return partial(np.copyto, target, source)

    def execute(self, steps: Sequence[Step], by_graph: bool = False) -> None:
        for step in steps:
            call = partial(in_graph, step) if by_graph else step
            if isinstance(step, SimulatedFork):
                call()
            else:
                self.compute.add(call)

    def stream(self, urgent: bool = False) -> SimulatedStream:
        """Return one more stream; which is urgent makes no difference to work that is done in turn."""
        return SimulatedStream(self._streams, self._turn)

    def fork(self, stream: SimulatedStream, step: Step) -> SimulatedFork:
        return SimulatedFork(self.compute, stream, step)

    def host(self, step: Step) -> None:
        """Do the work on the compute stream, then the call; other work goes on beside a call that waits."""
        if not isinstance(step, Waiting):
            self.compute.reach(self.compute.put)
            step()
            return
        finished = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            flowing = pool.submit(self._flow, finished)
            try:
                step()
            finally:
                finished.set()
        flowing.result()

    def _flow(self, finished: threading.Event) -> None:
        while not finished.wait(LOOK_S):
            self.compute.let_others()
            self.compute.advance(self.compute.put)

    def capture(self, steps: Sequence[Step]) -> Step:
        return partial(self.execute, steps, by_graph=True)

    def record(self, stream: SimulatedStream) -> SimulatedEvent:
        return SimulatedEvent(stream)

    def wait(self, stream: SimulatedStream, event: SimulatedEvent) -> None:
        stream.add(event.passed)

    def synchronize(self) -> None:
        for stream in self._streams:
            stream.reach(stream.put)


class HostLaunch:
    """A kernel with its arguments; calling it runs it."""

    captured = True

    def __init__(
        self, function: Any, kernel: CudaKernel, dims: tuple[int, ...], arguments: Sequence[Any]
    ) -> None:
        self.kernel = kernel
        self._alive = arguments  # keeps the arrays alive
        self._values = [
            _value(kind, value)
            for (kind, _), value in zip(kernel.parameters, arguments, strict=True)
        ]
        pointers = [ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in self._values]
        self._arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        self._dims = (ctypes.c_uint * 6)(*dims)
        self._function = function

    def __call__(self) -> None:
        self._function(self._dims, self._arguments)


_SCALARS: dict[str, Any] = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
}


def _value(kind: str, value: Any) -> Any:
    if kind.endswith("*"):
        return ctypes.c_void_p(value.ctypes.data if value is not None else None)
    return _SCALARS[kind](value)
