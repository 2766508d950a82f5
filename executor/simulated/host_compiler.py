"""CUDA C++ kernels -> functions of this process, by a C++ compiler; what was compiled before is on disk.

What kernels include takes a compiler longer than they do themselves, so it is compiled once, as a precompiled
header.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..cuda.kernel import CudaKernel, included
from ..host.disk_cache import disk_cache

_OPTIONS = ("-O1", "-ffp-contract=off", "-std=c++17", "-fPIC", "-w")
_LIBRARIES = (
    "-nostdlib",
    "-lm",
    "-lc",
    "-lgcc",
)  # no part of C++: that takes a linker longer than all else
_HEADER = "kernel.h"


def host_compiler() -> str | None:
    """Return where a C++ compiler is, None if there is none."""
    return shutil.which("g++") or shutil.which("c++")


def compiled(kernel: CudaKernel) -> Any:
    """Return a kernel as a function of the sizes of grid and block, and of pointers to its arguments."""
    found = _functions.get(kernel.key)
    if found is None:
        source = _source(kernel)
        header = _header(kernel.includes)
        code = _kept(
            f"{_key(header + source)}.so", lambda: _machine_code(kernel.name, header, source)
        )
        found = _functions[kernel.key] = _loaded(code).run
    return found


_functions: dict[str, Any] = {}


def _header(includes: tuple[str, ...]) -> str:
    """Return what stands before a kernel on the host."""
    names = ("shim.h", "base.cuh", *includes, "host16.h")
    return "\n".join(included(name) for name in names)


def _source(kernel: CudaKernel) -> str:
    """Return a kernel and the function that runs it."""
    values = ", ".join(f"*({kind}*)a[{i}]" for i, (kind, _) in enumerate(kernel.parameters))
    return (
        f'#include "{_HEADER}"\n{kernel.own_text}\n'
        f"static void body(void** a) {{ {kernel.name}({values}); }}\n"
        f'extern "C" void run(const unsigned* dims, void** a) '
        f"{{ launch_(dims, {str(kernel.has_barriers).lower()}, body, a); }}\n"
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

    return _kept(f"{_key(header)}.gch", compile_header)


def _kept(name: str, compile_it: Callable[[], bytes]) -> bytes:
    """Return what is on disk under a name, or else what a compiler makes, and keep that."""
    disk = disk_cache()
    code = disk.read(name)
    if code is None:
        code = compile_it()
        disk.write(name, code)
    return code


def _compile(what: str, folder: Path, options: Sequence[str], text: str = "") -> bytes:
    """Compile a file named in the options, or a text, in a folder of this process."""
    compiler = host_compiler()
    assert compiler is not None
    output = folder / "output"
    command = [compiler, *_OPTIONS, *_linker(), *options, "-o", str(output)]
    done = subprocess.run(command, input=text.encode(), capture_output=True)
    if done.returncode:
        raise AssertionError(f"{what} does not compile:\n{done.stderr.decode()}")
    return output.read_bytes()


@cache
def _linker() -> tuple[str, ...]:
    """Return the option that chooses gold, if it is installed: it takes a third of the usual linker's time."""
    return ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()


def _loaded(code: bytes) -> ctypes.CDLL:
    """Load a shared library from memory.

    It is loaded from a file that only this process knows, since one that has passed a check by name could be
    another one when it is opened again; and each has a name of its own, or the loader would take them for one.
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


def _key(text: str) -> str:
    return hashlib.blake2b(f"{platform.machine()}\n{text}".encode(), digest_size=16).hexdigest()
