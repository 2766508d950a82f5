"""Terms of sequences, and hashes of them, one at a time in Python's integers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

MASK = 2**32 - 1
P1, P2, P3, P4, P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393


def turned(x: int, places: int) -> int:
    return (x << places | x >> (32 - places)) & MASK


def xxh32(data: bytes, seed: int) -> int:
    at, total = 0, seed + P5
    if len(data) >= 16:
        sums = [seed + P1 + P2, seed + P2, seed, seed - P1]
        while len(data) - at >= 16:
            lanes = struct.unpack_from("<4I", data, at)
            sums = [
                turned((s + lane * P2) & MASK, 13) * P1 & MASK
                for s, lane in zip(sums, lanes, strict=True)
            ]
            at += 16
        total = sum(turned(s, n) for s, n in zip(sums, (1, 7, 12, 18), strict=True))
    total = (total + len(data)) & MASK
    while at < len(data):
        total = turned((total + struct.unpack_from("<I", data, at)[0] * P3) & MASK, 17) * P4 & MASK
        at += 4
    total = (total ^ total >> 15) * P2 & MASK
    total = (total ^ total >> 13) * P3 & MASK
    return total ^ total >> 16


def terms(ends: Any, layers: int) -> Iterator[tuple[int, int, int]]:
    """Yield the sequence, the first word and the words of each term."""
    for number, (begin, end) in enumerate(pairwise(ends)):
        for words in range(2, layers + 1):
            for first in range(begin, end - words + 1):
                yield number, first, words


def looked_up(ins: dict[str, Any], ends: Any, layers: int) -> list[list[tuple[int, int]]]:
    """Return, by sequence, the first word and the words of the terms that are looked up."""
    by_sequence: list[list[tuple[int, int]]] = [[] for _ in ends[1:]]
    flags = ins["Terms"].reshape(-1) if "Terms" in ins else [1] * 9999
    for flag, (number, first, words) in zip(flags, terms(ends, layers), strict=False):
        if flag:
            by_sequence[number].append((first, words))
    return by_sequence


@reference("lod_of_terms")
def lod_of_terms(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    counts = [max(len(own), 1) for own in looked_up(ins, ins["X"], attrs["pyramid_layer"])]
    return {"Out": np.cumsum([0, *counts])}


@reference("pyramid_ids")
def pyramid_ids(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, piece, space = ins["X"].reshape(-1), attrs["rand_len"], attrs["space_len"]
    rows = []
    for own in looked_up(ins, ins["X@LOD"][0], attrs["pyramid_layer"]):
        for first, words in own:
            key = x[first : first + words].astype(np.float32).tobytes()
            begins = [xxh32(key, seed) % space for seed in range(0, attrs["num_emb"], piece)]
            rows.append([begin + k for begin in begins for k in range(piece)])
        if not own:
            rows.append([space + piece - 1] * attrs["num_emb"])
    return {"Out": np.array(rows)}
