"""Sleep until another process changes a word of shared memory (Linux futex)."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from functools import partial

_SYSCALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_WAIT, _WAKE = 0, 1  # without the private flag: the word is shared between processes
_EVERYBODY = 2**31 - 1

_ARGUMENTS = (
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int,
)
_sleeping = ctypes.CDLL(None, use_errno=True).syscall  # lets other threads run meanwhile
_sleeping.argtypes = _ARGUMENTS
_waking = ctypes.PyDLL(None).syscall  # returns at once: not worth giving the interpreter away


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def wait(address: int, expected: int, seconds: float) -> None:
    """Sleep while the 32-bit word at ``address`` is ``expected``, at most ``seconds``.

    Returns early for any reason: the caller looks again. ctypes releases the GIL meanwhile.
    """
    if _SYSCALL is None:
        os.sched_yield()
        return
    whole = int(seconds)
    limit = _Timespec(whole, int((seconds - whole) * 1e9))
    _sleeping(_SYSCALL, address, _WAIT, expected, ctypes.addressof(limit), None, 0)


def waker(address: int) -> Callable[[], object]:
    """Return a call that wakes every thread that sleeps on the word at ``address``.

    What was stored before is visible to them.
    """
    if _SYSCALL is None:
        return lambda: None
    values = (_SYSCALL, address, _WAKE, _EVERYBODY)
    converted = [convert(value) for convert, value in zip(_ARGUMENTS, values, strict=False)]
    return partial(_waking, *converted)  # to convert them takes as long as the call
