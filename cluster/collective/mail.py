"""From one rank of a host to another: a request on each side, then blocks through two slots of shared memory.

Each pair of ranks has its own memory in each direction, so that nobody else is involved. Both sides write what
they came for before anything moves, so both see the same disagreement.
"""

from __future__ import annotations

import os
import time
import zlib

import numpy as np

from ...executor.replica.agreement import format_step
from ...strategies.errors import CollectiveError
from ..primitives import futex
from .combine import plain
from .rendezvous import EPOCH_SHIFT, SLICE_S, SPIN_S, Rendezvous

_SLOT = 1 << 18
_SLOTS = 2
_HEADER = 4096
PAIR_BYTES = (
    _HEADER + _SLOTS * _SLOT
)  # of shared memory, for each ordered pair; taken when it is first used
_OFFER, _WANT, _SENT, _TAKEN = (
    0,
    64,
    128,
    192,
)  # words of the header, far apart: two processes write them
_TEXT_AT, _TEXT_BYTES = 2048, 256


class _Pair:
    """The memory between a sender and a receiver, and how far this process is in it."""

    def __init__(self, meeting: Rendezvous, source: int, to: int) -> None:
        at = (source * meeting.size + to) * PAIR_BYTES
        meeting.take_pages(at, PAIR_BYTES)
        self.memory = meeting.pairs[at : at + PAIR_BYTES]
        self.words = self.memory[:2048].data.cast("q")
        self.address = int(self.memory.ctypes.data)
        self.epoch = self.calls = self.blocks = 0

    def text(self, turn: int) -> np.ndarray:
        """Return where a side says in words what it came for."""
        at = _TEXT_AT + turn * _TEXT_BYTES
        return self.memory[at : at + _TEXT_BYTES]

    def slot(self, block: int) -> np.ndarray:
        """Return the memory through which a block goes."""
        at = _HEADER + block % _SLOTS * _SLOT
        return self.memory[at : at + _SLOT]

    def set(self, word: int, value: int) -> None:
        """Store a word and wake who sleeps on it."""
        self.words[word] = value
        futex.wake(self.address + word * 8)


class Mail:
    """One rank's handle on its pairs. Times are in seconds."""

    def __init__(self, meeting: Rendezvous) -> None:
        self._meeting = meeting
        self._pairs: dict[tuple[int, int], _Pair] = {}

    def send(self, row: np.ndarray, to: int, within: float, tag: str) -> None:
        """Give a row to rank ``to``."""
        pair, base, blocks = self._agreed(row, (self._meeting.rank, to), within, tag)
        data = plain(row).view(np.uint8)
        for number in range(blocks):
            block = pair.blocks + number
            if number >= _SLOTS:
                self._await(pair, _TAKEN, base + block - _SLOTS + 1, to, within)
            piece = data[number * _SLOT : (number + 1) * _SLOT]
            pair.slot(block)[: piece.size] = piece
            pair.set(_SENT, base + block + 1)
        pair.blocks += blocks
        if blocks:
            self._await(pair, _TAKEN, base + pair.blocks, to, within)

    def recv(self, row: np.ndarray, source: int, within: float, tag: str) -> None:
        """Fill a row with what rank ``source`` sends."""
        pair, base, blocks = self._agreed(row, (source, self._meeting.rank), within, tag)
        data = plain(row).view(np.uint8)
        for number in range(blocks):
            block = pair.blocks + number
            self._await(pair, _SENT, base + block + 1, source, within)
            piece = data[number * _SLOT : (number + 1) * _SLOT]
            piece[...] = pair.slot(block)[: piece.size]
            pair.set(_TAKEN, base + block + 1)
        pair.blocks += blocks

    def _agreed(
        self, row: np.ndarray, ends: tuple[int, int], within: float, tag: str
    ) -> tuple[_Pair, int, int]:
        """Meet the other side for the same thing; returns the pair, the epoch's base, the number of blocks."""
        meeting = self._meeting
        meeting.refuse_aborted("send" if meeting.rank == ends[0] else "recv")
        if ends not in self._pairs:
            self._pairs[ends] = _Pair(meeting, *ends)
        pair = self._pairs[ends]
        if pair.epoch != meeting.epoch:
            pair.epoch, pair.calls, pair.blocks = meeting.epoch, 0, 0
        base = meeting.epoch << EPOCH_SHIFT
        pair.calls += 1
        mine, others = (_OFFER, _WANT) if meeting.rank == ends[0] else (_WANT, _OFFER)
        what = f"{plain(row).dtype}[{row.size}] {tag}".strip() + format_step(meeting.step)
        # Two sides, and two calls that take turns: a fast side's next request must not hide this one.
        turn = pair.calls & 1
        text = what.encode()
        _write(pair.text(turn * 2 + (mine == _WANT)), text)
        pair.words[mine + 1 + turn] = request = zlib.crc32(text)
        pair.set(mine, base + pair.calls)
        other = ends[1] if meeting.rank == ends[0] else ends[0]
        self._await(pair, others, base + pair.calls, other, within)
        if pair.words[others + 1 + turn] != request:
            sent, wanted = (bytes(pair.text(turn * 2 + i)).rstrip(b"\0").decode() for i in (0, 1))
            called = [meeting.ranks[end] for end in ends]
            raise CollectiveError(
                f"group {meeting.name}: rank {called[0]} sends {sent}, and rank {called[1]} would receive "
                f"{wanted}. Nothing was moved."
            )
        return pair, base, -(-row.nbytes // _SLOT)

    def _await(self, pair: _Pair, word: int, target: int, other: int, within: float) -> None:
        meeting, words = self._meeting, pair.words
        started = time.perf_counter()
        while (seen := words[word]) < target:
            meeting.refuse_aborted("send or recv")
            waited = time.perf_counter() - started
            if waited < SPIN_S:
                os.sched_yield()
                continue
            if waited > within:
                reason = f"send or recv: rank {meeting.ranks[other]} is missing after {within} s"
                meeting.abort(reason)
                raise CollectiveError(f"group {meeting.name}: {reason}.")
            futex.wait(pair.address + word * 8, seen & 0xFFFFFFFF, min(SLICE_S, within))
            if words[word] == seen and not meeting.alive(other) and words[word] < target:
                meeting.abort(f"send or recv: the process of rank {meeting.ranks[other]} has ended")

    def close(self) -> None:
        """Let go of the memory."""
        for pair in self._pairs.values():
            pair.words.release()
        self._pairs.clear()


def _write(target: np.ndarray, text: bytes) -> None:
    target[...] = np.frombuffer(text[: len(target)].ljust(len(target), b"\0"), np.uint8)
