"""oneDNN's C API (version 3) through ctypes: where the library is, its objects, and their destruction.

The numbers are those of ``dnnl_types.h``; they are the same in all versions 3.x.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ....strategies.errors import ExecutionError, Unsupported

VARIABLE = "ROWLOCK_ONEDNN"  # the path of the library; empty: do without it
_WHEELS = ("onednn-cpu-gomp", "onednn-cpu-iomp", "onednn-cpu-tbb")
_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "last implementation reached",
    5: "runtime error",
    6: "not required",
}
_INSTRUCTIONS = {
    0x1: "sse41",
    0x3: "avx",
    0x7: "avx2",
    0xF: "avx2_vnni",
    0x1F: "avx2_vnni_2",
    0x27: "avx512_core",
    0x67: "avx512_core_vnni",
    0xE7: "avx512_core_bf16",
    0x1EF: "avx512_core_fp16",
    0xFEF: "avx512_core_amx",
    0x1FEF: "avx512_core_amx_fp16",
}
_BFLOAT16 = 0xE7


class Handle:
    """An object of the library, as calls take it; what ``Library.owned`` returns ends with it."""

    __slots__ = ("__weakref__", "_as_parameter_", "_destroy", "value")

    def __init__(self, value: int | None, destroy: Callable[[Any], Any] | None = None) -> None:
        self.value = value
        self._as_parameter_ = ctypes.c_void_p(value)
        self._destroy = destroy

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._destroy is not None and not ending():  # a process that ends has no order to keep
            self._destroy(self._as_parameter_)


class Argument(ctypes.Structure):
    """What a primitive is executed with: a role (source, weights, ...) and the memory that plays it."""

    _fields_ = (("role", ctypes.c_int), ("memory", ctypes.c_void_p))


class Version(ctypes.Structure):
    """The library's word on itself."""

    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


class Library:
    """The loaded library and its CPU engine.

    ``execute(primitive, stream, count, arguments)`` and ``gemm``, which is ``dnnl_sgemm``, are the calls of a
    step; they let other threads run.
    """

    def __init__(self, path: str) -> None:
        self.calls = ctypes.CDLL(path)
        self.path = path
        if not hasattr(self.calls, "dnnl_version"):
            raise OSError(f"{path} is not oneDNN")
        self.calls.dnnl_version.restype = ctypes.POINTER(Version)
        self.version: Version = self.calls.dnnl_version().contents
        if self.version.major != 3:
            raise OSError(f"{path} has version {self.version.major}, not 3")
        self.calls.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.calls.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self._make_memory = self.calls.dnnl_memory_create
        self._make_memory.argtypes = (*[ctypes.c_void_p] * 4,)
        self._end_memory = self.calls.dnnl_memory_destroy
        self.execute = self.calls.dnnl_primitive_execute
        self.execute.restype = _executed
        self.gemm = self.calls.dnnl_sgemm
        self.gemm.restype = _executed
        cpu, first = ctypes.c_int(1), ctypes.c_size_t(0)
        self.engine = self.owned("engine", "engine_create", cpu, first)

    def owned(self, kind: str, call: str, *arguments: Any, what: str = "") -> Handle:
        """Return the object of this kind that ``dnnl_<call>`` makes; ``what`` names it in errors.

        Raises:
            Unsupported: the library does not compute ``what``.
            ExecutionError: it refuses for another reason.
        """
        place = ctypes.c_void_p()
        status = getattr(self.calls, f"dnnl_{call}")(ctypes.byref(place), *arguments)
        if status:
            text = f"oneDNN: {what or call}: {_STATUS.get(status, status)} (status {status})"
            raise Unsupported(text) if status == 3 else ExecutionError(text)
        return Handle(place.value, getattr(self.calls, f"dnnl_{kind}_destroy"))

    def memory(self, descriptor: Handle, address: int) -> Handle:
        """Return a memory object, as :meth:`owned` would: a plan has hundreds of them."""
        place = ctypes.c_void_p()
        status = self._make_memory(ctypes.byref(place), descriptor, self.engine, address)
        if status:
            raise ExecutionError(f"oneDNN: memory: {_STATUS.get(status, status)}")
        return Handle(place.value, self._end_memory)

    def set(self, setter: str, target: Handle, *arguments: Any) -> None:
        """Call ``dnnl_<setter>`` on an object."""
        status = getattr(self.calls, f"dnnl_{setter}")(target, *arguments)
        if status:
            raise ExecutionError(f"oneDNN: {setter}: {_STATUS.get(status, status)}")

    @property
    def instructions(self) -> str:
        """The instruction set that it uses on this processor."""
        isa = self.calls.dnnl_get_effective_cpu_isa()
        return _INSTRUCTIONS.get(isa, hex(isa))

    @property
    def rounds(self) -> bool:
        """Whether this processor has instructions for products in bfloat16."""
        return self.calls.dnnl_get_effective_cpu_isa() & _BFLOAT16 == _BFLOAT16

    def __str__(self) -> str:
        numbers = f"{self.version.major}.{self.version.minor}.{self.version.patch}"
        return f"{numbers} {self.instructions}"


def _executed(status: int) -> None:
    if status:
        raise ExecutionError(f"oneDNN: a primitive failed: {_STATUS.get(status, status)}")


def _places() -> Iterator[str]:
    """Yield where the library may be, in the order in which it is looked for."""
    path = os.environ.get(VARIABLE)
    if path is not None:
        yield from filter(None, [path])
        return
    for wheel in _WHEELS:
        try:
            files = metadata.files(wheel) or ()
        except metadata.PackageNotFoundError:
            continue
        yield from (str(f.locate()) for f in files if f.name == "libdnnl.so.3")
    yield str(Path(sys.prefix, "lib", "libdnnl.so.3"))
    yield from filter(None, [ctypes.util.find_library("dnnl")])


@cache
def library() -> Library | None:
    """Return the library, loaded when first asked for; None if it is not here.

    Raises:
        Unsupported: ROWLOCK_ONEDNN names a file that cannot be loaded.
    """
    for path in _places():
        try:
            return Library(path)
        except OSError as error:
            if VARIABLE in os.environ:
                raise Unsupported(f"{VARIABLE}={path}: {error}") from error
    return None


def version() -> str:
    """Return version and instruction set, on which the bits of results depend; "" without the library."""
    dnnl = library()
    return str(dnnl) if dnnl else ""


def bfloat16() -> str:
    """Return the instruction set if it has products in bfloat16; "" without them, or without the library."""
    dnnl = library()
    return dnnl.instructions if dnnl is not None and dnnl.rounds else ""
