"""Named shared memory that does not outlive its users: unlinked once everybody has mapped it."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import time
from collections.abc import Callable

import numpy as np

from ...strategies.errors import CollectiveError

_FOLDER = "/dev/shm"
_POLL_S = 0.0005
_HUGE = 4 << 20  # bytes from which 2 MiB pages are asked for
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, which Python's mmap does not name yet


def segment_path(group: str, part: str) -> str:
    """Return the path of a part of a group's memory."""
    digest = hashlib.sha256(group.encode()).hexdigest()[:24]
    return os.path.join(_FOLDER, f"rowlock-{digest}-{part}")


class Segment:
    """A mapped file: ``array`` are its bytes, ``address`` where they lie in this process.

    ``descriptor`` is the open file where it was asked to stay open (``keep``), else -1.
    """

    def __init__(self, descriptor: int, nbytes: int, path: str, keep: bool = False) -> None:
        self.path = path
        self._map = mmap.mmap(descriptor, nbytes)
        self.descriptor = descriptor if keep else -1
        if not keep:
            os.close(descriptor)
        self.array = np.frombuffer(self._map, np.uint8)
        self.address = int(self.array.ctypes.data)

    @classmethod
    def create(cls, path: str, nbytes: int, keep: bool = False) -> Segment:
        """Make the file (which must not exist), zeroed, readable by this user alone.

        Raises:
            CollectiveError: there is no room for it.
        """
        room = os.statvfs(_FOLDER)
        if room.f_blocks and room.f_bavail * room.f_frsize < nbytes:
            raise _no_room(nbytes)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(descriptor, nbytes)
        return cls(descriptor, nbytes, path, keep)

    @classmethod
    def attach(
        cls,
        path: str,
        nbytes: int,
        within: float,
        who: str,
        *,
        keep: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Segment:
        """Map a file that a peer makes; ``check`` is called while it is not there, and may raise.

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
                    return cls(descriptor, nbytes, path, keep)
                os.close(descriptor)
            check()
            if time.monotonic() > deadline:
                raise CollectiveError(
                    f"{who} did not share its memory within {within} s. These groups join replicas of one "
                    f"host; are all of them on it, and alive?"
                )
            time.sleep(_POLL_S)

    def populate(self, at: int = 0, nbytes: int = 0) -> None:
        """Take the pages (all, or some that begin at a page) now, so that no collective pays for it.

        Raises:
            CollectiveError: there is no room. (Touching a page then would end the process with SIGBUS.)
        """
        if len(self.array) >= _HUGE:
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without them: ordinary pages
        try:
            self._map.madvise(_POPULATE_WRITE, at, nbytes or len(self.array))
        except OSError as error:
            if (
                error.errno != errno.EINVAL
            ):  # before Linux 5.14 the pages come when they are touched
                raise _no_room(len(self.array)) from None

    def unlink(self) -> None:
        """Remove the name; the memory lives on while it is mapped."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass

    def close(self) -> None:
        """Unmap, unless arrays made from the memory are still around; those unmap it when they go."""
        self.array = np.empty(0, np.uint8)
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        try:
            self._map.close()
        except BufferError:
            pass


def _no_room(nbytes: int) -> CollectiveError:
    room = os.statvfs(_FOLDER)
    return CollectiveError(
        f"{_FOLDER} has no room for {nbytes} bytes ({room.f_bavail * room.f_frsize} are free). Give it more "
        f"memory; in a container, with --shm-size."
    )
