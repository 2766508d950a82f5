"""Hashes of rows, of one at a time, in Python's integers."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .registry import reference

MASK = 2**64 - 1
P1, P2, P3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
P4, P5 = 9650029242287828579, 2870177450012600261


def turned(x: int, places: int) -> int:
    return (x << places | x >> (64 - places)) & MASK


def mixed(total: int, lane: int) -> int:
    return turned((total + lane * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    at, total = 0, seed + P5
    if len(data) >= 32:
        sums = [seed + P1 + P2, seed + P2, seed, seed - P1]
        while len(data) - at >= 32:
            lanes = struct.unpack_from("<4Q", data, at)
            sums = [mixed(s & MASK, lane) for s, lane in zip(sums, lanes, strict=True)]
            at += 32
        total = sum(turned(s, n) for s, n in zip(sums, (1, 7, 12, 18), strict=True))
        for s in sums:
            total = ((total & MASK) ^ mixed(0, s)) * P1 + P4
    total = (total + len(data)) & MASK
    while len(data) - at >= 8:
        total = turned(total ^ mixed(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4
        total, at = total & MASK, at + 8
    if len(data) - at >= 4:
        total ^= struct.unpack_from("<I", data, at)[0] * P1 & MASK
        total = (turned(total, 23) * P2 + P3) & MASK
    total = (total ^ total >> 33) * P2 & MASK
    total = (total ^ total >> 29) * P3 & MASK
    return total ^ total >> 32


@reference("hash")
def hash_(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rows = [
        [[xxh64(row.tobytes(), seed) % attrs["mod_by"]] for seed in range(attrs["num_hash"])]
        for row in ins["X"]
    ]
    return {"Out": np.array(rows, "int64").astype(ins["X"].dtype)}
