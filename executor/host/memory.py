"""Memory available to this process: physical memory, or the limit of a control group."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

_UNLIMITED = 1 << 62
_LIMITS = (  # (limit, in use) of control groups, version 2 and 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
_MEMINFO = "/proc/meminfo"


def available_memory() -> int:
    """Return the bytes that this process can allocate now."""
    remaining = (limit - _number(usage) for limit, usage in _limits())
    return max(min([_meminfo("MemAvailable"), *remaining]), 0)


@cache
def total_memory() -> int:
    """Return the bytes that could be had if nothing else ran."""
    return min([_meminfo("MemTotal"), *(limit for limit, _ in _limits())])


def _limits() -> Iterable[tuple[int, str]]:
    """Yield the limits in force, and the file with the bytes in use of each."""
    for limit, usage in _LIMITS:
        nbytes = _number(limit)
        if 0 < nbytes < _UNLIMITED:
            yield nbytes, usage


def _number(path: str) -> int:
    """Return the number in a file; 0 where there is none ("max": no limit)."""
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _meminfo(name: str) -> int:
    """Return a field of the host's report, in bytes."""
    _, _, rest = _read(_MEMINFO).partition(b"\n%s:" % name.encode())
    return int(rest.split(None, 1)[0]) * 1024 if rest else _UNLIMITED


def _read(path: str) -> bytes:
    """Return what a file of the kernel says, behind a line's end; nothing where there is none.

    It is read before each new shape is bound: without the decoding and buffers of Python's files.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return b"\n" + os.read(file, 1 << 16)
    except OSError:
        return b""
    finally:
        os.close(file)
