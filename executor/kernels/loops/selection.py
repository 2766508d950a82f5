"""Elements that differ, numbered in a compiled loop by a table of hashes with open addresses.

Knuth, The Art of Computer Programming 3, 6.4: multiplicative hashing, and the next place where one is taken.
"""

from __future__ import annotations

import numpy as np

from ....graph.ops import selection as ops
from ...codegen.text_loops import bind_text
from .host_function import compiled

_NUMBER = """
    for i in range(places):
        table[i] = np.int32(-1)
    count = np.int64(0)
    for i in range(N):
        key = key_of(x[i])
        at = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift))
        while table[at] >= 0 and keys[table[at]] != key:
            at = (at + 1) & (places - 1)
        number = np.int64(table[at])
        if number < 0:
            number = count
            table[at], keys[number], first[number], counts[number] = np.int32(number), key, i, 0
            count += 1
        numbers[i] = number
        counts[number] += 1
    total[0] = count
"""
# Zeros of both signs are equal, and so are all nan.
_KEYS = {
    "f": "np.int64(bits(select(v == v, v + np.float32(0), np.float32(np.nan))))",
    **dict.fromkeys("ilq", "np.int64(v)"),
}


@compiled(ops.numbered)
def numbered(x: np.ndarray) -> ops.Distinct | None:
    """Look each element up among those before it."""
    if x.dtype.char not in _KEYS or not 0 < x.size < 1 << 30:
        return None
    bits = int(x.size).bit_length() + 1  # no more than half of the places are taken
    first, numbers, counts, keys = (np.empty(x.size, np.int64) for _ in range(4))
    arrays = {
        "x": np.ascontiguousarray(x),
        "table": np.empty(1 << bits, np.int32),
        "keys": keys,
        "first": first,
        "numbers": numbers,
        "counts": counts,
        "total": np.empty(1, np.int64),
    }
    key = f"\ndef key_of(v):\n    return {_KEYS[x.dtype.char]}\n"
    bind_text(_NUMBER, arrays, key, N=x.size, places=1 << bits, shift=64 - bits)()
    count = int(arrays["total"][0])
    return ops.Distinct(first[:count], numbers, counts[:count])
