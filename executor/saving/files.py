"""Files that are replaced at once.

A reader finds the old files or the new ones, also after a save that was killed.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np

from ...graph.program.formats.tensors import write_tensor
from ...strategies.errors import EnforceNotMet, InvalidType, InvalidValue, MissingFile, NotSaved

_NEW_FILE = re.compile(r"\..+\.[0-9a-f]{8}\.saving")
_ABANDONED_S = 3600.0  # whoever wrote a new file this long ago, and has not renamed it, was killed


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
        """Open the new content of ``path`` for writing; missing folders are created.

        Raises:
            NotSaved: it cannot be written, now or in the block.
        """
        path = os.path.realpath(path)
        with _told(path), self._open(path) as file:
            yield file

    @contextmanager
    def _open(self, path: str) -> Iterator[BinaryIO]:
        folder, name = os.path.split(path)
        os.makedirs(folder, exist_ok=True)
        if os.path.isdir(path):  # else found at its turn to be renamed, behind files that were
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
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
        """Let the new files take their places.

        Raises:
            NotSaved: the disk does not take one.
        """
        for beside, path in self._renames:
            with _told(path):
                _force(beside, os.O_RDWR)
        while self._renames:
            with _told(self._renames[0][1]):
                os.replace(*self._renames[0])
                _, path = self._renames.pop(0)
                folder = os.path.dirname(path)
                if not self._renames or os.path.dirname(self._renames[0][1]) != folder:
                    _force(folder, os.O_RDONLY)
                    _sweep(path)

    def discard(self) -> None:
        """Delete the new files."""
        for beside, _ in self._renames:
            try:
                os.unlink(beside)
            except OSError:  # the folder is gone, too
                pass
        self._renames.clear()


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Say of a system's error which file it kept from being saved."""
    try:
        yield
    except EnforceNotMet:
        raise
    except OSError as error:
        failure = NotSaved(
            f"{path!r} cannot be saved: {error.strerror or error}. Make room there, let this user write, "
            f"or save elsewhere; each file that was there before is still whole."
        )
        failure.errno = error.errno
        raise failure from error


def _forget_cached(path: str) -> None:
    """Drop the kernel's page cache of the old file, to leave its memory to the new one."""
    if hasattr(os, "posix_fadvise"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def _sweep(path: str) -> None:
    """Delete the new files that killed saves left beside a file which was saved just now."""
    with suppress(OSError):  # the save is done, whatever becomes of these
        latest = os.stat(path).st_mtime  # by the clock of the file system, not of this host
        with os.scandir(os.path.dirname(path)) as entries:
            for entry in entries:
                if _NEW_FILE.fullmatch(entry.name):
                    with suppress(OSError):
                        if entry.stat(follow_symlinks=False).st_mtime < latest - _ABANDONED_S:
                            os.unlink(entry.path)


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


def path_of(value: Any, argument: str) -> str:
    """Return a path that the user gave as text.

    Raises:
        InvalidType: it is no path.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidType(f"{argument} must be a path, got {value!r}.")
    return os.fspath(value)


def kind_of(path: str) -> str:
    """Return "file" or "folder", "" where there is none.

    Raises:
        MissingFile: this user may not look.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise MissingFile(f"{path!r} cannot be opened: {error}.") from error
    return "folder" if stat.S_ISDIR(mode) else "file"


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


def save_arrays(folder: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write each array to a file of its name in a folder, as ``save_vars`` does; all of them, or none.

    Raises:
        InvalidValue: a file would lie outside the folder.
    """
    with replacing() as files:
        for name, array in arrays.items():
            with files.open(inside(folder, name)) as file:
                write_tensor(file, array, [])
