"""Start a job's processes on this host, and end all of them when one fails."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...strategies.errors import InvalidValue, MissingFile

_GRACE_S = 10.0  # between asking a process to end, and ending it
_SERVERS_S = 30.0  # in which servers end by themselves, once all workers have
_SHOWN = 20  # lines of a log
_INTERRUPTED = 130  # the status of what Ctrl-C ended


@dataclass(frozen=True)
class JobProcess:
    """A process to be started. ``log``: the name of its file; ``serves``: it ends behind those that do not."""

    name: str
    environment: Mapping[str, str]
    log: str
    serves: bool = False


class _Running:
    """A process that was started."""

    def __init__(self, member: JobProcess, command: Sequence[str], log_dir: str | None) -> None:
        self.member = member
        self.path = Path(log_dir) / member.log if log_dir is not None else None
        output: IO[bytes] | None = self.path.open("wb") if self.path is not None else None
        environment = {**os.environ, **member.environment}
        for name in ("http_proxy", "https_proxy"):  # members of a job talk to each other directly
            environment.pop(name, None)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        if output is not None:
            output.close()

    def end(self, number: int) -> None:
        """Send a signal to the process and all that it started."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def story(self) -> str:
        """Return how it ended, with the end of its log."""
        code = self.process.returncode
        how = f"status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        text = f"{self.member.name} (process {self.process.pid}) ended with {how}."
        if self.path is None:
            return text
        lines = self.path.read_text(errors="replace").splitlines()[-_SHOWN:]
        return "\n".join([f"{text} The end of {self.path}:", *(f"    {line}" for line in lines)])


def run_job(
    members: Sequence[JobProcess], command: Sequence[str], log_dir: str | None = None
) -> int:
    """Run a command once for each member, and return the job's status: 0, or that of the first that failed.

    A member that fails ends the others, and is named on stderr. Ctrl-C, or SIGTERM, ends all.

    Args:
        members: what to start.
        command: a program and its arguments, the same for all.
        log_dir: a folder for what they write; None: they write where this process does.

    Raises:
        InvalidValue: the folder cannot be made, or written to.
    """
    if log_dir is not None:
        _make_folder(log_dir)
    exits: queue.SimpleQueue[_Running] = queue.SimpleQueue()
    running: list[_Running] = []
    try:
        with _terminable():
            for member in members:
                running.append(_Running(member, command, log_dir))
                threading.Thread(target=_watch, args=(running[-1], exits), daemon=True).start()
            return _await(running, exits)
    except KeyboardInterrupt:
        print("rowlock: interrupted; the job's processes are ended.", file=sys.stderr)
        return _INTERRUPTED
    finally:
        _end_all(running)


def _make_folder(log_dir: str) -> None:
    try:
        os.makedirs(log_dir, exist_ok=True)
        with tempfile.TemporaryFile(dir=log_dir):
            pass
    except OSError as error:
        raise InvalidValue(
            f"--log_dir {log_dir!r}: no files can be written there ({error.strerror}). Name another folder."
        ) from None


def _watch(child: _Running, exits: queue.SimpleQueue[_Running]) -> None:
    child.process.wait()
    exits.put(child)


def _await(running: Sequence[_Running], exits: queue.SimpleQueue[_Running]) -> int:
    """Wait until all have ended, servers last, or one fails."""
    names = {child.member.name for child in running}
    serving = {child.member.name for child in running if child.member.serves}
    deadline: float | None = None
    while names:
        if deadline is None and names <= serving < {child.member.name for child in running}:
            deadline = time.monotonic() + _SERVERS_S
        try:
            child = exits.get(timeout=None if deadline is None else deadline - time.monotonic())
        except (queue.Empty, ValueError):  # ValueError: the deadline has passed
            print(
                f"rowlock: all workers have ended, and {', '.join(sorted(names))} not within {_SERVERS_S:g} s: "
                f"they are ended. A worker says that it has finished by fleet.stop_worker() or exe.close().",
                file=sys.stderr,
            )
            return 0
        names.discard(child.member.name)
        if child.process.returncode:
            others = f" {', '.join(sorted(names))}: ended for it." if names else ""
            print(f"rowlock: {child.story()}\nrowlock: the job failed.{others}", file=sys.stderr)
            code = child.process.returncode
            return code if code > 0 else 128 - code
    return 0


def _end_all(running: Sequence[_Running]) -> None:
    for child in running:
        child.end(signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    for child in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
        child.end(signal.SIGKILL)
        child.process.wait()


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM an interrupt, where this is the main thread."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def script_command(script: str, arguments: Sequence[str], aliased: bool) -> list[str]:
    """Return the command that runs a script of Python; ``aliased``: with Rowlock as ``paddle``.

    Raises:
        MissingFile: there is no such script.
    """
    if not os.path.isfile(script):
        raise MissingFile(f"there is no script {script!r} (looked for from {os.getcwd()!r}).")
    alias = ["-m", "rowlock.alias"] if aliased else []
    return [sys.executable, "-u", *alias, script, *arguments]
