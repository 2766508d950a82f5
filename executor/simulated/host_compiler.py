"""CUDA C++ kernels -> functions of this process, by a C++ compiler, cached on disk.

The includes of kernels take a compiler longer than the kernels, so they are compiled once, as a precompiled
header.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..cuda.kernel import CudaKernel, included
from ..host.disk_cache import disk_cache, entry

# C's headers alone: those of C++ around them take the compiler a quarter of its time.
_OPTIONS = ("-O1", "-ffp-contract=off", "-std=c++17", "-nostdinc++", "-fPIC", "-w")
# no part of C++: that takes a linker longer than all else
_LIBRARIES = ("-nostdlib", "-lm", "-lc", "-lgcc")
_HEADER = "kernel.h"


def host_compiler() -> str | None:
    """Return where a C++ compiler is, None if there is none."""
    return shutil.which("g++") or shutil.which("c++")


def compiled(kernel: CudaKernel) -> Any:
    """Return a kernel as a function of the sizes of grid and block, and of pointers to its arguments."""
    function = _functions.get(kernel.key)
    if function is None:
        source = _source(kernel)
        header = _header(kernel.includes)
        name = _entry(header + source, ".so")
        code = disk_cache().computed(name, lambda: _machine_code(kernel.name, header, source))
        function = _functions[kernel.key] = _load(code).run
    return function


_functions: dict[str, Any] = {}


def _header(includes: tuple[str, ...]) -> str:
    """Return the text before a kernel on the host."""
    names = ("shim.h", "base.cuh", *includes, "host16.h")
    return "\n".join(included(name) for name in names)


def _source(kernel: CudaKernel) -> str:
    """Return a kernel and the function that runs it."""
    values = ", ".join(f"*({kind}*)a[{i}]" for i, (kind, _) in enumerate(kernel.parameters))
    return (
        f'#include "{_HEADER}"\n{kernel.own_text}\n'
        f"static void body(void** a) {{ {kernel.name}({values}); }}\n"
        f'extern "C" void run(const unsigned* dims, void** a) '
        f"{{ launch_<{str(kernel.has_barriers).lower()}>(dims, body, a); }}\n"
    )


def _machine_code(name: str, header: str, source: str) -> bytes:
    """Compile a kernel that includes a header to a shared library."""
    with _folder() as folder:
        (folder / _HEADER).write_text(header)
        (folder / f"{_HEADER}.gch").write_bytes(_precompiled(header))
        options = ["-shared", "-I", str(folder), "-x", "c++", "-", "-x", "none", *_LIBRARIES]
        return _compile(name, folder, options, source)


@cache
def _precompiled(header: str) -> bytes:
    """Return the precompiled form of a header; compilers may take it, or the header."""

    def compile_header() -> bytes:
        with _folder() as folder:
            (folder / _HEADER).write_text(header)
            options = ("-x", "c++-header", str(folder / _HEADER))
            return _compile(_HEADER, folder, options)

    return disk_cache().computed(_entry(header, ".gch"), compile_header)


def _compile(label: str, folder: Path, options: Sequence[str], text: str = "") -> bytes:
    """Compile a file named in the options, or a text, in a folder of this process."""
    compiler = host_compiler()
    assert compiler is not None
    output = folder / "output"
    command = [compiler, *_OPTIONS, *_linker(), *options, "-o", str(output)]
    process = subprocess.run(command, input=text.encode(), capture_output=True)
    if process.returncode:
        raise AssertionError(f"{label} does not compile:\n{process.stderr.decode()}")
    return output.read_bytes()


@cache
def _linker() -> tuple[str, ...]:
    """Return the option that chooses gold, if it is installed: it takes a third of the usual linker's time."""
    return ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()


def _load(code: bytes) -> ctypes.CDLL:
    """Load a shared library from memory.

    It is loaded from a file that only this process knows, since a file that passed a check by name could be
    replaced before it is opened again; each has its own name, or the loader would take them for one.
    """
    with _folder() as folder:
        path = folder / "kernel.so"
        path.write_bytes(code)
        return ctypes.CDLL(str(path))


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder for this process alone, for a moment."""
    with tempfile.TemporaryDirectory(prefix="rowlock-") as name:
        yield Path(name)


def _entry(text: str, suffix: str) -> str:
    return entry(f"{platform.machine()}\n{text}", suffix)
