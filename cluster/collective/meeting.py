"""Where the ranks of a host wait for each other: words in shared memory, futexes to sleep on.

Each rank owns a line of the control segment: a sequence word that counts its arrivals, and words that say what
it came for. Waiting spins briefly and then sleeps on the late rank's word.

Words are written with plain stores. That is enough on x86-64, where stores become visible in order; on other
processors the system call in ``wake`` stands between the data and the sleeper's next look.
"""

from __future__ import annotations

import functools
import os
import time
import zlib

import numpy as np

from ...strategies.errors import CollectiveAborted, CollectiveError
from . import futex
from .shm import Segment, segment_path

_LINE = 8  # 64-bit words in a rank's line of the control segment
_SEQUENCE, _REQUEST, _ATTACHED = 0, 1, 2
_EPOCH_SHIFT = 40  # a sequence word is the epoch, then 40 bits of arrivals
_REASON_BYTES = 512
_SPIN_S = 50e-6
_SLICE_S = 0.05  # an abort that slips between the look and the sleep is seen after this long


class Meeting:
    """One rank's handle: all ranks meet in the same order, each time for the same thing.

    Raises:
        CollectiveError: a rank is missing after the deadline, or came for something else.
        CollectiveAborted: a rank gave up; the message says which and why.
    """

    def __init__(self, name: str, rank: int, size: int, within: float) -> None:
        self.name, self.rank, self.size = name, rank, size
        nbytes = (size * _LINE + _LINE) * 8 + _REASON_BYTES
        path = segment_path(name, "control")
        if rank == 0:
            self._control = Segment.create(path, nbytes)
        else:
            self._control = Segment.attach(path, nbytes, within, f"group {name}: rank 0")
        words = (size + 1) * _LINE
        self._words = self._control.array[: words * 8].data.cast("q")
        self._abort_word = size * _LINE
        self._reason = self._control.array[words * 8 :]
        self.epoch, self._arrivals = 1, 0
        try:
            self._words[rank * _LINE + _ATTACHED] = 1
            if rank == 0:
                self._await_attached(within)
        finally:
            if rank == 0:
                self._control.unlink()

    def _await_attached(self, within: float) -> None:
        deadline = time.monotonic() + within
        while missing := [r for r in range(self.size) if not self._words[r * _LINE + _ATTACHED]]:
            if time.monotonic() > deadline:
                raise CollectiveError(
                    f"group {self.name}: ranks {missing} did not join within {within} s."
                )
            time.sleep(0.0005)

    def meet(self, kind: str, detail: str, within: float) -> None:
        """Arrive, and return when every rank has arrived for the same thing."""
        words, epoch = self._words, self.epoch
        # Before arriving: the others must not take an aborted rank for present.
        self.refuse_aborted(kind)
        self._arrivals += 1
        target = epoch << _EPOCH_SHIFT | self._arrivals
        # Odd and even arrivals have a word each: a fast rank's next request must not hide this one.
        slot = _REQUEST + 2 + (self._arrivals & 1)
        words[self.rank * _LINE + slot] = request = _request(kind, detail)
        words[self.rank * _LINE + _SEQUENCE] = target
        futex.wake(self._control.address + self.rank * _LINE * 8)
        for rank in range(self.size):
            if words[rank * _LINE] < target:
                self._await(rank, target, kind, detail, within)
        beyond = (epoch + 1) << _EPOCH_SHIFT
        if any(
            words[rank * _LINE + slot] != request or words[rank * _LINE] >= beyond
            for rank in range(self.size)
        ):
            self.refuse_aborted(kind)  # a rank that began afresh already is not here for this
            others = [r for r in range(self.size) if words[r * _LINE + slot] != request]
            reason = f"ranks {others} came for another collective than rank {self.rank}'s {kind} ({detail})"
            self.abort(reason)
            raise CollectiveError(f"group {self.name}: {reason}.")

    def _await(self, rank: int, target: int, kind: str, detail: str, within: float) -> None:
        words, at = self._words, rank * _LINE
        started = time.perf_counter()
        while words[at] < target:
            self.refuse_aborted(kind)
            waited = time.perf_counter() - started
            if waited < _SPIN_S:
                os.sched_yield()  # the late rank may be waiting for this very core
                continue
            if waited > within:
                late = [r for r in range(self.size) if words[r * _LINE] < target]
                reason = f"{kind} ({detail}): ranks {late} are missing after {within} s"
                self.abort(reason)
                raise CollectiveError(f"group {self.name}: {reason}.")
            seen = words[at]
            if seen < target:
                futex.wait(self._control.address + at * 8, seen & 0xFFFFFFFF, min(_SLICE_S, within))

    def refuse_aborted(self, kind: str) -> None:
        """Raise CollectiveAborted if a rank gave up in this epoch."""
        if self._words[self._abort_word] >= self.epoch:
            length = self._words[self._abort_word + 1]
            reason = bytes(self._reason[:length]).decode(errors="replace")
            raise CollectiveAborted(f"group {self.name}: {kind} was aborted: {reason}")

    def abort(self, reason: str) -> None:
        """Release every rank that waits; they raise CollectiveAborted until the meeting is reset."""
        if self._words[self._abort_word] >= self.epoch:
            return  # the first cause stays
        text = reason.encode()[:_REASON_BYTES]
        self._reason[: len(text)] = np.frombuffer(text, np.uint8)
        self._words[self._abort_word + 1] = len(text)
        self._words[self._abort_word] = self.epoch
        for rank in range(self.size):
            futex.wake(self._control.address + rank * _LINE * 8)

    def reset(self, epoch: int) -> None:
        """Begin afresh after an abort; every rank calls it with the same number, larger than before."""
        self.epoch, self._arrivals = epoch + 1, 0

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._reason = np.empty(0, np.uint8)
        self._control.close()


@functools.lru_cache(maxsize=4096)
def _request(kind: str, detail: str) -> int:
    return zlib.crc32(f"{kind}|{detail}".encode())
