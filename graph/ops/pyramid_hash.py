"""Embeddings of all short runs of words in a sequence, by hashes: pyramid_hash.

A term is a run of 2 words and more. Its row is made of pieces of one long table, that begin where hashes of the
term say. ``pyramid_hash`` has no kernel: ``graph/ir/written_out.py`` reads it as a lookup of ``pyramid_ids``.
Legend: N words, B sequences, T terms.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...strategies.types import INTEGERS, VarType
from .levels import level_from
from .lod import no_sequences
from .operands import Array, Input, Offsets, Operands, Output, Positive, record_of
from .registry import Inference, Spec, Specs, define, define_block, slope
from .rules import is_column, match, merge_dims, one_level
from .samples import integers, lengths, normal, offsets, sample


def _words(op: Inference, layers: int) -> int:
    """Check X, and return how many words it has."""
    x = op.spec("X")
    one_level(op, "X")
    op.require(x.dtype in INTEGERS, "X must hold integers: the numbers of words")
    op.require(is_column(x.shape), "X must have one word in a row: [N, 1]")
    op.require(layers >= 2, f"pyramid_layer must be 2 or more, got {layers}")
    return x.shape[0]


def _pieces(op: Inference) -> int:
    """Check the width of a term's row, and return it."""
    width, piece = op.attr("num_emb"), op.attr("rand_len")
    fits = piece > 0 and width > 0 and width % piece == 0
    op.require(fits, f"num_emb {width} must be a multiple of rand_len {piece}, both above 0")
    return int(width)


def pyramid_hash_shape(op: Inference) -> Mapping[str, Specs]:
    """[T, num_emb]; DropPos has a flag for each term, and zeros behind them."""
    layers, width = op.attr("pyramid_layer"), _pieces(op)
    count = _words(op, layers)
    match(op, W=(op.attr("space_len") + op.attr("rand_len"), 1))
    op.require(op.spec("W").dtype == VarType.FP32, "W must hold float32")
    rate = op.attr("drop_out_percent")
    op.require(0 <= rate <= 1, f"drop_out_percent must be from 0 to 1, got {rate}")
    for slot, attr in (("WhiteList", "white_list_len"), ("BlackList", "black_list_len")):
        size = op.attr(attr) if op.attr("use_filter") else 0
        fits = not size or merge_dims(op.shape(slot)[0], size) is not None
        op.require(fits, f"{slot} must have {attr} = {size} rows")
    return {
        "Out": Spec((-1, width), VarType.FP32),
        "DropPos": Spec((max(count * layers, -1), 1), VarType.INT32),
        "X_Temp_Out": Spec(op.shape("X"), VarType.FP32),
    }


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
    pyramid_hash_shape,
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


def terms_shape(op: Inference) -> Mapping[str, Specs]:
    """As many flags as there could be terms."""
    count = _words(op, op.attr("pyramid_layer"))
    op.sequences("X")
    return {"Out": Spec((max(count * op.attr("pyramid_layer"), -1), 1), VarType.INT32)}


def ids_shape(op: Inference) -> Mapping[str, Specs]:
    """[T, num_emb]."""
    _words(op, op.attr("pyramid_layer"))
    op.sequences("X")
    ends = op.value("Out@LOD") if op.has("Out@LOD") else None
    return {"Out": Spec((-1 if ends is None else int(ends[-1]), _pieces(op)), VarType.INT64)}


_WORDS = {"X": integers(6, 1, high=99), "X@LOD": [offsets(1, 3, 2)]}
_TERMS = lengths(1, 0, 1, 0, *[0] * 14)
_SIZES = {"num_emb": 4, "rand_len": 2, "space_len": 9, "pyramid_layer": 3}
define(
    "pyramid_terms",
    PyramidTerms,
    terms_shape,
    lod=no_sequences,
    random=True,
    by_place=lambda attrs: True,
    samples=(
        sample(_WORDS, pyramid_layer=3),
        sample(_WORDS, pyramid_layer=2, drop_out_percent=0.5),
    ),
    refuses=(
        sample(_WORDS, pyramid_layer=1),
        sample({**_WORDS, "X": normal(6, 1)}),
        sample({**_WORDS, "X": integers(6, 2, high=99)}),
    ),
)
define(
    "lod_of_terms",
    OffsetsOfTerms,
    lambda op: {"Out": op.spec("X")},
    lod=no_sequences,
    samples=(
        sample({"X": offsets(1, 3, 2)}, pyramid_layer=3),
        sample({"X": offsets(1, 3, 2), "Terms": _TERMS}, pyramid_layer=3),
    ),
)
define(
    "pyramid_ids",
    PyramidIds,
    ids_shape,
    reads_values=lambda attrs: ("Out@LOD",),
    lod=level_from("lod_of_terms", "Out", X="X@LOD", Terms="Terms"),
    samples=(
        sample({**_WORDS, "Out@LOD": [offsets(1, 3, 1)]}, **_SIZES),
        sample({**_WORDS, "Terms": _TERMS, "Out@LOD": [offsets(1, 2, 1)]}, **_SIZES),
    ),
    refuses=(sample({**_WORDS, "Out@LOD": [offsets(1, 3, 1)]}, **{**_SIZES, "rand_len": 3}),),
)
