"""Conditional random fields over chains. Legend: N rows, B sequences, T steps, C tags.

``Transition`` [C + 2, C] holds the scores of the first tag, of the last tag, and of tag j after tag i.
The score of a chain is the sum of its emissions and transitions. Sequences are LoD, or rows of a batch with
``Length``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import VarType
from .lod import like, no_sequences
from .operands import Input, Offsets, Operands, Output
from .registry import Inference, Op, Spec, Specs, define
from .rules import hold_floats, hold_integers, match, of_shape, one_level
from .samples import integers, lengths, normal, offsets, sample


class LinearChainCrf(Operands):
    emission: Input
    emission_lod: Offsets
    transition: Input
    label: Input
    length: Input | None
    alpha: Output
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
    length: Input | None
    viterbi_path: Output


def _check(op: Inference) -> tuple[Spec, int]:
    """Check emissions, transitions, labels and lengths; return the emissions and the number of sequences."""
    x, padded = op.spec("Emission"), op.has("Length")
    hold_floats(op, "Emission")
    hold_integers(op, "Length", "Label")
    match(op, Emission="B T C" if padded else "N C", Length="B 1?")
    if padded:
        count = x.shape[0]
    else:
        count = op.sequences("Emission")
        one_level(op, "Emission")
    tags = x.shape[-1]
    rows = tags + 2 if tags >= 0 else -1  # of the first tag, the last, and one tag after another
    match(op, {"rows": rows, "tags": tags}, Transition="rows tags", Label=(*x.shape[:-1], "1?"))
    return x, count


def crf_shape(op: Inference) -> Mapping[str, Specs]:
    """The negative log-likelihood of each sequence, [B, 1]."""
    x, count = _check(op)
    return {
        "Alpha": x,
        "EmissionExps": x,
        "TransitionExps": op.spec("Transition"),
        "LogLikelihood": of_shape((count, 1), x),
    }


def decoding_shape(op: Inference) -> Mapping[str, Specs]:
    """A tag for each row, [N, 1], or [B, T] of a padded batch."""
    x, _ = _check(op)
    shape = x.shape[:-1] if op.has("Length") else (x.shape[0], 1)
    return {"ViterbiPath": Spec(shape, VarType.INT64)}


_T = {"Transition": normal(5, 3)}
_LOD = {"Emission": normal(5, 3), **_T, "Emission@LOD": [offsets(2, 0, 3)]}
_PADDED = {"Emission": normal(3, 4, 3), **_T, "Length": lengths(2, 0, 4)}
define(
    "linear_chain_crf",
    LinearChainCrf,
    crf_shape,
    lod=like("Emission", "Alpha", "EmissionExps"),
    samples=(
        sample({**_LOD, "Label": integers(5, 1, high=3)}),
        sample({**_PADDED, "Label": integers(3, 4, high=3)}),
    ),
    refuses=(
        sample({**_LOD, "Label": integers(4, 1, high=3)}),
        sample({**_LOD, "Label": integers(5, 1, high=3), "Transition": normal(3, 3)}),
        sample({**_LOD, "Label": normal(5, 1)}),
        sample({**_PADDED, "Label": integers(3, 4, high=3), "Emission": normal(12, 3)}),
    ),
    slope=Op("linear_chain_crf_grad", LinearChainCrfGrad),
)
define(
    "crf_decoding",
    CrfDecoding,
    decoding_shape,
    lod=lambda op: no_sequences(op) if op.uses("Length") else {"ViterbiPath": op.of("Emission")},
    samples=(
        sample(_LOD),
        sample({**_LOD, "Label": integers(5, 1, high=3)}),
        sample(_PADDED),
        sample({**_PADDED, "Label": integers(3, 4, high=3)}),
    ),
    refuses=(
        sample({**_LOD, "Transition": normal(5, 4)}),
        sample({**_LOD, "Emission@LOD": [offsets(1, 2), offsets(2, 0, 3)]}),
    ),
)
