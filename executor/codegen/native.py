"""Source text of a function -> a native function, compiled once per machine and kept on disk.

The source is in the part of Python that ``translation.py`` knows, with one parameter: ``words``, the address of
a block of int64 in which stand addresses, sizes and strides. What is kept is object code, keyed by the source,
the compiler's version and the CPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..host.disk_cache import disk_cache
from ..host.numbered import NumberedCall, packer
from ..host.writes import address

Launch = Callable[[], Any]
ENTRY = "run"  # the function in a source that is compiled
_ABI = "4"  # how an entry is translated and called, and how a file is laid out
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_lock = threading.Lock()
_loaded: dict[str, tuple[Any, ...]] = {}  # source -> the function, and what must live as long as it


class _Compiling(threading.local):
    """What a thread spent on compiling, in seconds of the processor's."""

    seconds = 0.0


_compiling = _Compiling()


@cache
def version() -> str:
    """Return what decides over the bits that come out: compiler and CPU ("": no compiler here)."""
    try:
        compiler = f"llvmlite {metadata.version('llvmlite')}"
    except metadata.PackageNotFoundError:
        return ""
    return f"{compiler}, {platform.machine()} {cpu()}"


def cpu() -> str:
    """Return a hash of the CPU's name and features, which the compiler makes use of."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return hashlib.sha256(platform.processor().encode()).hexdigest()[:16]
    fields = ("cpu family", "model", "flags", "Features", "CPU part")
    features = dict.fromkeys(line for line in lines if line.partition(":")[0].strip() in fields)
    return hashlib.sha256("\n".join(features).encode()).hexdigest()[:16]


def compiled(source: str) -> Callable[..., Any]:
    """Return the native form of the function ``run(words)`` in ``source``."""
    entry = _loaded.get(source)
    if entry is None:
        with _lock:
            entry = _loaded.get(source)
            if entry is None:
                entry = _loaded[source] = _made(source)
    function: Callable[..., Any] = entry[0]
    return function


def _made(source: str) -> tuple[Any, ...]:
    key = hashlib.sha256(f"{_ABI}\n{version()}\n{source}".encode()).hexdigest()
    symbol = f"rowlock_{key[:32]}"

    def compile_source() -> bytes:
        began = time.thread_time()
        from .compiler import object_code

        code = object_code(source, ENTRY, symbol)
        _compiling.seconds += time.thread_time() - began
        return code

    return _load(disk_cache().computed(f"{key}.o", compile_source), symbol)


def compiling_s() -> float:
    """Return the processor time in seconds that this thread has spent on compiling."""
    return _compiling.seconds


def launch(source: str, words: Sequence[int] | np.ndarray, *alive: Any) -> Launch:
    """Return a call of a compiled source on these words; ``alive`` are the arrays whose addresses they hold.

    An array of words may be written between the calls.
    """
    steady = not isinstance(words, np.ndarray)
    if steady:
        words = np.frombuffer(packer(len(words))(*words), np.int64)
    call = _Launch(compiled(source), ctypes.c_void_p(address(words)))
    call.alive, call.steady = (words, *alive), steady
    return call


class _Launch(NumberedCall):
    """A call with the address of its words. ``steady``: nothing writes these between the calls."""

    __slots__ = ("steady",)
    steady: bool

    @property
    def form(self) -> Hashable:
        return self.func, len(self.alive[0])

    @property
    def numbers(self) -> Sequence[int] | None:
        return self.alive[0].tolist() if self.steady else None

    def reading(self, words: np.ndarray) -> _Launch:
        call = _Launch(self.func, ctypes.c_void_p(address(words)))
        call.alive, call.steady = (words, *self.alive[1:]), False
        return call


def _load(code: bytes, symbol: str) -> tuple[Any, ...]:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    file = llvm.ObjectFileRef.from_data(code)
    engine.add_object_file(file)
    engine.finalize_object()
    return _SIGNATURE(engine.get_function_address(symbol)), engine, file, code
