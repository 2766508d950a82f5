"""Files that are replaced at once.

A reader finds the old files or the new ones, also after a save that was killed.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from ...strategies.errors import InvalidValue, MissingFile


class Replacement:
    """New contents for some files, which take the files' places together at the end.

    Everything is written beside the old files and forced to the disk before the first name changes, and
    names change in the order in which the files were written: write last the file that a reader opens
    first.
    """

    def __init__(self) -> None:
        self._renames: list[tuple[str, str]] = []  # (path of the new file, its final path)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """Open the new content of ``path`` for writing; missing folders are created."""
        path = os.path.realpath(path)
        folder, name = os.path.split(path)
        os.makedirs(folder, exist_ok=True)
        beside = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(4)}.saving")
        mode = 0o666
        if os.path.exists(path):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            _forget_cached(path)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        self._renames.append((beside, path))
        with os.fdopen(handle, "wb") as file:
            yield file

    def commit(self) -> None:
        """Let the new files take their places."""
        for beside, _ in self._renames:
            _force(beside, os.O_RDWR)
        while self._renames:
            os.replace(*self._renames[0])
            _, path = self._renames.pop(0)
            if not self._renames or os.path.dirname(self._renames[0][1]) != os.path.dirname(path):
                _force(os.path.dirname(path), os.O_RDONLY)

    def discard(self) -> None:
        """Delete the new files."""
        for beside, _ in self._renames:
            try:
                os.unlink(beside)
            except OSError:  # the folder is gone, too
                pass
        self._renames.clear()


def _forget_cached(path: str) -> None:
    """Drop the kernel's page cache of the old file, to leave its memory to the new one."""
    if hasattr(os, "posix_fadvise"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def _force(path: str, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing() -> Iterator[Replacement]:
    """Give a :class:`Replacement` that is committed at the end of the block, or discarded if it fails."""
    files = Replacement()
    try:
        yield files
        files.commit()
    finally:
        files.discard()


def inside(folder: str, name: str) -> str:
    """Return the path of a variable's file in a folder; the name may have subfolders.

    Raises:
        InvalidValue: the file would lie outside the folder.
    """
    relative = os.path.normpath(name)
    upward = relative == os.pardir or relative.startswith(os.path.join(os.pardir, ""))
    if upward or os.path.isabs(name) or "\0" in name or relative == os.curdir:
        raise InvalidValue(f"the variable {name!r} has no file inside {folder!r}.")
    return os.path.join(folder, relative)


@contextmanager
def reading(path: str, cure: str = "") -> Iterator[BinaryIO]:
    """Open a file to read; ``cure`` ends the error text if the file is missing.

    Raises:
        MissingFile: there is no such file.
    """
    try:
        file = open(path, "rb", buffering=1 << 16)  # noqa: SIM115 - closed below
    except FileNotFoundError:
        folder = os.path.dirname(path)
        if folder and not os.path.isdir(folder):
            raise MissingFile(f"there is no folder {folder!r} to read {path!r} from.") from None
        raise MissingFile(f"there is no file {path!r}.{cure}") from None
    except (OSError, ValueError) as error:
        raise MissingFile(f"the file {path!r} cannot be opened: {error}.{cure}") from error
    with file:
        yield file
