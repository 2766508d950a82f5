"""Read files through a shell command, as ``command < file`` writes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from ...strategies.errors import DamagedFile, MissingFile

PLAIN = "cat"  # the command that changes nothing
_BLOCK = 1 << 18  # bytes read at a time: what is made of them stays in caches
_UNREAD = (-signal.SIGPIPE, 128 + signal.SIGPIPE)  # the next command wanted no more
_SHOWN = 2000  # characters of what a command that failed wrote to stderr


def check_file(file: str) -> None:
    """Raise MissingFile where a file of a dataset is not there."""
    if not os.path.isfile(file):
        kind = "is a folder" if os.path.isdir(file) else "is not there"
        raise MissingFile(
            f"the dataset's file {file!r} {kind} (looked for from {os.getcwd()!r}). set_filelist takes paths "
            f"of files that this host sees."
        )


def blocks_of(file: str, command: str) -> Iterator[bytes]:
    """Yield what a command makes of a file, in blocks; a file that ends with .gz is unpacked first.

    Raises:
        MissingFile: there is no such file.
        DamagedFile: the command failed; the text has the end of what it wrote to stderr.
    """
    check_file(file)
    if command == PLAIN and not file.endswith(".gz"):
        with open(file, "rb") as source:
            while block := source.read(_BLOCK):
                yield block
        return
    yield from _Pipeline(file, command).blocks()


class _Pipeline:
    """The processes between a file and its reader; they end with their reader."""

    def __init__(self, file: str, command: str) -> None:
        self._file = file
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the processes
        commands = ["gzip -dc"] * file.endswith(".gz") + [command] * (command != PLAIN)
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        with open(file, "rb") as source:
            ahead: Any = source
            for text in commands:
                process = subprocess.Popen(
                    text,
                    shell=True,
                    stdin=ahead,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    start_new_session=True,  # a group of its own, which ends as a whole
                )
                if ahead is not source:
                    ahead.close()  # so that the first command notices when the second ends
                ahead = process.stdout
                self._processes.append((text, process))

    def blocks(self) -> Iterator[bytes]:
        output = self._processes[-1][1].stdout
        assert output is not None
        try:
            while block := output.read1(_BLOCK):  # type: ignore[attr-defined]
                yield block
            output.close()
            self._check()
        finally:
            for _, process in self._processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._stderr.close()

    def _check(self) -> None:
        codes = [(text, process.wait()) for text, process in self._processes]
        self._stderr.seek(0)
        stderr = self._stderr.read().decode(errors="replace")
        for text, code in codes:
            unread = (text, code) != codes[-1] and code in _UNREAD
            if code and not unread:
                how = f"with status {code}" if code > 0 else f"by signal {-code}"
                raise DamagedFile(
                    f"the pipe command {text!r} ended {how} on {self._file!r} (run in {os.getcwd()!r}). "
                    f"It wrote to stderr:\n{stderr[-_SHOWN:].strip() or '(nothing)'}"
                )
        if stderr:
            sys.stderr.write(stderr)
