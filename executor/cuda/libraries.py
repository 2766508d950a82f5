"""Find the shared libraries of CUDA: in wheels beside this package, or in the system's folders."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from functools import cache
from pathlib import Path


@cache
def library(name: str) -> ctypes.CDLL | None:
    """Return the newest installed library of a name such as ``nvrtc`` or ``cublasLt``; None without one."""
    for path in _candidates(name):
        try:
            for other in _COMPANIONS.get(name, ()):
                for beside in Path(path).parent.glob(f"lib{other}.so*"):
                    ctypes.CDLL(str(beside))
            return ctypes.CDLL(path)
        except OSError:  # it needs others that are not here
            continue
    return None


# What a library opens by name, in whatever folders the system knows: a wheel's is none of these, and not all
# wheels say that their own is to be looked at. What is loaded already is found by its name.
_COMPANIONS = {"nvrtc": ("nvrtc-builtins",)}
# The driver comes with no wheel, and may be where LD_LIBRARY_PATH alone leads.
_SONAMES = {"cuda": "libcuda.so.1"}


def _candidates(name: str) -> list[str]:
    """Return paths by preference: wheels of NVIDIA (``nvidia/*/lib``), then the system's."""
    if name in _SONAMES:
        return [_SONAMES[name]]
    paths: list[Path] = []
    for folder in sys.path:
        nvidia = Path(folder) / "nvidia"
        if nvidia.is_dir():
            paths += nvidia.glob(f"*/lib/lib{name}.so*")
    wheels = sorted((str(path) for path in paths), key=_version, reverse=True)
    system = ctypes.util.find_library(name)
    toolkit = sorted(map(str, Path("/usr/local/cuda/lib64").glob(f"lib{name}.so*")), reverse=True)
    return [*wheels, *([system] if system else []), *toolkit]


def _version(path: str) -> tuple[int, ...]:
    """Return the numbers behind ``.so`` in a path."""
    digits = path.rpartition(".so")[2].strip(".").split(".")
    return tuple(int(part) for part in digits if part.isdigit())
