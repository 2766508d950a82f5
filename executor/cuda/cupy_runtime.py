"""A real GPU, through CuPy: its streams, events, graphs and memory; kernels from NVRTC."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import weakref
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...strategies.errors import ExecutionError
from ...strategies.garbage import gc_paused
from ..host.disk_cache import disk_cache
from . import nvrtc
from .kernel import CudaKernel
from .libraries import library
from .runtime import Captured, Dims, Event, Fork, Properties, Runtime, Step

if TYPE_CHECKING:
    from .dnn import Dnn
    from .gemm import Blas

_NUMBERS: dict[str, type[np.generic]] = {
    "float": np.float32,
    "double": np.float64,
    "int": np.int32,
    "unsigned": np.uint32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
}
# of streams' priorities: below the least number of any GPU, which CUDA takes in its place
_FIRST = -100


def _keep_cupys_kernels() -> None:
    """Have CuPy store its own kernels where other users cannot write, or in memory, unless the user chose."""
    if "CUPY_CACHE_DIR" not in os.environ:
        folder = disk_cache().folder_for("cupy")
        if folder is not None:
            os.environ["CUPY_CACHE_DIR"] = str(folder)
        else:
            os.environ.setdefault("CUPY_CACHE_IN_MEMORY", "1")


class CupyRuntime(Runtime):
    """A GPU of this process, of number ``index``."""

    name = "cupy"

    def __init__(self, index: int = 0) -> None:
        _keep_cupys_kernels()
        import cupy

        self.xp = cupy
        self.index = index
        self._device = cupy.cuda.Device(index)
        with self._device:
            device_properties = cupy.cuda.runtime.getDeviceProperties(index)
            self.compute = cupy.cuda.Stream(non_blocking=True)
            self.copies = cupy.cuda.Stream(non_blocking=True)
            self.fetches = cupy.cuda.Stream(non_blocking=True)
        self._streams: list[Any] = []
        self.properties = Properties(
            device_properties["name"].decode(),
            (device_properties["major"], device_properties["minor"]),
            device_properties["multiProcessorCount"],
            device_properties["totalGlobalMem"],
        )
        self._functions: dict[str, Any] = {}
        self._while_captured = cupy.cuda.MemoryPool()  # memory of graphs is used by nothing else

    @cached_property
    def blas(self) -> Blas:
        from .cublaslt import CublasLt

        return CublasLt(self)

    @cached_property
    def dnn(self) -> Dnn:
        from .cudnn import Cudnn

        return Cudnn(self)

    @cached_property
    def nccl(self) -> Any:
        """CuPy's NCCL, if that can be loaded."""
        nccl = importlib.import_module("cupy.cuda.nccl")  # CuPy does not import it by itself
        return nccl if nccl.available else None

    def versions(self) -> dict[str, str]:
        """Return the libraries that can be loaded, and their versions with the GPU's name."""
        from . import cublaslt, cudnn

        by_library = {
            "cuda": nvrtc.version(),
            "cublaslt": cublaslt.version(),
            "cudnn": cudnn.version(),
        }
        if self.nccl is not None:
            by_library["nccl"] = str(self.nccl.get_version())
        gpu = f"{self.properties.name}, CuPy {self.xp.__version__}"
        return {name: f"{version}, {gpu}" for name, version in by_library.items() if version}

    def empty(self, nbytes: int) -> Any:
        """Return device memory from CuPy's pool, to be used in the order of the compute stream."""
        with self._device:
            current = self.xp.cuda.get_current_stream()
            self.compute.use()  # a ``with`` would leave the null stream in use
            try:
                return self.xp.empty(nbytes, np.uint8)
            except self.xp.cuda.memory.OutOfMemoryError as error:
                raise MemoryError(str(error)) from error
            finally:
                current.use()

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return page-locked host memory; large blocks are not CuPy's, which come in powers of two."""
        cuda = self.xp.cuda
        if nbytes > _LARGE:
            with self._device:
                block = cuda.PinnedMemoryPointer(cuda.PinnedMemory(nbytes), 0)
        else:
            block = cuda.alloc_pinned_memory(max(nbytes, 1))
        return np.frombuffer(block, np.uint8, nbytes)

    def on_host(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def pin(self, array: np.ndarray) -> None:
        """Page-lock host memory; without success copies still work, through the CUDA driver's own buffers."""
        runtime = self.xp.cuda.runtime
        with contextlib.suppress(runtime.CUDARuntimeError), self._device:
            runtime.hostRegister(array.ctypes.data, array.nbytes, 0)

    def unpin(self, array: np.ndarray) -> None:
        runtime = self.xp.cuda.runtime
        with contextlib.suppress(runtime.CUDARuntimeError), self._device:
            runtime.hostUnregister(array.ctypes.data)

    def give_back(self) -> None:
        """Give what CuPy's pool holds and nobody uses back to the GPU, for libraries that have no pool."""
        with self._device:
            self.xp.get_default_memory_pool().free_all_blocks()

    def memory(self) -> tuple[int, int]:
        """Return free and all bytes, as the driver and CuPy's pool tell."""
        with self._device:
            free, total = self.xp.cuda.runtime.memGetInfo()
            return free + self.xp.get_default_memory_pool().free_bytes(), total

    def address(self, array: Any) -> int:
        """Return an array's address; a GPU reaches page-locked memory of the host under its own."""
        return _pointer(array)

    def launch(self, kernel: CudaKernel, grid: Dims, block: Dims, arguments: Sequence[Any]) -> Step:
        kernel = kernel.over(arguments, self.address)
        function = partial(self._function(kernel), grid, block, stream=self.compute)
        return CupyLaunch(function, kernel, arguments)

    def _function(self, kernel: CudaKernel) -> Any:
        function = self._functions.get(kernel.key)
        if function is None:
            module = self.xp.cuda.function.Module()
            with self._device:
                module.load(nvrtc.machine_code(kernel, self.properties.capability))
            function = self._functions[kernel.key] = module.get_function(kernel.name)
        return function

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        """Put a copy on a stream; the kinds of the arrays give its direction."""
        kind = _HOST_TO_DEVICE if isinstance(source, np.ndarray) else _DEVICE_TO_DEVICE
        kind = _DEVICE_TO_HOST if isinstance(target, np.ndarray) else kind
        self.xp.cuda.runtime.memcpyAsync(
            _pointer(target), _pointer(source), target.nbytes, kind, stream.ptr
        )

    def copying(self, target: Any, source: Any) -> Step:
        return Captured(self.copy, target, source, self.compute)

    def execute(self, steps: Sequence[Step]) -> None:
        """Make the calls: each puts its work on the compute stream, the current one."""
        for step in steps:
            step()

    def stream(self, urgent: bool = False) -> Any:
        """Return one more stream, of the GPU's highest priority if it is urgent."""
        with self._device:
            stream = self.xp.cuda.Stream(non_blocking=True, priority=_FIRST if urgent else None)
        self._streams.append(stream)
        return stream

    def fork(self, stream: Any, step: Step) -> CupyFork:
        with self._device:
            return CupyFork(self.xp, self.compute, stream, step)

    def host(self, step: Step) -> None:
        """Make a call; its reads of device memory are ordered by the stream."""
        step()

    def capture(self, steps: Sequence[Step]) -> Step:
        """Return the launch of a CUDA graph that holds the work of the steps.

        Nothing else is under way then: a capture fails if memory, events or modules are given back meanwhile.
        """
        self.synchronize()
        gc.collect()
        with gc_paused(), self.xp.cuda.using_allocator(self._while_captured.malloc):
            self.compute.begin_capture()
            try:
                for step in steps:
                    step()
            except BaseException:
                with contextlib.suppress(Exception):  # it says that the capture has failed
                    self.compute.end_capture()
                raise
            graph = self._end_capture(any(isinstance(step, Fork) for step in steps))
        graph.upload(self.compute)
        return partial(graph.launch, self.compute)

    def _end_capture(self, of_several_streams: bool) -> Any:
        """Return the captured graph; if several streams took part, with their priorities."""
        driver = library("cuda") if of_several_streams else None
        if driver is None:
            return self.compute.end_capture()
        runtime = self.xp.cuda.runtime
        return PrioritizedGraph(driver, runtime, runtime.streamEndCapture(self.compute.ptr))

    def record(self, stream: Any) -> CupyEvent:
        with self._device:  # an event can be recorded on streams of its own GPU alone
            event = self.xp.cuda.Event(disable_timing=True)
            event.record(stream)
        return CupyEvent(event, self.xp.cuda.runtime)

    def wait(self, stream: Any, event: CupyEvent) -> None:
        stream.wait_event(event.event)

    def synchronize(self) -> None:
        for stream in (self.compute, self.copies, self.fetches, *self._streams):
            stream.synchronize()

    def use(self) -> None:
        self._device.use()
        self.compute.use()


class CupyEvent(Event):
    """A point in a stream."""

    def __init__(self, event: Any, runtime: Any) -> None:
        self.event, self._runtime = event, runtime

    def done(self) -> bool:
        """Tell whether the stream has passed this event; raises errors of the work before it."""
        status = self._runtime.eventQuery(self.event.ptr)
        if status not in (0, _NOT_READY):
            raise self._runtime.CUDARuntimeError(status)
        return bool(status == 0)

    def synchronize(self) -> None:
        self.event.synchronize()


class CupyFork(Fork):
    """A call that puts work on another stream, between two events."""

    def __init__(self, xp: Any, compute: Any, stream: Any, step: Step) -> None:
        self._compute, self._stream, self._step = compute, stream, step
        self._begun = xp.cuda.Event(disable_timing=True)
        self._done = xp.cuda.Event(disable_timing=True)
        self.finish = Captured(compute.wait_event, self._done)

    def __call__(self) -> None:
        self._begun.record(self._compute)
        self._stream.wait_event(self._begun)
        self._step()
        self._done.record(self._stream)


class PrioritizedGraph:
    """A graph whose kernels have the priorities of the streams that they were captured on.

    CuPy's graphs have that of the stream they are launched on. ``graph`` is CUDA's handle, which is let go of.
    """

    def __init__(self, driver: Any, runtime: Any, graph: int) -> None:
        handle, flags = ctypes.c_void_p(), ctypes.c_ulonglong(_USE_NODE_PRIORITY)
        try:
            status = driver.cuGraphInstantiateWithFlags(
                ctypes.byref(handle), ctypes.c_void_p(graph), flags
            )
        finally:
            runtime.graphDestroy(graph)
        if status:
            raise ExecutionError(f"cuGraphInstantiateWithFlags failed with status {status}")
        self._runtime, self._handle = runtime, handle.value
        weakref.finalize(self, runtime.graphExecDestroy, handle.value).atexit = False

    def upload(self, stream: Any) -> None:
        """Put on a stream the work that the first launch would do otherwise."""
        self._runtime.graphUpload(self._handle, stream.ptr)

    def launch(self, stream: Any) -> None:
        """Put its work on a stream."""
        self._runtime.graphLaunch(self._handle, stream.ptr)


class CupyLaunch:
    """A kernel with its arguments; calling ``function`` with these launches it."""

    captured = True

    def __init__(self, function: Any, kernel: CudaKernel, arguments: Sequence[Any]) -> None:
        self.kernel = kernel
        self._function = function
        self._arguments = tuple(
            _argument(kind, value)
            for (kind, _), value in zip(kernel.parameters, arguments, strict=True)
        )

    def __call__(self) -> None:
        self._function(self._arguments)


_LARGE = 16 << 20  # bytes of pinned memory that are worth an allocation of their own
_USE_NODE_PRIORITY = 8  # CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
_NOT_READY = 600  # cudaErrorNotReady: CuPy's Event.done takes every other error for it, too
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3  # cudaMemcpyKind


def _argument(kind: str, value: Any) -> Any:
    if kind.endswith("*"):
        on_host = isinstance(value, np.ndarray)
        return (
            np.uintp(0 if value is None else _pointer(value)) if value is None or on_host else value
        )
    return _NUMBERS[kind](value)


def _pointer(array: Any) -> int:
    if isinstance(array, np.ndarray):
        return int(array.ctypes.data)
    return int(array.data.ptr)
