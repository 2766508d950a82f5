"""CUDA C++ kernels -> functions of this process, by a C++ compiler; what was compiled before is on disk.

What kernels include takes a compiler longer than they do themselves, so it is compiled once, as a precompiled
header.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..codegen.native import directory
from .kernel import CudaKernel, included

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
        path = directory() / "host" / f"{_key(header + source)}.so"
        if not path.exists():
            folder = str(_precompiled(header))
            options = ["-shared", "-I", folder, "-x", "c++", "-", "-x", "none", *_LIBRARIES]
            _compile(kernel.name, path, options, source)
        found = _functions[kernel.key] = ctypes.CDLL(str(path)).run
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


@cache
def _precompiled(header: str) -> Path:
    """Return the folder of a header and of its precompiled form; compilers may take either."""
    folder = directory() / "host" / _key(header)
    made = folder / f"{_HEADER}.gch"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            source = Path(own) / _HEADER
            source.write_text(header)
            os.replace(source, folder / _HEADER)  # it is there when others find the precompiled one
        _compile(_HEADER, made, ("-x", "c++-header", str(folder / _HEADER)))
    return folder


def _compile(what: str, path: Path, options: Sequence[str], text: str = "") -> None:
    """Compile a file named in the options, or a text; what is made is whole or absent."""
    compiler = host_compiler()
    assert compiler is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "made"
        command = [compiler, *_OPTIONS, *options, "-o", str(made)]
        done = subprocess.run(command, input=text.encode(), capture_output=True)
        if done.returncode:
            raise AssertionError(f"{what} does not compile:\n{done.stderr.decode()}")
        os.replace(made, path)


def _key(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
