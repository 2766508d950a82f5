"""Memory that the driver shares with one replica of its host: feeds are written there once, and used there.

Two slots, so that the next step can be fed while one is under way. A slot has room for what is fed and for
what is posted: values that must reach the driver even if the replica ends right after it wrote them. Before
them is a page by which steps are begun and answered (``doorbell.py``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import numpy as np

from ...executor.host.bounded_dict import BoundedDict
from ..primitives.shm import Segment, is_segment, refuse_full, segment_path
from . import frame
from .doorbell import PAGE as _PAGE
from .doorbell import Doorbell
from .frame import Layout, read_head

SLOTS = frame.SLOTS
# Bytes before the slots: per slot the number of the posted message, and the bytes and edition of its head.
_WORDS = 64
_EDITION_SHIFT, _LENGTHS = 32, (1 << 32) - 1
_ALIGN = 64
_LAYOUTS_KEPT = 64
_ATTACH_S = 10.0

Places = list[np.ndarray]


class SharedFeedBuffer:
    """One end's handle. ``fed`` and ``posted`` are bytes in each slot."""

    def __init__(self, segment: Segment, fed: int, posted: int) -> None:
        self.fed, self.posted = fed, posted
        self.segment = segment
        self._bytes = segment.array.data
        self._words = self._bytes[:_WORDS].cast("Q")
        self.bell = Doorbell(self._bytes[:_PAGE])
        self._taken: set[int] = set()
        self._known: BoundedDict[tuple[int, bytes], Places] = BoundedDict(_LAYOUTS_KEPT)
        self._begins = [_PAGE + slot * (fed + posted) for slot in range(SLOTS)]
        self._heads = [b""] * SLOTS  # that were posted last
        self._read: dict[
            tuple[int, int], tuple[Layout, Places]
        ] = {}  # by slot, and what its word says

    @staticmethod
    def new_path() -> str:
        """Return a name that no other memory has."""
        return segment_path(uuid.uuid4().hex, "area")

    @classmethod
    def create(cls, path: str, fed: int, posted: int) -> SharedFeedBuffer:
        """Make the memory for slots of at least this many bytes each."""
        fed, posted = _whole_pages(fed), _whole_pages(posted)
        size = _PAGE + SLOTS * (fed + posted)
        refuse_full(size)
        return cls(Segment.create(path, size, taken=_PAGE), fed, posted)

    @classmethod
    def attach(cls, path: str, fed: int, posted: int) -> SharedFeedBuffer:
        """Map what the driver made.

        Raises:
            CollectiveError: it is not there.
            ValueError: this names something else.
        """
        if not is_segment(path) or min(fed, posted) < 0:
            raise ValueError(f"{path!r} is no memory of a driver")
        size = _PAGE + SLOTS * (fed + posted)
        return cls(Segment.attach(path, size, _ATTACH_S, "the driver"), fed, posted)

    def take(self, slot: int) -> None:
        """Take the pages of a slot before it is used for the first time.

        Raises:
            CollectiveError: there is no room. (Touching a page then would end the process.)
        """
        if slot not in self._taken:
            self.segment.populate(self._begins[slot], self.fed + self.posted)
            self._taken.add(slot)

    def places(self, slot: int, text: bytes) -> Places | None:
        """Return the arrays that a head describes: the same list each time; None if they do not fit."""
        places = self._known.get((slot, text))  # a head is either fed or posted
        if places is None:
            places = self._places(slot, text, self._begins[slot], self.fed)
        return places

    def post(self, slot: int, number: int, text: bytes, arrays: Iterable[np.ndarray]) -> bool:
        """Write a posted message; False if there is no room for it."""
        begin, places = self._posted(slot, text)
        if places is None:
            return False
        words, at = self._words, 2 * slot
        if text is not self._heads[slot]:
            self._bytes[begin : begin + len(text)] = text
            edition = (words[at + 1] >> _EDITION_SHIFT) + 1 & _LENGTHS
            words[at + 1] = edition << _EDITION_SHIFT | len(text)
            self._heads[slot] = text
        for place, array in zip(places, arrays, strict=True):
            place[...] = array
        words[at] = number
        return True

    def read_posted(self, slot: int, number: int) -> tuple[Layout, Places] | None:
        """Return what was posted for a message, if it was: what its head says, and copies of its arrays."""
        if self._words[2 * slot] != number:
            return None
        word = self._words[2 * slot + 1]
        known = self._read.get((slot, word))
        if known is None:
            begin, length = self._begins[slot] + self.fed, word & _LENGTHS
            text = bytes(self._bytes[begin : begin + length])
            _, places = self._posted(slot, text)
            if places is None:
                return None
            if len(self._read) >= _LAYOUTS_KEPT:
                self._read.clear()
            known = self._read[slot, word] = (read_head(text), places)
        layout, places = known
        return layout, [place.copy() for place in places]

    def _posted(self, slot: int, text: bytes) -> tuple[int, Places | None]:
        """Return where a posted head lies, and the arrays that it describes."""
        begin, places = self._begins[slot] + self.fed, self._known.get((slot, text))
        if places is None:
            head = -(-len(text) // _ALIGN) * _ALIGN
            places = self._places(slot, text, begin + head, self.posted - head)
        return begin, places

    def _places(self, slot: int, text: bytes, begin: int, room: int) -> Places | None:
        layout = read_head(text)
        offsets = layout.offsets()
        if offsets[-1] > room:
            return None
        places = self._known[slot, text] = [
            np.ndarray(shape, dtype, self._bytes, begin + offset)
            for offset, (dtype, shape) in zip(offsets, layout.arrays, strict=False)
        ]
        return places

    def close(self) -> None:
        """Let go of the memory and its name."""
        self._known.clear()
        self._read.clear()
        self.bell.close()
        self._words.release()
        self._bytes = memoryview(b"")
        self.segment.unlink()
        self.segment.close()


def _whole_pages(nbytes: int) -> int:
    """Return room for at least so many bytes, grown in powers of two so that it is rarely made anew."""
    return max(_PAGE, 1 << (max(nbytes, 1) - 1).bit_length())
