"""Terms of sequences of words, and where hashes of them lead; on the host. Words are hashed as float32.

Legend: T terms of one length, n words of a term.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ....graph.ops.operands import Array
from ....graph.ops.pyramid_hash import OffsetsOfTerms, PyramidIds, PyramidTerms, terms_of
from ....strategies.errors import InvalidValue
from ...device.device import Device
from ..registry import Step, each_step, kernel
from .draw import of_samples

ON = ("numpy",)


# -- hashes -----------------------------------------------------------------------------------------


def _turned(x: Array, places: int) -> Array:
    bits = 8 * x.itemsize
    return (x << x.dtype.type(places)) | (x >> x.dtype.type(bits - places))


def xxh32(words_Tn: Array, seed: int) -> Array:
    """Return the hash of each row of uint32 (Collet, xxHash specification 0.1.1)."""
    p1, p2, p3, p4, p5 = np.array(
        [0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1], np.uint32
    )
    count = words_Tn.shape[1]
    start = np.full(len(words_Tn), seed, np.uint32)
    stripes = count // 4 * 4
    total = start + p5
    if stripes:
        sums = [start + p1 + p2, start + p2, start, start - p1]
        for k in range(stripes):
            sums[k % 4] = _turned(sums[k % 4] + words_Tn[:, k] * p2, 13) * p1
        first, second, third, fourth = (
            _turned(part, n) for part, n in zip(sums, (1, 7, 12, 18), strict=True)
        )
        total = first + second + third + fourth
    total = total + np.uint32(4 * count)
    for k in range(stripes, count):
        total = _turned(total + words_Tn[:, k] * p3, 17) * p4
    total = (total ^ total >> np.uint32(15)) * p2
    total = (total ^ total >> np.uint32(13)) * p3
    return total ^ total >> np.uint32(16)


def murmur3(words_Tn: Array, seed: int) -> tuple[Array, Array]:
    """Return the two halves of the 128-bit hash of each row of uint32 (Appleby, MurmurHash3, x64)."""
    c1, c2 = np.array([0x87C37B91114253D5, 0x4CF5AD432745937F], np.uint64)
    count = words_Tn.shape[1]
    wide = np.zeros((len(words_Tn), -(-count // 4) * 4), np.uint32)
    wide[:, :count] = words_Tn
    lanes = wide.view(np.uint64)
    low = np.full(len(words_Tn), seed, np.uint64)
    high, five = low.copy(), np.uint64(5)
    for k in range(0, lanes.shape[1], 2):
        left, right = _turned(lanes[:, k] * c1, 31) * c2, _turned(lanes[:, k + 1] * c2, 33) * c1
        if 2 * k + 4 > count:  # the rest of a row, which is not mixed
            low, high = low ^ left, high ^ right
            break
        low = (_turned(low ^ left, 27) + high) * five + np.uint64(0x52DCE729)
        high = (_turned(high ^ right, 31) + low) * five + np.uint64(0x38495AB5)
    low, high = low ^ np.uint64(4 * count), high ^ np.uint64(4 * count)
    low = low + high
    high = high + low
    low, high = _mixed(low), _mixed(high)
    low = low + high
    return low, high + low


def _mixed(x: Array) -> Array:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ x >> np.uint64(33)) * np.uint64(factor)
    return x ^ x >> np.uint64(33)


# -- Bloom filters ----------------------------------------------------------------------------------

_MARK = 17070416


class BloomFilter(NamedTuple):
    """Bits in bytes, the highest of a byte first, and how many pairs of them a key has: Bloom, 1970."""

    bits: int
    pairs: int
    data: Array

    @classmethod
    def of(cls, table: Array, slot: str) -> BloomFilter:
        """Read a filter from a parameter's bytes: a mark, and how many bits, pairs and keys; then the bits.

        Raises:
            InvalidValue: it is none.
        """
        data = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
        mark, bits, pairs, _ = data[:32].view("<u8").tolist() if data.size >= 32 else (0,) * 4
        if mark != _MARK or not 0 < bits <= 8 * (data.size - 32):
            raise InvalidValue(
                f"pyramid_hash: {slot} is no Bloom filter of {data.size} bytes (it begins with {mark}, has "
                f"{bits} bits): set the parameter to a filter's bytes, as float32, before the first step"
            )
        return cls(bits, pairs, data[32:])

    def holds(self, words_Tn: Array) -> Array:
        """Tell which rows of uint32 are keys."""
        hits = np.ones(len(words_Tn), bool)
        for seed in range(self.pairs):
            for half in murmur3(words_Tn, seed):
                place = (half % np.uint64(self.bits)).astype(np.int64)
                hits &= (self.data[place >> 3] >> (7 - (place & 7)) & 1).astype(bool)
        return hits


# -- terms ------------------------------------------------------------------------------------------


def _windows(x: Array, first: Array, words: Array) -> Iterator[tuple[Array, Array]]:
    """Yield, by the number of words n, which terms have as many, and their words [T, n] as uint32."""
    bits = np.ascontiguousarray(x.reshape(-1), np.float32).view(np.uint32)
    for count in np.unique(words).tolist():
        terms = np.flatnonzero(words == count)
        yield terms, bits[first[terms, None] + np.arange(count)]


@kernel("pyramid_terms", on=ON)
def pyramid_terms(dev: Device, a: PyramidTerms) -> Step:
    """A term's chance hangs on the place of its first word in the batch, and on how many words it has."""
    stream, layers, rate = of_samples(dev, a.seed), a.pyramid_layer, a.drop_out_percent

    def run() -> None:
        first, words, _ = terms_of(a.x_lod[-1], layers)
        flags = np.ones(len(first), bool)
        lists = ((a.white_list, "WhiteList", True), (a.black_list, "BlackList", False))
        for table, slot, wanted in lists:
            if table is None:
                continue
            bloom = BloomFilter.of(table, slot)
            for terms, windows in _windows(a.x, first, words):
                flags[terms] &= bloom.holds(windows) == wanted
        if rate:
            chances = stream.uniform((len(a.x), layers), np.dtype(np.float64))
            flags &= chances[first, words - 1] >= rate
        a.out[...] = 0
        a.out[: len(flags), 0] = flags

    return run


def _looked_up(a: OffsetsOfTerms | PyramidIds, ends: Array) -> tuple[Array, Array, Array]:
    """Return first words, words and sequences of the terms that are looked up."""
    first, words, sequence = terms_of(ends, a.pyramid_layer)
    if a.terms is None:
        return first, words, sequence
    here = np.flatnonzero(a.terms.reshape(-1)[: len(first)])
    return first[here], words[here], sequence[here]


@each_step("lod_of_terms", on=ON)
def lod_of_terms(a: OffsetsOfTerms) -> None:
    _, _, sequence = _looked_up(a, a.x)
    counts = np.bincount(sequence, minlength=len(a.x) - 1)
    a.out[0] = 0
    np.cumsum(np.maximum(counts, 1), out=a.out[1:])


@each_step("pyramid_ids", on=ON)
def pyramid_ids(a: PyramidIds) -> None:
    """Piece k of a term's row begins where the hash with its place in the row as the seed says."""
    begins, within = np.arange(0, a.num_emb, a.rand_len), np.arange(a.rand_len)
    first, words, sequence = _looked_up(a, a.x_lod[-1])
    places = np.empty((len(first), len(begins)), np.int64)
    for terms, windows in _windows(a.x, first, words):
        for piece, seed in enumerate(begins.tolist()):
            places[terms, piece] = xxh32(windows, seed) % np.uint32(a.space_len)
    before = np.searchsorted(sequence, sequence)  # terms of the sequences before
    rows = a.out_lod[-1][sequence] + np.arange(len(first)) - before
    a.out[...] = a.space_len + a.rand_len - 1
    a.out[rows] = (places[:, :, None] + within).reshape(len(first), a.num_emb)
