"""Rendezvous: where the ranks of a host wait for each other, by words in shared memory and futexes.

Each rank owns a line of the control segment: a sequence word that counts its arrivals, and what it came for.
Waiting spins briefly and then sleeps on the late rank's word.

Words are written with plain stores. That is enough on x86-64, where stores become visible in order; on other
processors the system call in ``wake`` stands between the data and the sleeper's next look.

If every rank has arrived at a meeting, every living rank leaves it successfully, whatever happens to the
others after they arrived. A rank that finds all present and no abort leaves without more ado. A rank that
sees an abort settles under a file lock (which the kernel takes back from a dead holder): the first to do so
looks which are present, and either all are, or it writes down that this meeting is *off*. A rank arrives
first and then looks for an abort, one that aborts does so before it looks which arrived, and a system call
stands between the two looks on either side; so no rank leaves quickly a meeting that another one called off.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...executor.host.deadline import Deadline
from ...executor.replica.agreement import NO_STEP, format_step, mismatch_message
from ...strategies.errors import CollectiveAborted, CollectiveError
from ..primitives import futex
from ..primitives.shm import Segment, segment_path

_LINE = 16  # 64-bit words in a rank's line of the control segment
_ATTACHED = 1  # word 0 is the sequence word
_REQUESTS = (2, 4)  # odd and even arrivals have two words each: what for (a CRC), and the step
_TEXT_BYTES = 256  # what for, in words; one text for odd and one for even arrivals
_OFF = 2  # words of the last line: epoch of an abort, length of its reason, the first meeting that is off
EPOCH_SHIFT = 40  # a sequence word is the epoch, then 40 bits of arrivals
_REASON_BYTES = 2048
DONE = "done"  # what ranks meet for at the end of a collective
SPIN_S = 50e-6
SLICE_S = 0.05  # an abort that slips between the look and the sleep is seen after this long
_LOCK_S = 1.0
_PAGE = 4096
_FLOCK = "hhqqi"  # struct flock: type, whence, start, length, process


def never_ended() -> str | None:
    """Return None: nothing ends the group from outside."""
    return None


class Request(NamedTuple):
    """What a rank comes for."""

    kind: str
    detail: str
    number: int
    text: bytes


class Rendezvous:
    """One rank's handle: all ranks meet in the same order, each time for the same thing and in the same step.

    ``ranks`` are the numbers by which messages call the members. ``ended()`` returns why the group was given up
    from outside, for good (None: it was not); a rank that waits looks there.

    Raises:
        CollectiveError: a rank is missing after the deadline, or came for something else.
        CollectiveAborted: a rank gave up, or its process ended; the message says which and why.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        size: int,
        within: float,
        ranks: Sequence[int] | None = None,
        ended: Callable[[], str | None] = never_ended,
    ) -> None:
        self._ended = ended
        self.name, self.rank, self.size = name, rank, size
        self.ranks = list(range(size) if ranks is None else ranks)
        words = (size + 1) * _LINE
        texts = words * 8 + size * 2 * _TEXT_BYTES
        nbytes = -(-(texts + _REASON_BYTES) // _PAGE) * _PAGE
        path = segment_path(name, "control")
        if rank == 0:
            self._control = Segment.create(path, nbytes, keep=True, resident=nbytes)
        else:
            maker = f"group {name}: rank {self.ranks[0]}"
            check = self._refuse_ended
            self._control = Segment.attach(path, nbytes, within, maker, keep=True, check=check)
        self._words = self._control.array[: words * 8].data.cast("q")
        self._texts = self._control.array[words * 8 : texts].data
        self._reason = self._control.array[texts : texts + _REASON_BYTES].data
        self._abort_word = size * _LINE
        self._addresses = [self._control.address + member * _LINE * 8 for member in range(size)]
        self._wakers = [futex.waker(address) for address in self._addresses]
        self._lock, self._closed = threading.Lock(), False
        self.step = NO_STEP
        self.waited = 0.0  # seconds until the last peer came, in all collectives so far
        self.reset(0)
        try:
            self._show_alive()
            self._words[rank * _LINE + _ATTACHED] = 1
            if rank == 0:
                self._await_attached(within)
        except BaseException:
            self.close()
            raise
        finally:
            if rank == 0:
                self._control.unlink()

    def _await_attached(self, within: float) -> None:
        deadline = Deadline(within)
        while missing := [r for r in range(self.size) if not self._words[r * _LINE + _ATTACHED]]:
            self._refuse_ended()
            if deadline.over:
                raise CollectiveError(
                    f"group {self.name}: ranks {self._called(missing)} did not join within {within} s."
                )
            time.sleep(0.0005)

    def _refuse_ended(self) -> None:
        if (reason := self._ended()) is not None:
            raise CollectiveAborted(f"group {self.name} was aborted: {reason}")

    def _called(self, members: Sequence[int]) -> list[int]:
        return [self.ranks[member] for member in members]

    # -- meeting ----------------------------------------------------------------------------------

    def meet(self, kind: str, detail: str, within: float) -> None:
        """Arrive, and return when every rank has arrived for the same thing in the same step."""
        self.meet_for(request_of(kind, detail), within)

    def meet_for(self, request: Request, within: float) -> None:
        """Do what :meth:`meet` does, for something that was put into words before."""
        words, rank = self._words, self.rank
        kind, detail, code, text = request
        # Before arriving: the others must not take an aborted rank for present.
        self.refuse_aborted(kind)
        self._arrivals += 1
        target = self._base + self._arrivals
        # A fast rank's next request must not hide this one: odd and even take turns.
        turn = self._arrivals & 1
        slot = _REQUESTS[turn]
        if words[rank * _LINE + slot] != code:
            begin = (2 * rank + turn) * _TEXT_BYTES
            self._texts[begin : begin + _TEXT_BYTES] = text
            words[rank * _LINE + slot] = code
        words[rank * _LINE + slot + 1] = step = self.step
        words[rank * _LINE] = target
        self._wakers[rank]()
        for peer in range(self.size):
            if words[peer * _LINE] < target:
                began = time.perf_counter()
                self._await(peer, target, kind, detail, within)
                if kind != DONE:
                    self.waited += time.perf_counter() - began
        if words[self._abort_word] >= self.epoch:
            self._resolve_abort(target, kind)
        for peer in range(self.size):
            at = peer * _LINE + slot
            if words[at] != code or words[at + 1] != step:
                self._disagree(target, kind)

    def _await(self, peer: int, target: int, kind: str, detail: str, within: float) -> None:
        """Return when the peer has arrived, or the group is aborted (by this rank, if need be)."""
        words, at = self._words, peer * _LINE
        awake = time.perf_counter() + SPIN_S
        deadline: Deadline | None = None
        while words[at] < target and words[self._abort_word] < self.epoch:
            if deadline is None and time.perf_counter() < awake:
                os.sched_yield()  # the late rank may be waiting for this very core
                continue
            deadline = deadline or Deadline(within)
            if deadline.over:
                late = [r for r in range(self.size) if words[r * _LINE] < target]
                reason = (
                    f"{kind} ({detail}): ranks {self._called(late)} are missing after {within} s"
                )
                if late and self.abort(reason) and not self._all_arrived(target):
                    self._resolve_abort(
                        target, kind, CollectiveError(f"group {self.name}: {reason}.")
                    )
                return
            seen = words[at]
            if seen < target:
                futex.wait(self._addresses[peer], seen & 0xFFFFFFFF, min(SLICE_S, within))
                if (ended := self._ended()) is not None:
                    self.abort(ended)
                dead = self._dead(target) if words[at] == seen else []
                if dead:
                    self.abort(
                        f"{kind} ({detail}): the process of rank {self.ranks[dead[0]]} has ended"
                    )

    def _dead(self, target: int) -> list[int]:
        """Return the late members whose processes have ended, whoever is waited for just now."""
        words, dead = self._words, []
        for peer in range(self.size):
            at = peer * _LINE
            # One that is still on its way to lock its byte is not dead.
            if words[at] < target and words[at + _ATTACHED] and not self.alive(peer):
                dead.append(peer)
        return [peer for peer in dead if words[peer * _LINE] < target]

    def _all_arrived(self, target: int) -> bool:
        words, beyond = self._words, self._base + (1 << EPOCH_SHIFT)
        return all(target <= words[peer * _LINE] < beyond for peer in range(self.size))

    def _resolve_abort(self, target: int, kind: str, cause: CollectiveError | None = None) -> None:
        """Return if all had arrived when the abort came; raise ``cause``, or the abort, if not."""
        with self._locked():
            off = self._words[self._abort_word + _OFF]
            if off < self._base:  # no rank has decided in this epoch yet
                if self._all_arrived(target):
                    return
                self._words[self._abort_word + _OFF] = off = target
        if target >= off or off >= self._base + (1 << EPOCH_SHIFT):
            if cause is not None:
                raise cause
            self.refuse_aborted(kind)

    def _disagree(self, target: int, kind: str) -> None:
        if not self._all_arrived(target):
            self.refuse_aborted(kind)  # a rank that began afresh already is not here for this
        turn, texts = target & 1, dict[int, str]()
        for peer in range(self.size):
            begin = (2 * peer + turn) * _TEXT_BYTES
            text = (
                bytes(self._texts[begin : begin + _TEXT_BYTES])
                .rstrip(b"\0")
                .decode("utf-8", "replace")
            )
            step = self._words[peer * _LINE + _REQUESTS[turn] + 1]
            texts[self.ranks[peer]] = text + format_step(step)
        reason = mismatch_message(texts)
        self.abort(reason)
        raise CollectiveError(f"group {self.name}: {reason}.")

    # -- which ranks are alive -----------------------------------------------------------------------------

    def _show_alive(self) -> None:
        """Lock a byte of the control file; the kernel unlocks it when this process ends."""
        ask = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, self.rank, 1, 0)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._control.descriptor, fcntl.F_OFD_SETLK, ask)

    def alive(self, peer: int) -> bool:
        """Tell whether the peer's process exists (or a child it forked, or one cannot know)."""
        ask = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, peer, 1, 0)
        try:
            reply = fcntl.fcntl(self._control.descriptor, fcntl.F_OFD_GETLK, ask)
        except OSError:
            return True
        return bool(struct.unpack(_FLOCK, reply)[0] != fcntl.F_UNLCK)

    # -- failures ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the group's lock; a holder that is frozen is waited for a second and then ignored."""
        deadline = Deadline(_LOCK_S)
        with self._lock:
            while True:
                try:
                    if self._closed:
                        break
                    fcntl.flock(self._control.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if deadline.over:
                        break
                    time.sleep(0.0002)
            try:
                yield
            finally:
                if not self._closed:
                    fcntl.flock(self._control.descriptor, fcntl.LOCK_UN)

    @property
    def aborted(self) -> str | None:
        """Why a rank gave up in this epoch; None: none did."""
        if self._words[self._abort_word] < self.epoch:
            return None
        return bytes(self._reason[: self._words[self._abort_word + 1]]).decode(errors="replace")

    def refuse_aborted(self, kind: str) -> None:
        """Raise CollectiveAborted if a rank gave up in this epoch."""
        if self._words[self._abort_word] >= self.epoch:
            raise CollectiveAborted(f"group {self.name}: {kind} was aborted: {self.aborted}")

    def abort(self, reason: str) -> bool:
        """Release every rank that waits; they raise CollectiveAborted until the meeting is reset.

        Returns whether this was the first abort; its reason stays.
        """
        text = reason.encode()[:_REASON_BYTES]
        with self._locked():
            if self._closed or self._words[self._abort_word] >= self.epoch:
                return False
            self._reason[: len(text)] = text
            self._words[self._abort_word + 1] = len(text)
            self._words[self._abort_word] = self.epoch
            for wake in self._wakers:
                wake()
        return True

    def reset(self, epoch: int) -> None:
        """Begin afresh after an abort; every rank calls it with the same number, larger than before."""
        self.epoch, self._arrivals = epoch + 1, 0
        self._base = self.epoch << EPOCH_SHIFT

    def close(self) -> None:
        """Let go of the memory. An abort that comes later, from another thread, has nothing to do."""
        with self._lock:
            self._closed = True
            for view in (self._words, self._texts, self._reason):
                view.release()
            self._control.close()


@functools.lru_cache(maxsize=4096)
def request_of(kind: str, detail: str) -> Request:
    """Return what a rank comes for, as a number to compare and as text to show."""
    text = f"{kind} ({detail})".encode()
    label = text[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
    return Request(kind, detail, zlib.crc32(text), label)
