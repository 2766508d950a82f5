"""Cache the results of compilers and tuners on disk; load them only if the user alone can have written them.

Machine code runs with the user's rights, so a file is loaded only from a folder that no other user can change
(its parents included, as SSH demands it of ``authorized_keys``) and with a keyed digest over its name and
content. A file is read once, into the memory whose digest is checked and which is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

_VARIABLE = "ROWLOCK_CACHE_DIR"
_KEY = "key"
_KEY_BYTES = 32
_DIGEST_BYTES = 32
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_MAY_ANYTHING = stat.S_IRWXG | stat.S_IRWXO
_log = logging.getLogger("rowlock")


def cache_directory() -> Path | None:
    """Return the cache's folder: ``ROWLOCK_CACHE_DIR``, or ``~/.cache/rowlock``; None without a home."""
    setting = os.environ.get(_VARIABLE)
    try:
        folder = Path(setting or "~/.cache/rowlock").expanduser()
    except RuntimeError:  # no HOME, and no entry for this user
        return None
    return folder if setting or folder.is_absolute() else None


def disk_cache() -> DiskCache:
    """Return the cache in the directory in force; one that stores nothing if that cannot be used."""
    folder = cache_directory()
    return DiskCache(None) if folder is None else _open(str(folder))


def entry(key: str, suffix: str) -> str:
    """Return the name for all that a key tells apart: a digest of it, and a suffix."""
    return f"{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}{suffix}"


@cache
def _open(path: str) -> DiskCache:
    """Return the cache in a folder, which is created for the user alone if it is missing."""
    try:
        folder = Path(path).resolve()
        _make(folder)
        doubt = distrust(folder)
        if doubt:
            _warn_once(
                f"compiled code is neither kept on disk nor loaded: {doubt}, so others could replace it. "
                f"Run chmod go-w on it, or set {_VARIABLE} to a folder that only "
                f"you can write"
            )
            return DiskCache(None)
        return DiskCache(folder, _key_of(folder))
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        _unusable(path, error)
        return DiskCache(None)


class DiskCache:
    """Bytes by name. Files are whole or absent, so processes may write the same name at once.

    Nothing here raises: without a folder, on a full disk or for a file that is damaged or foreign, the caller
    computes again what is missing.
    """

    def __init__(self, folder: Path | None, key: bytes = b"") -> None:
        self.folder, self._key = folder, key

    def read(self, name: str) -> bytes | None:
        """Return the bytes under a name; None if there are none, or none that can be trusted."""
        if self.folder is None:
            return None
        try:
            content = _read_trusted(self.folder / name, _OTHERS_MAY_WRITE)
        except OSError:
            return None
        if content is None:
            return None
        data = content[_DIGEST_BYTES:]
        good = hmac.compare_digest(content[:_DIGEST_BYTES], self._digest(name, data))
        return data if good else None

    def write(self, name: str, data: bytes, *, first: bool = False) -> bytes:
        """Store bytes under a name, and return the bytes that are stored there now.

        ``first``: bytes that another process stored before stay, so that processes side by side agree.
        """
        if self.folder is None:
            return data
        path = self.folder / name
        try:
            content = self._digest(name, data) + data
            if first and not _put_file(path, content, replace=False):
                existing = self.read(name)
                if existing is not None:
                    return existing
                _put_file(path, content, replace=True)
            elif not first:
                _put_file(path, content, replace=True)
        except OSError as error:
            _unusable(str(self.folder), error)
        return data

    def computed(self, name: str, compute: Callable[[], bytes]) -> bytes:
        """Return the bytes under a name; if there are none, compute and store them."""
        data = self.read(name)
        if data is None:
            self.write(name, data := compute())
        return data

    def drop(self, name: str) -> None:
        """Keep nothing under a name."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()

    def folder_for(self, library: str) -> Path | None:
        """Return a folder for a library's own cache, for the user alone; None if there is none."""
        if self.folder is None:
            return None
        place = self.folder / library
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            return None if distrust(place.resolve()) else place
        except OSError:
            return None

    def _digest(self, name: str, data: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=_DIGEST_BYTES)
        digest.update(name.encode() + b"\0")
        digest.update(data)
        return digest.digest()


def distrust(folder: Path) -> str:
    """Return why another user could change files in a folder; "" if only the user and root can.

    ``folder`` has no links in it. In a parent with the sticky bit, such as ``/tmp``, users cannot replace the
    files of others.
    """
    for place in (folder, *folder.parents):
        status = os.lstat(place)
        mode = stat.S_IMODE(status.st_mode)
        if not _is_ours(status):
            return f"{place} belongs to user {status.st_uid}"
        sticky = place != folder and mode & stat.S_ISVTX
        if mode & _OTHERS_MAY_WRITE and not sticky:
            return f"{place} can be written by others (mode {mode:04o})"
    return ""


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _make(folder: Path) -> None:
    """Make a folder, and the parents that are missing, for the user alone."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            place.mkdir(mode=0o700)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")


def _key_of(folder: Path) -> bytes:
    """Return the key of a folder's digests; create it if it is missing, or if other users may read it."""
    path = folder / _KEY
    for replace in (False, True):
        with contextlib.suppress(FileNotFoundError):
            key = _read_trusted(path, _OTHERS_MAY_ANYTHING)
            if key is not None and len(key) == _KEY_BYTES:
                return key
        _put_file(path, secrets.token_bytes(_KEY_BYTES), replace=replace)
    key = _read_trusted(path, _OTHERS_MAY_ANYTHING)
    if key is None or len(key) != _KEY_BYTES:
        raise OSError(f"{path} stays readable for other users")
    return key


def _read_trusted(path: Path, forbidden: int) -> bytes | None:
    """Return a file's content; None if another user owns it, or if its mode has a forbidden bit."""
    # Without O_NONBLOCK a named pipe would be waited for.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        regular = stat.S_ISREG(status.st_mode)
        if not regular or not _is_ours(status) or status.st_mode & forbidden:
            return None
        with open(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def _put_file(path: Path, content: bytes, *, replace: bool) -> bool:
    """Write a whole file, readable for the user alone; tell whether it has this content now.

    Without ``replace`` an existing file stays, where the file system has links.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if not replace:
            try:
                os.link(name, path)
                return True
            except FileExistsError:
                return False
            except OSError:  # no links here
                pass
        os.replace(name, path)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _unusable(path: str, error: Exception) -> None:
    """Log that nothing can be stored: as a warning only if the user named the folder."""
    text = f"compiled code cannot be kept in {path} ({error}); set {_VARIABLE} to another folder"
    if os.environ.get(_VARIABLE):
        _warn_once(text)
    else:
        _log.info(text)


@cache
def _warn_once(text: str) -> None:
    _log.warning(text)
