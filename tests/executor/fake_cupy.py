"""A stand-in for CuPy that notes what is asked of a GPU: names, parameters and streams in use are CuPy's.

Each thread has a stream in use. Behind a ``with`` it is that of the ``with`` around it, or the null stream,
whatever ``use()`` chose before: that is how CuPy 14 has it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

PARAMETERS = {  # of what is called with CUDA in between
    "cuda.Stream.__init__": "self null non_blocking ptds priority",
    "cuda.Stream.begin_capture": "self mode",
    "cuda.Stream.wait_event": "self event",
    "cuda.Event.__init__": "self block disable_timing interprocess",
    "cuda.Event.record": "self stream",
    "cuda.Graph.launch": "self stream",
    "cuda.Graph.upload": "self stream",
    "cuda.function.Module.load": "self cubin",
    "cuda.function.Module.get_function": "self name",
    "cuda.MemoryPool.malloc": "self size",
    "cuda.alloc_pinned_memory": "size",
    "cuda.PinnedMemory.__init__": "self size flags",
    "cuda.get_current_stream": "device_id",
    "cuda.using_allocator": "allocator",
    "cuda.runtime.memcpyAsync": "dst src size kind stream",
    "cuda.runtime.eventQuery": "event",
    "cuda.runtime.streamEndCapture": "stream",
    "cuda.runtime.graphDestroy": "graph",
    "cuda.runtime.graphExecDestroy": "graphExec",
    "cuda.runtime.graphLaunch": "graphExec stream",
    "cuda.runtime.graphUpload": "graphExec stream",
    "cuda.runtime.hostRegister": "ptr size flags",
    "cuda.runtime.hostUnregister": "ptr",
    "cuda.runtime.getDeviceProperties": "device",
}


class CUDARuntimeError(RuntimeError):
    """A failed call."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class Array:
    """Device memory: an address and a size."""

    def __init__(self, nbytes: int, stream: Any) -> None:
        self.nbytes, self.stream = nbytes, stream  # the one in whose order the pool gave it
        self.data = SimpleNamespace(ptr=id(self))
        self.size, self.itemsize = nbytes, 1
        self.shape, self.strides = (nbytes,), (1,)

    def view(self, dtype: Any) -> Array:
        return self

    def fill(self, value: int) -> None:
        self.filled = value  # on the stream in use


class FakeCupy(ModuleType):
    """The module: ``did`` is what was put on streams, ``status`` what an event answers."""

    __version__ = "14"

    def __init__(self) -> None:
        super().__init__("cupy")
        self.did: list[tuple[Any, ...]] = []
        self.blocks: list[tuple[str, int]] = []  # of pinned memory: CuPy's pool's, or alone
        self.status, self.room, self.refuses = 0, 1 << 30, False
        self.allocator: Any = None
        self.local = threading.local()
        self.null = SimpleNamespace(ptr=0)
        self.null.use = lambda: self.in_use(self.null)
        self.cuda = SimpleNamespace(
            Device=lambda index: FakeDevice(self, index),
            Stream=lambda *how, **named: FakeStream(self, *how, **named),
            Event=lambda *how, **named: FakeEvent(self, *how, **named),
            MemoryPool=lambda: SimpleNamespace(malloc=lambda size: None),
            using_allocator=self.using_allocator,
            get_current_stream=lambda device_id=-1: self.current,
            alloc_pinned_memory=lambda size: self.pinned("pool", size),
            PinnedMemory=lambda size, flags=0: self.pinned("own", size),
            PinnedMemoryPointer=lambda mem, offset: mem,
            function=SimpleNamespace(Module=lambda: FakeModule(self)),
            memory=SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {})),
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                getDeviceProperties=lambda device: {
                    **{"name": b"H200", "major": 9, "minor": 0},
                    **{"multiProcessorCount": 132, "totalGlobalMem": 141 << 30},
                },
                eventQuery=lambda event: self.status,
                streamEndCapture=lambda stream: 7,
                graphDestroy=lambda graph: self.note("destroy", graph),
                graphExecDestroy=lambda graphExec: self.note("destroy exec", graphExec),
                graphLaunch=lambda graphExec, stream: self.note("graph", graphExec, stream),
                graphUpload=lambda graphExec, stream: self.note("upload", graphExec, stream),
                memcpyAsync=lambda dst, src, size, kind, stream: self.note(
                    "copy", dst, src, size, kind, stream
                ),
            ),
        )

    def pinned(self, whose: str, size: int) -> bytearray:
        self.blocks.append((whose, size))
        return bytearray(size)

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda: self.note("free_all_blocks"))

    def note(self, *what: Any) -> None:
        self.did.append(what)

    @property
    def current(self) -> Any:
        return getattr(self.local, "stream", self.null)

    def in_use(self, stream: Any) -> Any:
        self.local.stream = stream
        return stream

    @property
    def device(self) -> int:
        return getattr(self.local, "device", 0)

    def empty(self, shape: int, dtype: Any) -> Array:
        if shape > self.room:
            raise self.cuda.memory.OutOfMemoryError("out of memory allocating")
        return Array(shape * np.dtype(dtype).itemsize, self.current)

    @contextlib.contextmanager
    def using_allocator(self, allocator: Any) -> Iterator[None]:
        self.allocator = allocator
        yield
        self.allocator = None


class FakeDevice:
    def __init__(self, cupy: FakeCupy, index: int) -> None:
        self.cupy, self.index = cupy, index
        self.before: list[int] = []

    def use(self) -> None:
        self.cupy.local.device = self.index

    def __enter__(self) -> FakeDevice:
        self.before.append(self.cupy.device)
        self.use()
        return self

    def __exit__(self, *error: Any) -> None:
        self.cupy.local.device = self.before.pop()


class FakeStream:
    count = 0

    def __init__(
        self, cupy: FakeCupy, null: bool = False, non_blocking: bool = False,
        ptds: bool = False, priority: int | None = None,
    ) -> None:  # fmt: skip
        FakeStream.count += 1
        self.cupy, self.ptr, self.device = cupy, FakeStream.count, cupy.device
        self.non_blocking, self.capturing = non_blocking, False
        self.priority = priority

    def use(self) -> FakeStream:
        assert self.device == self.cupy.device
        self.cupy.in_use(self)
        return self

    def __enter__(self) -> FakeStream:
        return self.use()

    def __exit__(self, *error: Any) -> None:
        self.cupy.in_use(self.cupy.null)

    def wait_event(self, event: FakeEvent) -> None:
        self.cupy.note("wait", event, self)

    def synchronize(self) -> None:
        self.cupy.note("synchronize", self)

    def begin_capture(self, mode: int | None = None) -> None:
        self.capturing = True

    def end_capture(self) -> Any:
        self.capturing = False
        if self.cupy.refuses:
            raise CUDARuntimeError(901)
        return SimpleNamespace(
            upload=lambda stream=None: self.cupy.note("upload", stream),
            launch=lambda stream=None: self.cupy.note("graph", stream),
        )


class FakeEvent:
    def __init__(
        self, cupy: FakeCupy, block: bool = False, disable_timing: bool = False,
        interprocess: bool = False,
    ) -> None:  # fmt: skip
        self.cupy, self.ptr, self.device = cupy, id(self), cupy.device

    def record(self, stream: FakeStream) -> None:
        assert stream.device == self.device, "cudaErrorInvalidResourceHandle"
        self.cupy.note("record", self, stream)


class FakeModule:
    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy = cupy

    def load(self, cubin: bytes) -> None:
        assert isinstance(cubin, bytes)

    def get_function(self, name: str) -> Callable[..., None]:
        def function(
            grid: tuple[int, ...], block: tuple[int, ...], args: Any, shared_mem: int = 0,
            stream: Any = None, enable_cooperative_groups: bool = False,
        ) -> None:  # fmt: skip
            self.cupy.note(name, grid, block, args, stream or self.cupy.current)

        return function
