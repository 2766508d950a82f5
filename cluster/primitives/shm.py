"""Shared memory that does not outlive its users.

A named file is unlinked once all have mapped it. One whose maker was killed before that is swept by the next
gang or replica that starts on the host. An unnamed one is handed over as a descriptor and leaves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import glob
import hashlib
import mmap
import os
import secrets
import stat
import struct
import time
from collections.abc import Callable

import numpy as np

from ...executor.host.deadline import Deadline
from ...strategies.errors import CollectiveError

_FOLDER = "/dev/shm"
_PREFIX = "rowlock-"
_LEASE_AT = 1 << 40  # the byte whose lock says that a file is in use
_FLOCK = "hhqqi"  # struct flock: type, whence, start, length, process
_POLL_S = 0.0005
FORMING_BYTES = 1 << 20  # a rank's share of what a group has before anything is reduced
_HUGE = 4 << 20  # bytes from which 2 MiB pages are asked for
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, which Python's mmap does not name yet
_SEAL_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE, which Python's fcntl does not name yet


def segment_path(group: str, part: str) -> str:
    """Return the path of a part of a group's memory."""
    digest = hashlib.sha256(group.encode()).hexdigest()[:24]
    return os.path.join(_FOLDER, f"{_PREFIX}{digest}-{part}")


def is_segment(path: object) -> bool:
    """Tell whether this is the path of a part of some group's memory."""
    folder, _, name = str(path).rpartition("/")
    return folder == _FOLDER and name.startswith(_PREFIX)


def forget_segments(group: str) -> None:
    """Take away the names that are left of a group's memory: its ranks were killed before they could."""
    for path in glob.glob(segment_path(group, "*")) if group else ():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class Segment:
    """A mapped file: ``array`` are its bytes, ``address`` where they lie in this process.

    ``descriptor`` is the open file where that was asked for (``keep``) or is needed; else -1.
    """

    def __init__(
        self, descriptor: int, nbytes: int, path: str, keep: bool = False, writes: bool = True
    ) -> None:
        self.path = path
        keep = keep or not _populates()
        access = mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ
        self._map = mmap.mmap(descriptor, nbytes, access=access)
        self.descriptor = descriptor if keep else -1
        if not keep:
            os.close(descriptor)
        self.array = np.frombuffer(self._map, np.uint8)
        self.address = int(self.array.ctypes.data)

    @classmethod
    def create(cls, path: str, nbytes: int, keep: bool = False, resident: int = 0) -> Segment:
        """Make the file (which must not exist), zeroed, readable by this user alone.

        Its first ``resident`` bytes have their pages, and there must be room for them (0: for all of it); the
        others' are taken by :meth:`populate`.

        Raises:
            CollectiveError: there is no room for it, or no file can be made there.
        """
        try:
            refuse_full(resident or nbytes)
            descriptor = named_file(path, nbytes, resident)
        except OSError as error:
            raise _refused(error, resident or nbytes) from error
        return cls(descriptor, nbytes, path, keep)

    @classmethod
    def attach(
        cls,
        path: str,
        nbytes: int,
        within: float,
        maker: str,
        *,
        keep: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Segment:
        """Map a file that a peer makes; ``check`` is called while it is not there, and may raise.

        Raises:
            CollectiveError: it is not there, at its full size, after ``within`` seconds.
        """
        deadline = Deadline(within)
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
            if deadline.over:
                raise CollectiveError(
                    f"{maker} did not share its memory within {within} s. These groups join replicas of one "
                    f"host; are all of them on it, and alive?"
                )
            time.sleep(_POLL_S)

    @classmethod
    def unnamed(cls, nbytes: int) -> Segment:
        """Make memory that other processes get by its descriptor, which it keeps; it never gets smaller.

        Raises:
            OSError: the system gives none.
        """
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        descriptor = os.memfd_create(_PREFIX + "segment", flags)
        try:
            os.ftruncate(descriptor, nbytes)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            return cls(descriptor, nbytes, "", keep=True)
        except BaseException:
            os.close(descriptor)
            raise

    def seal(self) -> None:
        """Let processes that map unnamed memory from now on read it only."""
        with contextlib.suppress(OSError):  # a kernel before 5.1 has no such seal
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)

    @classmethod
    def received(cls, descriptor: int) -> Segment:
        """Map unnamed memory of a peer, whose descriptor came from there and is closed.

        Raises:
            OSError, ValueError: it is something else, or may get smaller while it is read.
        """
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            if not seals & fcntl.F_SEAL_SHRINK:
                raise ValueError("the memory may get smaller")
            writes, nbytes = not seals & _SEAL_FUTURE_WRITE, os.fstat(descriptor).st_size
            segment = cls(descriptor, nbytes, "", keep=True, writes=writes)
            segment.descriptor = -1
            return segment
        finally:
            os.close(descriptor)

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
        nbytes = nbytes or len(self.array)
        try:
            self._map.madvise(_POPULATE_WRITE, at, nbytes)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise _no_room(nbytes) from None
            try:  # a kernel before 5.14: they are taken here, and mapped when they are touched
                os.posix_fallocate(self.descriptor, at, nbytes)
            except OSError as error:
                raise _refused(error, nbytes) from None

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


@functools.cache
def _populates() -> bool:
    """Tell whether the kernel takes pages of a mapping when it is asked to (since Linux 5.14)."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        try:
            page.madvise(_POPULATE_WRITE)
        except OSError:
            return False
    return True


def named_file(path: str, nbytes: int, resident: int = 0) -> int:
    """Return a descriptor of a new file that appears under its name whole, and locked as one in use.

    The lock lasts as long as the file is open or mapped in this process, or in one that it forked: until then
    :func:`sweep` leaves the file alone.

    Raises:
        OSError: it cannot be made; nothing is left then.
    """
    try:
        return _named_when_whole(path, nbytes, resident)
    except FileExistsError:
        raise
    except OSError:  # some file systems make no files without a name; or the cause is told again
        return _named_at_once(path, nbytes, resident)


def _named_when_whole(path: str, nbytes: int, resident: int) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_TMPFILE
    descriptor = os.open(os.path.dirname(path), flags, 0o600)
    try:
        _prepare(descriptor, nbytes, resident)
        here = f"/proc/self/fd/{descriptor}"
        # Only with a folder does Python ask the system to follow this link.
        os.link(here, path, src_dir_fd=descriptor, follow_symlinks=True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _named_at_once(path: str, nbytes: int, resident: int) -> int:
    while True:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
        descriptor = os.open(path, flags, 0o600)
        try:
            _prepare(descriptor, nbytes, resident)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was swept away before it was locked


def _prepare(descriptor: int, nbytes: int, resident: int) -> None:
    with contextlib.suppress(OSError):  # where there are no such locks, nothing is swept either
        _lock(descriptor, fcntl.F_RDLCK, fcntl.F_OFD_SETLKW)
    os.ftruncate(descriptor, nbytes)
    if resident:
        os.posix_fallocate(descriptor, 0, resident)


def _lock(descriptor: int, kind: int, how: int) -> None:
    """Lock a byte far behind the end of a file that is in use. The holder is the open file, not the process."""
    ask = struct.pack(_FLOCK, kind, os.SEEK_SET, _LEASE_AT, 1, 0)
    fcntl.fcntl(descriptor, how, ask)


def sweep() -> list[str]:
    """Remove the files of processes that were killed before they could; return their paths.

    A file is in use while a process holds its lock, also one of another container that shares the folder.
    """
    swept = []
    for path in glob.glob(os.path.join(_FOLDER, f"{_PREFIX}*")):
        with contextlib.suppress(OSError):  # another user's, or in use
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                    _lock(descriptor, fcntl.F_WRLCK, fcntl.F_OFD_SETLK)
                    os.unlink(path)
                    swept.append(path)
            finally:
                os.close(descriptor)
    return swept


def refuse_full(nbytes: int) -> None:
    """Raise CollectiveError if so much shared memory is not free; OSError if there is none at all."""
    room = os.statvfs(_FOLDER)
    if room.f_blocks and room.f_bavail * room.f_frsize < nbytes:
        raise _no_room(nbytes)


def check_shared_memory(nbytes: int = FORMING_BYTES) -> None:
    """Try whether shared memory can be had: what a replica needs to join a group, if no more is asked for.

    Raises:
        CollectiveError: no; says how much was asked for, how much is free, and what to do.
    """
    path = segment_path(secrets.token_hex(8), "trial")
    try:
        descriptor = named_file(path, nbytes, nbytes)
    except OSError as error:
        raise _refused(error, nbytes) from error
    os.unlink(path)  # while it is open: :func:`sweep` takes closed ones
    os.close(descriptor)


def _no_room(nbytes: int) -> CollectiveError:
    return _refused(OSError(errno.ENOSPC, ""), nbytes)


def _refused(error: OSError, nbytes: int) -> CollectiveError:
    """Return the error for shared memory that cannot be had, with what to do."""
    room = 0
    with contextlib.suppress(OSError):
        status = os.statvfs(_FOLDER)
        room = status.f_bavail * status.f_frsize
    if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG):
        return CollectiveError(
            f"{_FOLDER} has no room for {nbytes} bytes ({room} are free). Give it more memory (in a "
            f"container, with --shm-size), or remove files there that are not needed."
        )
    cure = {
        errno.EROFS: "Mount it writable (mount -o remount,rw /dev/shm).",
        errno.EACCES: "Let this user write there (chmod 1777 /dev/shm).",
        errno.EPERM: "Let this user write there (chmod 1777 /dev/shm).",
        errno.ENOENT: "Mount a tmpfs there (mount -t tmpfs tmpfs /dev/shm).",
    }.get(error.errno or 0, "Replicas of one host need memory that they share there.")
    return CollectiveError(
        f"no shared memory of {nbytes} bytes can be had in {_FOLDER}: {error.strerror or error}. {cure}"
    )
