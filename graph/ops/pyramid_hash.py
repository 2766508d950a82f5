"""Embeddings of all short runs of words in a sequence, by hashes: pyramid_hash.

A term is a run of 2 words and more. Its row is made of pieces of one long table, that begin where hashes of the
term say. ``pyramid_hash`` has no kernel: ``graph/ir/written_out.py`` reads it as a lookup of ``pyramid_ids``.
Legend: N words, B sequences, T terms.
"""

from __future__ import annotations

import numpy as np

from .levels import level_from
from .lod import no_sequences
from .operands import Array, Input, Offsets, Operands, Output, Positive, record_of
from .registry import define, define_block, slope
from .samples import lengths, sample
from .shapes import Sized, in_sequences, rows_of_result

_LAYERS = "pyramid_layer >= 2; pyramid_layer must be 2 or more"
_PIECES = (
    "rand_len > 0 and num_emb > 0 and num_emb % rand_len == 0; "
    "num_emb must be a multiple of rand_len, both above 0"
)

# Beside what its gradient op does, Paddle's takes ``lr`` times the gradient of W off W; X, integers, has none.
define_block(
    "pyramid_hash",
    record_of(
        "x w white_list black_list",
        "out drop_pos x_temp_out:X_Temp_Out",
        num_emb=0,
        space_len=0,
        pyramid_layer=2,
        rand_len=0,
        drop_out_percent=0.0,
        is_training=0,
        use_filter=True,
        white_list_len=0,
        black_list_len=0,
        seed=0,
        lr=0.0,
        distribute_update_vars="",
    ),
    Sized(  # DropPos has a flag for each term, and zeros behind them
        "X integers [N 1?], W float32 [space_len+rand_len 1] -> "
        "Out float32 [T num_emb], DropPos int32 [N*pyramid_layer 1], X_Temp_Out float32",
        in_sequences("X"),
        _LAYERS,
        _PIECES,
        "0 <= drop_out_percent <= 1; drop_out_percent must be from 0 to 1",
        "not use_filter or WhiteList[0] == white_list_len; WhiteList must have so many rows",
        "not use_filter or BlackList[0] == black_list_len; BlackList must have so many rows",
    ),
    lod=lambda op: {"Out": op.of("X")[-1:]},  # as many levels; the graph's reader has others
    slope=slope("x w drop_pos x_temp_out d_out", "d_x"),
)


def terms_of(ends: Array, layers: int) -> tuple[Array, Array, Array]:
    """Return the first word, the words and the sequence of each term: by sequence, by words, by place."""
    sequence = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    left = ends[1:][sequence] - np.arange(len(sequence))
    firsts = [np.flatnonzero(left >= count) for count in range(2, layers + 1)]
    first = np.concatenate(firsts)
    words = np.repeat(np.arange(2, layers + 1), [len(part) for part in firsts])
    order = np.lexsort((first, words, sequence[first]))
    return first[order], words[order], sequence[first[order]]


class PyramidTerms(Operands):
    """Out has 1 for each term that is looked up, 0 for others and behind all of them: [N * pyramid_layer, 1].

    Such terms are in WhiteList and not in BlackList, and are not dropped. Lists are the bytes of Bloom filters.
    """

    x: Input
    white_list: Input | None
    black_list: Input | None
    x_lod: Offsets
    out: Output
    pyramid_layer: int = 2
    drop_out_percent: float = 0.0
    seed: int = 0


class OffsetsOfTerms(Operands):
    """A row for each term that is looked up, or one of a sequence that has none."""

    x: Input
    terms: Input | None
    out: Output
    pyramid_layer: int = 2


class PyramidIds(Operands):
    """The places in the table of each number in a term's row; the last place for a sequence without terms."""

    x: Input
    terms: Input | None
    x_lod: Offsets
    out_lod: Offsets
    out: Output
    pyramid_layer: int = 2
    num_emb: int = 0
    rand_len: int = 0
    space_len: Positive = 0


_WORDS = "X 0:99 [6 1], X@LOD [1 3 2]"
_TERMS = lengths(1, 0, 1, 0, *[0] * 14)
_SIZES = {"num_emb": 4, "rand_len": 2, "space_len": 9, "pyramid_layer": 3}
define(
    "pyramid_terms",
    PyramidTerms,
    Sized("X integers [N 1?] -> Out int32 [N*pyramid_layer 1]", in_sequences("X"), _LAYERS),
    lod=no_sequences,
    random=True,
    by_place=lambda attrs: True,
    samples=(
        sample(_WORDS, pyramid_layer=3),
        sample(_WORDS, pyramid_layer=2, drop_out_percent=0.5),
    ),
    refuses=(
        sample(_WORDS, pyramid_layer=1),
        sample(_WORDS, "X [6 1]"),
        sample(_WORDS, "X 0:99 [6 2]"),
    ),
)
define(
    "lod_of_terms",
    OffsetsOfTerms,
    lambda op: {"Out": op.spec("X")},
    lod=no_sequences,
    samples=(
        sample("X offsets [1 3 2]", pyramid_layer=3),
        sample("X offsets [1 3 2]", {"Terms": _TERMS}, pyramid_layer=3),
    ),
)
define(
    "pyramid_ids",
    PyramidIds,
    Sized(
        "X integers [N 1?] -> Out int64 [T num_emb]",
        in_sequences("X"),
        _LAYERS,
        _PIECES,
        rows_of_result("T"),
    ),
    reads_values=lambda attrs: ("Out@LOD",),
    lod=level_from("lod_of_terms", X="X@LOD", Terms="Terms"),
    samples=(
        sample(_WORDS, "Out@LOD [1 3 1]", **_SIZES),
        sample(_WORDS, {"Terms": _TERMS}, "Out@LOD [1 2 1]", **_SIZES),
    ),
    refuses=(sample(_WORDS, "Out@LOD [1 3 1]", **{**_SIZES, "rand_len": 3}),),
)
