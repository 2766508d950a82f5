"""Memory available to this process: physical memory, or the limit of a control group."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

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
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def _meminfo(name: str) -> int:
    try:
        lines = Path(_MEMINFO).read_text().splitlines()
    except OSError:  # not Linux
        return _UNLIMITED
    fields = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((int(parts[1]) * 1024 for parts in fields), _UNLIMITED)
