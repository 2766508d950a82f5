"""What memory this host has, for this process: physical memory, or less where a control group says so."""

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
    """Return the bytes that can be had now."""
    left = (limit - _number(used) for limit, used in _limits())
    return max(min([_meminfo("MemAvailable"), *left]), 0)


@cache
def total_memory() -> int:
    """Return the bytes that could be had if nothing else ran."""
    return min([_meminfo("MemTotal"), *(limit for limit, _ in _limits())])


def _limits() -> Iterable[tuple[int, str]]:
    """Yield the limits that hold, and the files that say how much of each is in use."""
    for limit, used in _LIMITS:
        found = _number(limit)
        if 0 < found < _UNLIMITED:
            yield found, used


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
    found = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((int(parts[1]) * 1024 for parts in found), _UNLIMITED)
