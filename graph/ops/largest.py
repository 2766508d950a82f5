"""The order of elements along the last dimension: choices among boxes go by it, and sorts."""

from __future__ import annotations

import numpy as np

from .operands import Array


def largest_first(x: Array, most: int = -1) -> Array:
    """Return the places of elements [..., N] along the last dimension, largest first: ``most`` (-1: all).

    Equal ones stay in their order, and nan comes last.
    """
    # Of zeros of either sign the positive one: of float32 the order is that of bits.
    return smallest_first(np.float32(0) - x if x.dtype == np.float32 else -x, most)


def smallest_first(x: Array, most: int = -1) -> Array:
    """Return the places of elements, smallest first: see :func:`largest_first`.

    Of float32 the element, as an integer of the same order, and its place behind it are sorted as one integer:
    such a sort need not be stable, and is faster.
    """
    if x.dtype != np.float32:
        order = np.argsort(x, axis=-1, kind="stable")
        return order if most < 0 else order[..., :most]
    bits = (x + np.float32(0)).view(np.int32)
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
    keys[np.isnan(x)] = 0x7FFFFFFF
    keys <<= 32
    keys |= np.arange(keys.shape[-1])
    if 0 <= most < keys.shape[-1]:
        keys = np.partition(keys, most, axis=-1)[..., :most]
    keys.sort(axis=-1)
    keys &= 0xFFFFFFFF
    return keys
