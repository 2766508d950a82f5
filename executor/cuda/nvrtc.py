"""CUDA C++ source -> machine code of one GPU generation, by NVRTC, cached on disk.

It needs neither a GPU nor a driver.
"""

from __future__ import annotations

import ctypes
from functools import cache

from ...strategies.errors import ExecutionError, Unsupported
from ..host.disk_cache import disk_cache, entry
from .kernel import CudaKernel
from .libraries import library


@cache
def version() -> str:
    """Return NVRTC's version, "" if it is not installed."""
    nvrtc = library("nvrtc")
    if nvrtc is None:
        return ""
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def machine_code(kernel: CudaKernel, capability: tuple[int, int]) -> bytes:
    """Return a kernel as a cubin for GPUs of a compute capability.

    Raises:
        Unsupported: NVRTC is not installed.
        ExecutionError: the source does not compile (a bug of this package); the message has NVRTC's words.
    """
    architecture = f"sm_{capability[0]}{capability[1]}"
    name = entry(f"{version()} {architecture}\n{kernel.text}", ".cubin")
    return disk_cache().computed(name, lambda: _compile(kernel, architecture))


def _compile(kernel: CudaKernel, architecture: str) -> bytes:
    nvrtc = library("nvrtc")
    if nvrtc is None:
        raise Unsupported("kernels for a GPU need NVRTC: pip install '.[gpu]' in Rowlock's folder.")
    program = ctypes.c_void_p()
    text = kernel.text.encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, kernel.name.encode(), 0, None, None)
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--fmad=true"]
    failed = nvrtc.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*options)
    )
    try:
        if failed:
            raise ExecutionError(f"kernel {kernel.name}: {_output(nvrtc, program, 'ProgramLog')!r}")
        return _output(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _output(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, kind: str) -> bytes:
    size = ctypes.c_size_t()
    nvrtc[f"nvrtcGet{kind}Size"](program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    nvrtc[f"nvrtcGet{kind}"](program, buffer)
    return buffer.raw
