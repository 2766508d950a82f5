"""Protocols of a GPU: runtime, streams, events, and the calls of a step.

One runtime drives a real GPU through CuPy (``cupy_runtime.py``); one computes on the host, with the same
kernels compiled as C++ (``simulated/simulated.py``). All else in the back end is written against this file.

Work is put on streams and done later, in each stream in order. The calls of a step are of two kinds: work that
a graph can hold (it reads and writes device memory at fixed addresses, so a captured graph can repeat it), and
calls for the host, which split a graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .dnn import Dnn
from .gemm import Blas
from .kernel import CudaKernel
from .step import Dims as Dims
from .step import Step as Step


@dataclass(frozen=True)
class Properties:
    """A GPU's name, compute capability, number of multiprocessors, and bytes of memory."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int


Stream = Any  # a queue of work; ``ptr`` is CUDA's handle


class Captured(partial[Any]):
    """A call whose work a graph can hold."""

    captured = True


class Waiting(partial[Any]):
    """A call for the host that waits for the stream itself, and can give up."""

    captured = False


class Reading(partial[Any]):
    """A call for the host that reads device memory, and so waits for ``compute`` without a deadline."""

    captured = False


class Fork(ABC):
    """A call that puts work on another stream, once ``compute`` has come to it; a graph can hold it.

    A graph that does holds ``finish``, too: the call that has ``compute`` wait for that work.
    """

    captured = True
    finish: Step

    @abstractmethod
    def __call__(self) -> Any:
        """Put the work there."""


class Event(ABC):
    """A point in a stream."""

    @abstractmethod
    def done(self) -> bool:
        """Tell whether the stream has passed this event."""

    @abstractmethod
    def synchronize(self) -> None:
        """Return when the stream has passed this event."""


class Runtime(ABC):
    """One GPU, seen from the one thread that runs its replica.

    ``compute`` is the stream of kernels. Beside them ``copies`` is that of transfers to the GPU; ``fetches`` is
    that of transfers back, which wait for a step that later feeds need not wait for.
    """

    name: str
    index: int
    properties: Properties
    compute: Stream
    copies: Stream
    fetches: Stream
    xp: Any
    """The array module of device memory."""
    nccl: Any
    """The module of collectives (``cupy.cuda.nccl``, or one with its interface); None without one."""

    @property
    @abstractmethod
    def blas(self) -> Blas:
        """The library of matrix products."""

    @property
    @abstractmethod
    def dnn(self) -> Dnn:
        """The library of convolutions, norms and attention."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the libraries that work here ("cuda", "cublaslt", "cudnn", "nccl"), and their versions."""

    @abstractmethod
    def empty(self, nbytes: int) -> Any:
        """Return ``nbytes`` bytes (uint8) of device memory, on a boundary of 256 bytes.

        Raises:
            MemoryError: there is not so much.
        """

    @abstractmethod
    def pinned(self, nbytes: int) -> np.ndarray:
        """Return ``nbytes`` bytes of host memory that transfers can use directly."""

    @abstractmethod
    def on_host(self, array: Any) -> bool:
        """Tell whether an array lies in memory that ``pinned`` gave."""

    @abstractmethod
    def pin(self, array: np.ndarray) -> None:
        """Let transfers use host memory that is there already directly, if the system allows it."""

    @abstractmethod
    def unpin(self, array: np.ndarray) -> None:
        """Undo :meth:`pin`, before the memory goes."""

    @abstractmethod
    def give_back(self) -> None:
        """Give back device memory that was used and is not any more, such as a tuner's."""

    @abstractmethod
    def memory(self) -> tuple[int, int]:
        """Return how many bytes of device memory are free, and how many there are."""

    @abstractmethod
    def address(self, array: Any) -> int:
        """Return where an array's first element lies in device memory."""

    @abstractmethod
    def launch(self, kernel: CudaKernel, grid: Dims, block: Dims, arguments: Sequence[Any]) -> Step:
        """Return the call that puts a kernel on the stream in use; the kernel declares its arguments."""

    @abstractmethod
    def copy(self, target: Any, source: Any, stream: Stream) -> None:
        """Put a copy of as many bytes on a stream: device to device, or from or to pinned host memory.

        Arrays have one shape and type, and no gaps.
        """

    @abstractmethod
    def copying(self, target: Any, source: Any) -> Step:
        """Return the call that puts a copy on ``compute``: on the device, or from or to pinned memory."""

    @abstractmethod
    def execute(self, steps: Sequence[Step]) -> None:
        """Put the work of the steps on ``compute``."""

    @abstractmethod
    def stream(self, urgent: bool = False) -> Stream:
        """Return one more stream; waiting blocks of an ``urgent`` stream start before others."""

    @abstractmethod
    def fork(self, stream: Stream, step: Step) -> Fork:
        """Return a call that lets ``stream`` wait for ``compute``, then puts the work of ``step`` on it."""

    @abstractmethod
    def host(self, step: Step) -> None:
        """Make a call for the host behind all work on ``compute``; a ``Waiting`` call waits by itself."""

    @abstractmethod
    def capture(self, steps: Sequence[Step]) -> Step:
        """Return a call that puts the work of all steps on ``compute`` at once.

        The steps have run before, so that their kernels are compiled and loaded.
        """

    @abstractmethod
    def record(self, stream: Stream) -> Event:
        """Return an event behind all work that is on a stream now."""

    @abstractmethod
    def wait(self, stream: Stream, event: Any) -> None:
        """Let later work on a stream wait for an event of another."""

    @abstractmethod
    def synchronize(self) -> None:
        """Return when all is done."""

    @abstractmethod
    def use(self) -> None:
        """Have the calling thread use this GPU and its compute stream."""


def describe_memory(runtime: Runtime) -> str:
    """Describe the free and the total memory of a GPU, for errors."""
    free, total = runtime.memory()
    return f"{runtime.properties.name} {runtime.index} has {free:,} of {total:,} bytes free"


def graph_can_hold(step: Step, xp: Any) -> bool:
    """Tell whether a captured graph can hold the work of a call.

    Calls of this package have an attribute for it (``captured``). Of CuPy's, element by element functions and
    reductions with an ``out`` array can be captured; products cannot (cuBLAS is refused while a stream is
    captured), nor can calls in which Python computes.
    """
    captured = getattr(step, "captured", None)
    if captured is not None:
        return bool(captured)
    function = getattr(step, "func", None)
    if function is None:
        return False
    name = getattr(function, "__name__", "")
    if name in _PRODUCTS:
        return False
    if isinstance(function, getattr(xp, "ufunc", ())):
        return True
    owner = getattr(function, "__self__", None)
    if name in _METHODS:
        return isinstance(owner, (xp.ndarray, xp.ufunc))
    return name in _FUNCTIONS and getattr(xp, name, None) is function


_PRODUCTS = ("matmul", "dot", "einsum", "tensordot", "vdot", "inner", "outer")
_METHODS = ("fill", "sum", "prod", "max", "min", "all", "any", "reduce")
_FUNCTIONS = ("copyto",)
