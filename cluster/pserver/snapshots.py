"""Snapshots of a server on disk: every so many steps, replaced at once, the last two kept."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading

from ...executor.rpc.messages import Barrier, Pull, Service, Snapshot, parts_of
from ...executor.saving.files import replacing
from ...executor.saving.safetensors import read_safetensors, write_safetensors
from ...strategies.errors import DamagedFile
from ...strategies.log import log
from .codec import Record

_NAME = re.compile(r"step-(\d+)\.safetensors")
_KEPT = 2
_EARLIER = "earlier"
_COUNTERS, _ENDPOINT = "counters", "endpoint"


class SnapshotFolder:
    """The snapshots of one endpoint below a folder that all nodes which may host the server see."""

    def __init__(self, folder: str, endpoint: str) -> None:
        self.endpoint = endpoint
        self.path = os.path.join(folder, re.sub(r"[^A-Za-z0-9.-]", "_", endpoint))

    def write(self, snapshot: Snapshot, step: int) -> None:
        """Write a snapshot, and delete the oldest ones."""
        metadata = {_COUNTERS: json.dumps(snapshot.counters), _ENDPOINT: self.endpoint}
        with (
            replacing() as files,
            files.open(os.path.join(self.path, f"step-{step:012d}.safetensors")) as file,
        ):
            write_safetensors(file, snapshot.arrays, metadata)
        for old in self.files()[_KEPT:]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, old))

    def set_aside(self) -> None:
        """Move the snapshots of an earlier training into the folder ``earlier``, in place of those there."""
        aside = os.path.join(self.path, _EARLIER)
        names = self.files()
        if names:
            shutil.rmtree(aside, ignore_errors=True)
            os.makedirs(aside)
        for name in names:
            os.replace(os.path.join(self.path, name), os.path.join(aside, name))

    def files(self) -> list[str]:
        """Return the names of the snapshots, the newest first."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted((name for name in names if _NAME.fullmatch(name)), reverse=True)

    def newest(self) -> tuple[Snapshot, int] | None:
        """Return the newest snapshot that is whole, and its step; None if there is none."""
        for name in self.files():
            match = _NAME.fullmatch(name)
            assert match is not None
            try:
                arrays, metadata = read_safetensors(os.path.join(self.path, name))
                return Snapshot(arrays, json.loads(metadata[_COUNTERS])), int(match[1])
            except (DamagedFile, KeyError, ValueError) as error:
                log.warning("a snapshot of %s is passed over: %s", self.endpoint, error)
        return None


class SnapshotTaker(threading.Thread):
    """Takes a snapshot at the start, and whenever trainers are ``every`` steps beyond the last."""

    def __init__(self, service: Service, folder: SnapshotFolder, every: int, step: int = 0) -> None:
        super().__init__(name="rowlock-snapshots", daemon=True)
        self._service, self._folder, self._every = service, folder, every
        self._reached = self._last = step
        self._durable: dict[int, int] = {}  # by trainer, the last step that a snapshot has
        self._changed = threading.Condition()
        self._closed = False
        self._take(step)

    def answered(self, record: Record, answer: Record) -> int:
        """Note how far trainers are; return the last step of the sender that a snapshot has."""
        trainer, step = _progress(record)
        with self._changed:
            if step > self._reached:
                self._reached = step
                if step >= self._last + self._every:
                    self._changed.notify_all()
            return self._durable.get(trainer, 0)

    def run(self) -> None:
        """Take snapshots until it is closed; training goes on if one cannot be written."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._reached >= self._last + self._every
                )
                if self._closed:
                    return
                self._last = step = self._reached
            try:
                self._take(step)
            except OSError as error:
                log.error("no snapshot of %s at step %d: %s", self._folder.endpoint, step, error)

    def _take(self, step: int) -> None:
        snapshot = self._service.snapshot()
        self._folder.write(snapshot, step)
        trainers = snapshot.counters.get("trainers", {})
        with self._changed:
            self._durable = {int(t): int(trainer["number"]) for t, trainer in trainers.items()}

    def close(self) -> None:
        """End after the snapshot that is being written."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.join()


def _progress(record: Record) -> tuple[int, int]:
    """Return whose message this is, and the step that is behind it once it is answered."""
    parts = parts_of(record)  # type: ignore[arg-type]  # a trainer sends messages
    trainer = max((getattr(part, "trainer", -1) for part in parts), default=-1)
    ends = [part.number for part in parts if isinstance(part, (Pull, Barrier))]
    return trainer, max(ends, default=0)
