"""``paddle.dataset.common``: the cache folder, downloads into it, archives, and samples in files."""

from __future__ import annotations

import glob
import hashlib
import http.client
import importlib
import logging
import os
import pickle
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any, BinaryIO

from ..graph.program.formats.state_reader import read_state
from ..names import publish_listed
from ..strategies.errors import DamagedFile, InvalidType, InvalidValue, MissingFile

__all__ = ["DATA_HOME", "cluster_files_reader", "download", "fetch_all", "md5file", "split"]

DATA_HOME = os.path.expanduser("~/.cache/paddle/dataset")

_log = logging.getLogger("rowlock")
_TIMEOUT_S = 30.0  # without a byte
_ATTEMPTS = 3
_CHUNK = 1 << 20

Samples = Callable[[], Iterable[Any]]


# -- files of the cache folder ------------------------------------------------------------------


def md5file(fname: str) -> str:
    """Return the MD5 sum of a file in hexadecimal."""
    with open(fname, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """Return the path of a data set's file in the cache folder, downloaded if it is not there whole.

    Raises:
        MissingFile: the file is missing and cannot be downloaded; the text names the file and its folder.
    """
    path = Path(DATA_HOME, module_name, save_name or url.rsplit("/", 1)[-1])
    present = md5file(str(path)) if path.is_file() else None
    if present == md5sum:
        return str(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _log.info("downloading %s to %s", url, path)
    problem = _fetch(url, path, md5sum)
    if problem:
        wrong = f" (the one that is there has MD5 {present})" if present else ""
        raise MissingFile(
            f"{module_name} needs the file {path} with MD5 {md5sum}{wrong}, and {url} could not be "
            f"downloaded: {problem}. Put the file there, then run again."
        )
    return str(path)


def _fetch(url: str, path: Path, md5sum: str) -> str:
    """Download to a file beside ``path`` and put it in place once it is whole; return an error text or ""."""
    problem = ""
    for _ in range(_ATTEMPTS):
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with (
                os.fdopen(handle, "wb") as file,
                urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer,
            ):
                shutil.copyfileobj(answer, file, _CHUNK)
            received = md5file(part)
            if received == md5sum:
                os.chmod(part, 0o644)
                os.replace(part, path)
                return ""
            problem = f"what came has MD5 {received}"
        except urllib.error.URLError as error:  # no such host, no network, no such file
            return str(error.reason)
        except (OSError, http.client.HTTPException) as error:  # broken off
            problem = f"{type(error).__name__}: {error}"
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)
    return problem


def fetch_all() -> None:
    """Download the files of all data sets."""
    from . import __all__ as names

    for name in names:
        module = importlib.import_module(f".{name}", __package__)
        if hasattr(module, "fetch"):
            module.fetch()


# -- archives, read without unpacking them ------------------------------------------------------


def members(path: str, predicate: Callable[[str], Any]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and contents of the files in a tar file whose names fulfil a predicate, in its order."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if member.isfile() and predicate(name):
                    contents = archive.extractfile(member)
                    assert contents is not None
                    with contents:
                        yield name, contents
    except (tarfile.TarError, EOFError) as error:
        raise DamagedFile(f"{path} is no whole tar file: {error}.") from None


def lines_of(path: str, name: str) -> Iterator[bytes]:
    """Yield the lines of one file in a tar file.

    Raises:
        DamagedFile: there is no such file in it.
    """
    for _, contents in members(path, name.__eq__):
        yield from contents
        return
    raise DamagedFile(f"{path} holds no file {name}.")


def needs(module: str, package: str, user: str) -> ModuleType:
    """Import a module that only some data sets need.

    Raises:
        MissingFile: it is not installed; the text says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingFile(
            f"{user} needs {module}, which is not installed: pip install {package}"
        ) from None


# -- samples in files ---------------------------------------------------------------------------


def load_samples(file: BinaryIO) -> Any:
    """Return the samples that :func:`split` wrote: arrays, numbers, strings, and lists of these.

    Nothing that the file names is run; ``pickle.load`` as ``loader`` reads objects of any class.
    """
    return read_state(file, getattr(file, "name", "the file"))


class _TextOrBytes:
    """A file that takes the bytes of ``pickle.dump`` and the text of ``json.dump``."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: str | bytes) -> int:
        """Write bytes, or text as UTF-8."""
        return self._file.write(data.encode() if isinstance(data, str) else data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _dump(samples: list[Any], file: Any) -> None:
    pickle.dump(samples, file, protocol=4)  # the newest that load_samples reads


def split(
    reader: Callable[[], Iterable[Any]],
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[[list[Any], Any], Any] = _dump,
) -> None:
    """Write a reader's samples to files of ``line_count`` each, named by ``suffix`` and their number.

    ``dumper(samples, file)`` writes one file.

    Raises:
        InvalidType: ``dumper`` is no function.
        InvalidValue: ``line_count`` is below 1.
    """
    from ..executor.loading.sample_readers import batch

    _check_callable("dumper", dumper)
    if line_count < 1:
        raise InvalidValue(f"line_count must be above 0, got {line_count!r}.")
    for number, samples in enumerate(batch(reader, line_count)()):
        with open(suffix % number, "wb") as file:
            dumper(samples, _TextOrBytes(file))


def cluster_files_reader(
    files_pattern: str,
    trainer_count: int,
    trainer_id: int,
    loader: Callable[[Any], Iterable[Any]] = load_samples,
) -> Samples:
    """Return a reader of the samples in every ``trainer_count``-th file of a pattern.

    ``loader(file)`` returns the samples of one file, which is open for reading bytes.
    """

    def samples() -> Iterator[Any]:
        _check_callable("loader", loader)
        for path in sorted(glob.glob(files_pattern))[trainer_id::trainer_count]:
            with open(path, "rb") as file:
                yield from loader(file)

    return samples


def _check_callable(name: str, value: Any) -> None:
    if not callable(value):
        raise InvalidType(f"{name} must be callable, got {type(value).__name__}.")


publish_listed(__name__)
