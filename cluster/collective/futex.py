"""Sleep until another process changes a word of shared memory (Linux futex)."""

from __future__ import annotations

import ctypes
import os
import platform

_SYSCALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_WAIT, _WAKE = 0, 1  # without the private flag: the word is shared between processes
_EVERYBODY = 2**31 - 1

_libc = ctypes.CDLL(None, use_errno=True)


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
    _libc.syscall(
        ctypes.c_long(_SYSCALL),
        ctypes.c_void_p(address),
        ctypes.c_int(_WAIT),
        ctypes.c_uint32(expected),
        ctypes.byref(limit),
        ctypes.c_void_p(None),
        ctypes.c_int(0),
    )


def wake(address: int) -> None:
    """Wake everybody who sleeps on the word at ``address``."""
    if _SYSCALL is not None:
        _libc.syscall(
            ctypes.c_long(_SYSCALL),
            ctypes.c_void_p(address),
            ctypes.c_int(_WAKE),
            ctypes.c_int(_EVERYBODY),
            ctypes.c_void_p(None),
            ctypes.c_void_p(None),
            ctypes.c_int(0),
        )
