"""The order of scores, largest first, which choices among boxes go by."""

from __future__ import annotations

import numpy as np

from .operands import Array


def largest_first(scores: Array, most: int = -1) -> Array:
    """Return the numbers of scores [N], largest first: ``most`` of them (-1: all).

    Equal ones stay in their order, and nan comes last. Of float32 the score, as an integer of the same order,
    and the number behind it are sorted as one integer: such a sort need not be stable, and is faster.
    """
    if scores.dtype != np.float32:
        order = np.argsort(-scores, kind="stable")
        return order if most < 0 else order[:most]
    bits = (np.float32(0) - scores).view(np.int32)  # of zeros of either sign the positive one
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
    keys[np.isnan(scores)] = 0x7FFFFFFF
    keys <<= 32
    keys |= np.arange(len(keys))
    if 0 <= most < len(keys):
        keys = np.partition(keys, most)[:most]
    keys.sort()
    keys &= 0xFFFFFFFF
    return keys
