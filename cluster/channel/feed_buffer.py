"""SharedFeedBuffer: memory shared with the replicas of a driver's host. Feeds are written and used there.

Each replica has two slots, so that the next step can be fed while one is under way. A slot has room for what
is fed and for what is posted: values that must reach the driver even if the replica ends right after it wrote
them. Before them are the words by which steps are begun and answered (``doorbell.py``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...strategies.bounded_dict import BoundedDict
from ..primitives.shm import Segment, is_segment, refuse_full, segment_path
from .doorbell import PAGE, Doorbell, ReplicaBell, words_bytes
from .frame import SLOTS, Layout, read_head

_EDITION_SHIFT, _LENGTHS = 32, (1 << 32) - 1
_EDITIONS = (1 << 31) - 1
_ALIGN = 64
_LAYOUTS_KEPT = 256  # of a replica: steps of 200 lengths describe their feeds differently
_ATTACH_S = 10.0
_REPLICAS = 1 << 20

Places = list[np.ndarray]


class FedPlaces(NamedTuple):
    """The places of what all replicas are fed, one replica's behind another's, and the bytes of all.

    ``stacks`` are those of all with the replicas in front, if they are of the same types and shapes;
    ``longest``: bytes of the longest head.
    """

    places: Places
    nbytes: int
    stacks: Places | None
    longest: int


class Posts(NamedTuple):
    """What all replicas posted: what their heads say, the places of each, and with the replicas in front."""

    layouts: list[Layout]
    places: list[Places]
    stacks: Places | None


class SharedFeedBuffer:
    """One end's handle on the memory of ``count`` replicas. ``fed`` and ``posted`` are bytes in each slot."""

    def __init__(self, segment: Segment, count: int, fed: int, posted: int) -> None:
        self.count, self.fed, self.posted = count, fed, posted
        self.segment = segment
        self._bytes = segment.array.data
        self._first = words_bytes(count)
        self._places: BoundedDict[tuple[int, int, bytes], Places | None] = BoundedDict(
            _LAYOUTS_KEPT * count
        )

    def _begin(self, index: int, slot: int) -> int:
        return self._first + (index * SLOTS + slot) * (self.fed + self.posted)

    def _described(self, index: int, slot: int, text: bytes, posted: bool) -> Places | None:
        """Return the arrays that a head describes: the same list each time; None if they do not fit."""
        key = index, slot, text  # a head is either fed or posted
        if key in self._places:
            return self._places[key]
        begin, room = self._begin(index, slot), self.fed
        if posted:
            head = -(-len(text) // _ALIGN) * _ALIGN
            begin, room = begin + self.fed + head, self.posted - head
        layout = read_head(text)
        offsets = layout.offsets()
        places = None
        if offsets[-1] <= room:
            places = [
                np.ndarray(shape, dtype, self._bytes, begin + offset)
                for offset, (dtype, shape) in zip(offsets, layout.arrays, strict=False)
            ]
        self._places[key] = places
        return places

    def close(self) -> None:
        """Let go of the memory and its name."""
        self._places.clear()
        self._bytes = memoryview(b"")
        self.segment.unlink()
        self.segment.close()


class DriverFeedBuffer(SharedFeedBuffer):
    """The driver's end. ``wakes``: the file of events by which its bell wakes replicas."""

    def __init__(self, segment: Segment, count: int, fed: int, posted: int, wakes: int) -> None:
        super().__init__(segment, count, fed, posted)
        self.bell = Doorbell(self._bytes[: self._first], count, wakes)
        self._populated: set[int] = set()
        self._fed: BoundedDict[tuple[Any, ...], FedPlaces | None] = BoundedDict(_LAYOUTS_KEPT)
        # By slot and by the words of all replicas: what their heads say, and their places.
        self._posts: BoundedDict[tuple[int, bytes], Posts] = BoundedDict(_LAYOUTS_KEPT)

    @staticmethod
    def new_path() -> str:
        """Return a name that no other memory has."""
        return segment_path(uuid.uuid4().hex, "area")

    @classmethod
    def create(
        cls, path: str, count: int, fed: int, posted: int, wakes: int = -1
    ) -> DriverFeedBuffer:
        """Make the memory for slots of at least this many bytes each."""
        fed, posted = _whole_pages(fed), _whole_pages(posted)
        size = _size(count, fed, posted)
        refuse_full(size)
        segment = Segment.create(path, size, resident=words_bytes(count))
        return cls(segment, count, fed, posted, wakes)

    def populate(self, slot: int) -> None:
        """Take the pages of a slot of all replicas before it is used for the first time.

        Raises:
            CollectiveError: there is no room. (Touching a page then would end the process.)
        """
        if slot not in self._populated:
            for index in range(self.count):
                self.segment.populate(self._begin(index, slot), self.fed + self.posted)
            self._populated.add(slot)

    def all_places(self, slot: int, texts: Sequence[bytes]) -> FedPlaces | None:
        """Return the arrays that the heads of all replicas describe, in turn; None if some do not fit."""
        key = slot, *texts
        if key not in self._fed:
            each = [self._described(i, slot, text, posted=False) for i, text in enumerate(texts)]
            present = [places for places in each if places is not None]
            flat = [place for places in present for place in places]
            nbytes, longest = sum(place.nbytes for place in flat), max(map(len, texts))
            fed = FedPlaces(flat, nbytes, self._stacked(present), longest)
            self._fed[key] = fed if len(present) == len(each) else None
        return self._fed[key]

    def posted_by(self, index: int, slot: int, number: int) -> tuple[Layout, Places] | None:
        """Return what a replica posted for a message, if it did: what its head says, and copies of arrays."""
        numbers, words = self.bell.posts[slot]
        if numbers[index] != number + 1:
            return None
        post = self._post(index, slot, words[index])
        return None if post is None else (post[0], [place.copy() for place in post[1]])

    def posted_by_all(self, slot: int) -> Posts | None:
        """Return where lies what each posted for the message that all answered last; None if one did not."""
        if not self.bell.all_posted(slot):
            return None
        words = self.bell.posts[slot][1]
        key = slot, words.tobytes()
        posts = self._posts.get(key)
        if posts is None:
            each = [self._post(index, slot, word) for index, word in enumerate(words.tolist())]
            known = [post for post in each if post is not None]
            if len(known) < len(each):
                return None
            places = [own for _, own in known]
            posts = Posts([layout for layout, _ in known], places, self._stacked(places))
            self._posts[key] = posts
        return posts

    def _stacked(self, each: Sequence[Places]) -> Places | None:
        """Return the places of all replicas with the replicas in front, if they are alike."""
        kinds = [[(place.dtype, place.shape) for place in places] for places in each]
        if len(each) < self.count or any(kind != kinds[0] for kind in kinds):
            return None
        apart = self._begin(1, 0) - self._begin(0, 0)
        return [
            as_strided(place, (self.count, *place.shape), (apart, *place.strides))
            for place in each[0]
        ]

    def _post(self, index: int, slot: int, word: int) -> tuple[Layout, Places] | None:
        """Return what a posted head says, and its places; ``word`` has the length of the head."""
        begin, length = self._begin(index, slot) + self.fed, word & _LENGTHS
        text = bytes(self._bytes[begin : begin + min(length, self.posted)])
        places = self._described(index, slot, text, posted=True)
        return None if places is None else (read_head(text), places)

    def close(self) -> None:
        self.bell.close()
        self._posts.clear()
        self._fed.clear()
        super().close()


class ReplicaFeedBuffer(SharedFeedBuffer):
    """The end of the replica that is the ``index``-th. ``wakes``: the driver's file of events."""

    def __init__(
        self, segment: Segment, count: int, fed: int, posted: int, index: int, wakes: int
    ) -> None:
        super().__init__(segment, count, fed, posted)
        self._index = index
        self.bell = ReplicaBell(self._bytes[: self._first], count, index, wakes)
        self._heads = [b""] * SLOTS  # that were posted last
        begin = self._begin(index, 0)
        self.own = segment.array[begin : begin + SLOTS * (fed + posted)]

    @classmethod
    def attach(
        cls, path: str, count: int, fed: int, posted: int, index: int, wakes: int
    ) -> ReplicaFeedBuffer:
        """Map what the driver made.

        Raises:
            CollectiveError: it is not there.
            ValueError: this names something else.
        """
        fits = min(fed, posted) >= 0 and 0 <= index < count <= _REPLICAS
        if not is_segment(path) or not fits:
            raise ValueError(f"{path!r} is no memory of a driver")
        segment = Segment.attach(path, _size(count, fed, posted), _ATTACH_S, "the driver")
        return cls(segment, count, fed, posted, index, wakes)

    def places(self, slot: int, text: bytes) -> Places | None:
        """Return the arrays that the head of what is fed describes; None if they do not fit."""
        return self._described(self._index, slot, text, posted=False)

    def post(self, slot: int, number: int, text: bytes, arrays: Iterable[np.ndarray]) -> bool:
        """Write a posted message; False if there is no room for it."""
        index = self._index
        places = self._described(index, slot, text, posted=True)
        if places is None:
            return False
        numbers, words = self.bell.posts[slot]
        if text is not self._heads[slot]:
            begin = self._begin(index, slot) + self.fed
            self._bytes[begin : begin + len(text)] = text
            edition = (words[index] >> _EDITION_SHIFT) + 1 & _EDITIONS
            words[index] = edition << _EDITION_SHIFT | len(text)
            self._heads[slot] = text
        for place, array in zip(places, arrays, strict=True):
            place[...] = array
        numbers[index] = number + 1
        return True

    def close(self) -> None:
        self.bell.close()
        self.own = np.empty(0, np.uint8)
        super().close()


def _size(count: int, fed: int, posted: int) -> int:
    return words_bytes(count) + count * SLOTS * (fed + posted)


def _whole_pages(nbytes: int) -> int:
    """Return room for at least so many bytes, grown in powers of two so that it is rarely made anew."""
    return max(PAGE, 1 << (max(nbytes, 1) - 1).bit_length())
