"""What the operating system tells of processes of this host.

A probe on every other node imports this, and nothing of what a replica needs.
"""

from __future__ import annotations

import os
import time


def process_state(pid: int | str) -> str:
    """Return the state letter of a process of this host (T: stopped), empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def processor_ticks(pid: int) -> int:
    """Return the processor time that a process of this host used, in clock ticks."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError):
        return 0


def look_at(pid: int, seconds: float = 0.1) -> tuple[str, int]:
    """Return a process's state, and the clock ticks that it computes in so many seconds.

    The state is R or D if that of any thread is: it waits for a processor, or for a disk.
    """
    before = processor_ticks(pid)
    time.sleep(seconds)
    ticks, state = processor_ticks(pid) - before, process_state(pid)
    if state not in ("T", "t"):
        states = {process_state(f"{pid}/task/{thread}") for thread in _threads(pid)}
        state = next((waiting for waiting in "RD" if waiting in states), state)
    return state, ticks


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
