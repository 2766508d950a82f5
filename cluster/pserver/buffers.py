"""Memory that messages arrive in, used again once no array made from it is left.

A large buffer from the operating system comes as empty pages, which cost more than filling them does.
"""

from __future__ import annotations

import sys
import threading

import numpy as np

_PAGE = 4096
_KEPT_BYTES = 1 << 30


def _references(buffers: list[np.ndarray]) -> list[int]:
    return [sys.getrefcount(buffer) for buffer in buffers]


_UNUSED = _references([np.empty(1)])[0]  # to a buffer that a list alone has


class BufferPool:
    """Buffers by size. CPython counts the references to each: arrays that look into one are among them."""

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._capacity = kept_bytes
        self._by_size: dict[int, list[np.ndarray]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> np.ndarray:
        """Return ``nbytes`` bytes that are not in use."""
        size = -(-nbytes // _PAGE) * _PAGE
        with self._lock:
            buffers = self._by_size.setdefault(size, [])
            references = _references(buffers)
            if _UNUSED in references:
                return buffers[references.index(_UNUSED)][:nbytes]
            if self._bytes + size > self._capacity:
                self._forget_unused()
            buffer = np.empty(size, np.uint8)
            if self._bytes + size <= self._capacity:
                buffers.append(buffer)
                self._bytes += size
            return buffer[:nbytes]

    def _forget_unused(self) -> None:
        for size, buffers in self._by_size.items():
            references = _references(buffers)
            self._bytes -= size * references.count(_UNUSED)
            buffers[:] = [
                b for b, count in zip(buffers, references, strict=True) if count > _UNUSED
            ]
