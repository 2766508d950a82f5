"""The order in which Paddle 1.8.5 writes attributes and variables, which it stores in hash tables.

Those tables are ``std::unordered_map`` of libstdc++ keyed by strings; their order depends on the order of
insertion. Following them gives files that are equal byte by byte. Readers need no order at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache

_MASK = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907
# How many buckets a table has as it grows: primes, each more than twice the one before.
_BUCKETS = (11, 23, 47, 97, 199, 409, 823, 1741, 3739, 7517, 15173, 30727, 62233, 126271, 256279)


@lru_cache(65536)
def _hash(name: str) -> int:
    """Return the hash of a string (MurmurHash64A)."""
    data = name.encode("utf-8", "surrogateescape")
    code = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    aligned = len(data) & ~7
    for at in range(0, aligned, 8):
        word = int.from_bytes(data[at : at + 8], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 47) * _MULTIPLIER & _MASK
        code = (code ^ word) * _MULTIPLIER & _MASK
    if len(data) & 7:
        code = (code ^ int.from_bytes(data[aligned:], "little")) * _MULTIPLIER & _MASK
    code = (code ^ code >> 47) * _MULTIPLIER & _MASK
    return code ^ code >> 47


class _Table:
    """One linked list of names, in which those of one bucket stand together; None is the list's head."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets
        self._next: dict[str | None, str | None] = {None: None}
        self._previous: dict[int, str | None] = {}  # bucket -> the name before its first one

    def insert(self, name: str) -> None:
        """Put a name first in its bucket; a bucket that was empty comes first in the list."""
        bucket = _hash(name) % self.buckets
        previous = self._previous.get(bucket)
        follower = self._next[previous]
        self._next[previous], self._next[name] = name, follower
        if bucket not in self._previous:
            self._previous[bucket] = None
            if follower is not None:
                self._previous[_hash(follower) % self.buckets] = name

    def names(self) -> Iterator[str]:
        """Yield the names in the order of the list."""
        name = self._next[None]
        while name is not None:
            yield name
            name = self._next[name]


def hash_order(names: Iterable[str]) -> list[str]:
    """Return names in the order in which a table lists them after their insertion one by one."""
    table = _Table(_BUCKETS[0])
    for count, name in enumerate(names, 1):
        if count >= table.buckets:
            small, table = table, _Table(_BUCKETS[bisect_right(_BUCKETS, table.buckets)])
            for old in small.names():
                table.insert(old)
        table.insert(name)
    return list(table.names())
