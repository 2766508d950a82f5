"""Conditional random fields over chains. Legend: N rows, B sequences, T steps, C tags.

``Transition`` [C + 2, C] holds the scores of the first tag, of the last tag, and of tag j after tag i.
The score of a chain is the sum of its emissions and transitions. Sequences are LoD, or rows of a batch with
``Length``.
"""

from __future__ import annotations

from .lod_levels import as_of
from .operands import Input, Offsets, Operands, Output
from .registry import Op, define
from .samples import sample
from .shapes import Sized, by_use, in_sequences


class LinearChainCrf(Operands):
    emission: Input
    emission_lod: Offsets
    transition: Input
    label: Input
    label_lod: Offsets
    length: Input | None
    alpha: Output
    alpha_lod: Offsets  # of Emission, once Label is known to have the same
    emission_exps: Output
    transition_exps: Output
    log_likelihood: Output


class LinearChainCrfGrad(LinearChainCrf, reads="* alpha emission_exps transition_exps"):
    d_log_likelihood: Input
    d_emission: Output | None
    d_transition: Output | None


class CrfDecoding(Operands):
    emission: Input
    emission_lod: Offsets
    transition: Input
    label: Input | None
    label_lod: Offsets
    length: Input | None
    viterbi_path: Output
    viterbi_path_lod: Offsets


# Transition: of the first tag, of the last, and of one tag after another
_ROWS = "Emission floats [N C], Transition [C+2 C], Label integers [N 1?]"
_ROWS_OF_BATCH = (
    "Emission floats [B T C], Transition [C+2 C], Label integers [B T 1?], Length integers [B 1?]"
)
_ONE_LEVEL = in_sequences("Emission", "Label")
_OF_CRF = "Alpha as Emission, EmissionExps as Emission, TransitionExps as Transition"
_T = "Transition [5 3]"
_LOD = f"Emission [5 3], {_T}, Emission@LOD [2 0 3]"
_TAGS = "Label 0:3 [5 1], Label@LOD [2 0 3]"
_PADDED = f"Emission [3 4 3], {_T}, Length lengths [2 0 4]"
define(
    "linear_chain_crf",
    LinearChainCrf,
    by_use(
        "Length",
        Sized(f"{_ROWS_OF_BATCH} -> {_OF_CRF}, LogLikelihood [B 1]"),
        Sized(f"{_ROWS} -> {_OF_CRF}, LogLikelihood [sequences(Emission) 1]", _ONE_LEVEL),
    ),
    lod=as_of("Emission", "Label", "Alpha", "EmissionExps"),
    samples=(
        sample(_LOD, _TAGS),
        sample(_PADDED, "Label 0:3 [3 4]"),
    ),
    refuses=(
        sample(_LOD, _TAGS, "Label 0:3 [4 1]"),
        sample(_LOD, _TAGS, "Transition [3 3]"),
        sample(_LOD, _TAGS, "Label [5 1]"),
        sample(_LOD, "Label 0:3 [5 1]"),
        sample(_PADDED, "Label 0:3 [3 4], Emission [12 3]"),
    ),
    slope=Op("linear_chain_crf_grad", LinearChainCrfGrad, shapes_of=("Emission",)),
)
define(
    "crf_decoding",
    CrfDecoding,
    by_use(
        "Length",
        Sized(f"{_ROWS_OF_BATCH} -> ViterbiPath int64 [B T]"),
        by_use(
            "Label",
            Sized(f"{_ROWS} -> ViterbiPath int64 [N 1]", _ONE_LEVEL),
            Sized(f"{_ROWS} -> ViterbiPath int64 [N 1]", in_sequences("Emission")),
        ),
    ),
    lod=lambda op: {} if op.uses("Length") else as_of("Emission", "Label", "ViterbiPath")(op),
    samples=(
        sample(_LOD),
        sample(_LOD, _TAGS),
        sample(_PADDED),
        sample(_PADDED, "Label 0:3 [3 4]"),
    ),
    refuses=(
        sample(_LOD, "Transition [5 4]"),
        sample(_LOD, "Emission@LOD [1 2] [2 0 3]"),
        sample(_LOD, "Label 0:3 [5 1]"),
    ),
)
