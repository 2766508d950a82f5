"""Named shared memory that does not outlive its users: unlinked once everybody has mapped it."""

from __future__ import annotations

import hashlib
import mmap
import os
import time

import numpy as np

from ...strategies.errors import CollectiveError

_FOLDER = "/dev/shm"
_POLL_S = 0.0005


def segment_path(group: str, part: str) -> str:
    """Return the path of a part of a group's memory."""
    digest = hashlib.sha256(group.encode()).hexdigest()[:24]
    return os.path.join(_FOLDER, f"rowlock-{digest}-{part}")


class Segment:
    """A mapped file: ``array`` are its bytes, ``address`` where they lie in this process."""

    def __init__(self, descriptor: int, nbytes: int, path: str) -> None:
        self.path = path
        self._map = mmap.mmap(descriptor, nbytes)
        os.close(descriptor)
        self.array = np.frombuffer(self._map, np.uint8)
        self.address = int(self.array.ctypes.data)

    @classmethod
    def create(cls, path: str, nbytes: int) -> Segment:
        """Make the file (which must not exist), zeroed, readable by this user alone."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(descriptor, nbytes)
        return cls(descriptor, nbytes, path)

    @classmethod
    def attach(cls, path: str, nbytes: int, within: float, who: str) -> Segment:
        """Map a file that a peer makes.

        Raises:
            CollectiveError: it is not there, at its full size, after ``within`` seconds.
        """
        deadline = time.monotonic() + within
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR)
            except FileNotFoundError:
                descriptor = -1
            if descriptor >= 0:
                if os.fstat(descriptor).st_size >= nbytes:
                    return cls(descriptor, nbytes, path)
                os.close(descriptor)
            if time.monotonic() > deadline:
                raise CollectiveError(
                    f"{who} did not share its memory within {within} s. These groups join replicas of one "
                    f"host; are all of them on it, and alive?"
                )
            time.sleep(_POLL_S)

    def unlink(self) -> None:
        """Remove the name; the memory lives on while it is mapped."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass

    def close(self) -> None:
        """Unmap, unless arrays made from the memory are still around; those unmap it when they go."""
        self.array = np.empty(0, np.uint8)
        try:
            self._map.close()
        except BufferError:
            pass
