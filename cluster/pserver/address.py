"""The address of a server: its ports, by which trainers near and far reach it."""

from __future__ import annotations

from typing import NamedTuple

import msgpack


class Address(NamedTuple):
    """Where a server listens: a TCP port and, on its own host, a Unix socket, which is faster.

    ``generation`` tells a server from the one that it was restored from. ``restores``: whether there will be
    another if it ends. ``pid`` is its process there.
    """

    host: str
    port: int
    local_name: str
    secret: bytes
    generation: int
    restores: bool
    pid: int = 0

    def packed(self) -> bytes:
        """Return the address as a server tells it."""
        text: bytes = msgpack.packb(tuple(self))
        return text

    @classmethod
    def read(cls, text: bytes) -> Address:
        """Return the address that a server told."""
        return cls(*msgpack.unpackb(text))
