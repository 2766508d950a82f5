"""Hashes of rows, of all at a time: see ``graph/ops/hash.py``. Arithmetic is modulo 2^64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops.hash import Hash
from ...device.device import Device
from ..registry import Step, kernel

_1, _2, _3, _4, _5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def _turned(x: Any, places: int) -> Any:
    return (x << np.uint64(places)) | (x >> np.uint64(64 - places))


def _mixed(total: Any, lane: Any) -> Any:
    return _turned(total + lane * _2, 31) * _1


def _hashed(words: Any, seed: int) -> Any:
    """Return the hash of each row of 32-bit words, which are read in pairs, four pairs a stripe."""
    # an array, whose arithmetic wraps silently
    start = words[:, 0] * np.uint64(0) + np.uint64(seed)
    lanes = words[:, 1::2] << np.uint64(32) | words[:, 0 : words.shape[1] // 2 * 2 : 2]
    stripes = lanes.shape[1] // 4 * 4
    total = start + _5
    if stripes:
        sums = [start + _1 + _2, start + _2, start, start - _1]
        for k in range(stripes):
            sums[k % 4] = _mixed(sums[k % 4], lanes[:, k])
        turns = (_turned(part, n) for part, n in zip(sums, (1, 7, 12, 18), strict=True))
        total = sum(turns, start * np.uint64(0))
        for part in sums:
            total = (total ^ _mixed(np.uint64(0), part)) * _1 + _4
    total = total + np.uint64(4 * words.shape[1])
    for k in range(stripes, lanes.shape[1]):
        total = _turned(total ^ _mixed(np.uint64(0), lanes[:, k]), 27) * _1 + _4
    if words.shape[1] % 2:
        total = _turned(total ^ words[:, -1] * _1, 23) * _2 + _3
    total = (total ^ total >> np.uint64(33)) * _2
    total = (total ^ total >> np.uint64(29)) * _3
    return total ^ total >> np.uint64(32)


@kernel("hash")
def hash_(dev: Device, a: Hash) -> Step:
    def run() -> None:
        words = dev.xp.ascontiguousarray(a.x).view(np.uint32).astype(np.uint64)
        for seed in range(a.num_hash):
            hashes = _hashed(words, seed) % np.uint64(a.mod_by)
            a.out[:, seed, 0] = hashes.astype(a.out.dtype)

    return run
