"""Where sequences begin and how long they are: by offsets, or by lengths in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....graph.ops.operands import Array
from ...codegen.text_loops import known

# ``apart``: how many rows lie between the beginnings of sequences by lengths; 0 of those by offsets.
SPANS = """
def begin_of(ends, s, apart):
    return s * apart if apart else np.int64(ends[s])

def length_of(ends, s, apart):
    return np.int64(ends[s]) if apart else np.int64(ends[s + 1] - ends[s])

def are_spans(ends, count, apart, rows):
    if apart == 0:
        return ends[count] == rows
    for s in range(count):
        if ends[s] < 0 or ends[s] > apart:
            return False
    return True
"""


def spans(lod: Sequence[Array], length: Array | None, rows: Array) -> tuple[Array, int, int]:
    """Return what the functions of :data:`SPANS` read: offsets or lengths, ``apart`` and ``count``.

    ``rows``: of the sequences by offsets, [N, ...]; of those by lengths, [count, apart, ...].
    """
    if length is None:
        return lod[-1], 0, lod[-1].size - 1
    return length, rows.shape[1], len(rows)


def readable(*operands: Any) -> bool:
    """Tell whether loops can read and write these arrays (None: none): they have elements, and no gaps."""
    arrays = [array for array in operands if array is not None]
    return known(*arrays) and all(a.size and a.flags.c_contiguous for a in arrays)
