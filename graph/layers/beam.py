"""Beam search, step by step over sequences (LoD)."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidValue
from ..program.variable import Variable
from .arguments import Floats, Int64, integer
from .arrays import check_array
from .helper import layers


def check_beam(beam_size: Any, end_id: Any, layer: str, argument: str = "end_id") -> None:
    """Refuse a beam of no hypotheses, and an end that is no token.

    Raises:
        InvalidType: one is no integer.
        InvalidValue: ``beam_size`` is below 1, or the end below 0.
    """
    if integer(beam_size, "beam_size", layer) < 1:
        raise InvalidValue(f"{layer}: beam_size must be 1 or more, got {beam_size}.")
    if integer(end_id, argument, layer) < 0:
        raise InvalidValue(
            f"{layer}: {argument} must be a token, 0 or more, got {end_id}. For an end that never comes, take "
            f"the size of the vocabulary."
        )


def beam_search(
    pre_ids: Int64,
    pre_scores: Floats,
    ids: Int64 | None,
    scores: Floats,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """Let the ``beam_size`` best continuations of each source go on.

    Args:
        pre_ids: int64 [N, 1], the last word of each hypothesis; one that is ``end_id`` has ended.
        pre_scores: floats [N, 1], the scores of the hypotheses.
        ids: int64 [N, K], words that may follow; None: word k is column k of ``scores``.
        scores: floats [N, K], with sequences: those at ``level`` tell which hypotheses are of one source.
        is_accumulated: ``scores`` are those of whole hypotheses; else probabilities, whose logarithms are added
            to ``pre_scores``.

    Returns:
        Words and scores [n, 1] with two levels of sequences, the hypotheses of a source and what goes on of
        each; with ``return_parent_idx`` also the row of the hypothesis that each continues, int32 [n]. A source
        whose best hypotheses have all ended has no rows.

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    check_beam(beam_size, end_id, "beam_search")
    inputs = {"pre_ids": pre_ids, "pre_scores": pre_scores, "ids": ids, "scores": scores}
    results = "selected_scores selected_ids parent_idx"
    attrs = {"beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated}
    best, words, parents = layers("beam_search", name, results, **inputs, **attrs, level=level)
    return (words, best, parents) if return_parent_idx else (words, best)


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return whole hypotheses from the words that :func:`beam_search` chose, step by step.

    Args:
        ids, scores: arrays of what it returned in each step; the first entry is what the search began with.

    Returns:
        Words and scores [n] with two levels of sequences: ``beam_size`` hypotheses of each source, the best
        first, and their words.

    Raises:
        InvalidType: ``ids`` or ``scores`` is no array, or an argument of another type.
        InvalidValue: there is no such beam or end.
    """
    check_array(ids, "beam_search_decode", "ids")
    check_array(scores, "beam_search_decode", "scores")
    check_beam(beam_size, end_id, "beam_search_decode")
    fields = {"ids": ids, "scores": scores, "beam_size": beam_size, "end_id": end_id}
    words, best = layers("beam_search_decode", name, "SentenceIds SentenceScores", **fields)
    return words, best
