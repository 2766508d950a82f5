"""Whole hypotheses of a beam search, from the words that each step chose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ...strategies.errors import InvalidValue
from .tensor_array import Entry, TensorArray


@dataclass
class _Hypothesis:
    """Words and scores, last first; ``row`` is that of the word which comes before them."""

    row: int
    words: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def add(self, word: int, score: float) -> None:
        self.words.append(word)
        self.scores.append(score)


def beam_search_decode(
    ids: TensorArray, scores: TensorArray, beam_size: int, end_id: int
) -> tuple[Entry, Entry]:
    """Return the words and scores of all hypotheses of each source, the best first.

    Of the end tokens that a finished hypothesis repeats one stays. Levels are sources and hypotheses.

    Raises:
        InvalidValue: the arrays differ in length or have holes, an entry does not have two levels of sequences,
            or a source has more than ``beam_size`` hypotheses.
    """
    steps = list(_steps(ids, scores))
    hypotheses: list[list[_Hypothesis]] = [[] for _ in steps[0][0].levels[0][1:]]
    for words, step_scores in reversed(steps):
        sources, prefixes = words.levels
        spans = pairwise(prefixes[sources].tolist())
        parents = np.repeat(np.arange(prefixes.size - 1), np.diff(prefixes))
        for beam, (begin, end) in zip(hypotheses, spans, strict=True):
            ending = not beam  # the search for this source ended here
            if ending:
                beam += (_Hypothesis(row) for row in range(begin, end))
            for each in beam:
                word = int(words.elements.flat[each.row])
                if ending or word != end_id:
                    each.add(word, float(step_scores.elements.flat[each.row]))
                each.row = int(parents[each.row])
    for source, beam in enumerate(hypotheses):
        if len(beam) > beam_size:
            raise InvalidValue(
                f"source {source} has {len(beam)} hypotheses, more than beam_size={beam_size}: pass the "
                f"beam_size of beam_search."
            )
        beam.sort(key=lambda each: -each.scores[0])
    flat = [each for beam in hypotheses for each in beam]
    levels = (_offsets(map(len, hypotheses)), _offsets(len(each.words) for each in flat))
    kinds = (steps[0][0].elements.dtype, steps[0][1].elements.dtype)
    words_out = np.array([word for each in flat for word in reversed(each.words)], kinds[0])
    scores_out = np.array([score for each in flat for score in reversed(each.scores)], kinds[1])
    return Entry(words_out, levels), Entry(scores_out, levels)


def _offsets(lengths: Iterable[int]) -> np.ndarray:
    return np.cumsum([0, *lengths], dtype=np.int64)


def _steps(ids: TensorArray, scores: TensorArray) -> Iterator[tuple[Entry, Entry]]:
    """Check the entries, and return them in pairs."""
    if not ids or len(ids) != len(scores):
        raise InvalidValue(
            f"Ids has {len(ids)} entries and Scores {len(scores)}: write both in each step, from 0 on."
        )
    for number, (words, step_scores) in enumerate(zip(ids, scores, strict=True)):
        if words is None or step_scores is None:
            raise InvalidValue(f"entry {number} was never written.")
        if len(words.levels) != 2:
            raise InvalidValue(
                f"entry {number} of Ids has {len(words.levels)} levels of sequences, not 2, sources and "
                f"prefixes: write what beam_search returned, and first a tensor with two levels of lengths, "
                f"[[1, ...], [1, ...]]."
            )
        rows = int(words.levels[1][-1])
        if not rows == words.elements.size == step_scores.elements.size:
            raise InvalidValue(
                f"entry {number}: the sequences of Ids end at row {rows}; it has {words.elements.size} words, "
                f"and Scores {step_scores.elements.size}."
            )
        yield words, step_scores
