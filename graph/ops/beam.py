"""Beam search, one step: of what continues each hypothesis, what goes on.

A source has several prefixes, its beam; their candidates compete with each other. Legend: N prefixes, K
candidates of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...strategies.types import VarType
from .lod import Lods, no_sequences
from .lod_levels import absolute
from .operands import Input, NotNegative, Offsets, Operands, Output, Positive, named
from .registry import OFFSETS, Inference, Spec, Specs, define
from .rules import hold_floats, match, of_shape
from .samples import sample


class Candidates(Operands):
    pre_ids: Input = named("pre_ids")
    pre_scores: Input = named("pre_scores")
    ids: Input | None = named("ids")
    scores: Input = named("scores")
    level: NotNegative = 0
    beam_size: Positive = 0
    end_id: NotNegative = 0
    is_accumulated: bool = True


class BeamSearch(Candidates):
    scores_lod: Offsets = named("scores@LOD")
    selected_ids: Output = named("selected_ids")
    selected_scores: Output = named("selected_scores")
    parent_idx: Output | None = named("parent_idx")


class OffsetsSelected(Candidates):
    x: Input
    out: Output


class Selection(NamedTuple):
    """What goes on, by prefix and then by score: [n] each; ``parents`` are rows of prefixes."""

    ids: np.ndarray
    scores: np.ndarray
    parents: np.ndarray


def select(a: Any, sources: np.ndarray) -> Selection:
    """Choose the ``beam_size`` best candidates of each source, whose prefixes lie between offsets.

    A prefix that has ended has one candidate, itself; a source all of whose chosen candidates are such is done,
    and none of them goes on.
    """
    pre_ids, pre_scores = a.pre_ids.reshape(-1), a.pre_scores.reshape(-1, 1)
    scores = a.scores if a.is_accumulated else pre_scores + np.log(a.scores)
    columns = np.arange(scores.shape[1])
    ids = np.broadcast_to(columns, scores.shape) if a.ids is None else a.ids
    ended = (pre_ids == a.end_id)[:, None]
    offered = ~ended | (columns == 0)
    ids, scores = np.where(ended, a.end_id, ids), np.where(ended, pre_scores, scores)
    candidates: list[tuple[int, int]] = []
    for begin, end in pairwise(sources):
        rows, places = np.nonzero(offered[begin:end])
        best = _best(scores[rows + begin, places], rows + begin, a.beam_size)
        pairs = [(int(rows[k] + begin), int(places[k])) for k in best]
        if not all(ended[row, 0] for row, _ in pairs):
            candidates += sorted(pairs, key=lambda pair: pair[0])
    rows, places = np.array(candidates, np.int64).reshape(-1, 2).T
    return Selection(ids[rows, places], scores[rows, places], rows)


def _selected(a: BeamSearch) -> Mapping[str, Any]:
    ids, scores, parents = select(a, absolute(a.scores_lod[a.level :]))
    return {
        "selected_ids": ids[:, None],
        "selected_scores": scores[:, None],
        "parent_idx": parents,
    }


def _offsets_selected(a: OffsetsSelected) -> Mapping[str, Any]:
    """Count what goes on before each prefix; what goes on is ordered by prefix."""
    return {"out": np.searchsorted(select(a, a.x).parents, np.arange(a.out.size))}


def _best(scores: np.ndarray, rows: np.ndarray, count: int) -> list[int]:
    """Return the positions of the ``count`` highest scores, best first.

    Among equal scores the later row comes first. In one row the earlier candidate does, but the last place goes
    to the latest.
    """
    least = np.partition(scores, -count)[-count] if scores.size > count else -np.inf
    best: list[int] = []
    for k in np.flatnonzero(scores >= least).tolist():
        key = (scores[k], rows[k])
        if len(best) == count:
            if key < (scores[best[-1]], rows[best[-1]]):
                continue
            best.pop()
        place = sum((scores[other], rows[other]) >= key for other in best)
        best.insert(place, k)
    return best


def _rows(op: Inference) -> int:
    """Check candidates; return the number of prefixes."""
    match(op, scores="N K", pre_ids="N 1", pre_scores="N 1", ids="N K")
    hold_floats(op, "scores", "pre_scores")
    for slot in filter(op.has, ("pre_ids", "ids")):
        op.require(op.spec(slot).dtype == VarType.INT64, f"{slot} must hold int64")
    return op.shape("scores")[0]


def beam_search_shape(op: Inference) -> Mapping[str, Specs]:
    """As many rows as candidates go on."""
    rows, count, level = _rows(op), -1, op.attr("level")
    if op.exact:
        op.sequences("scores")
        levels = op.specs("scores@LOD")
        depth = f"level {level} is outside the {len(levels)} levels of sequences of scores"
        op.require(level < len(levels), depth)
        sources = absolute([op.value("scores@LOD", k) for k in range(level, len(levels))])
        ends = f"the sequences of scores end at row {sources[-1]}, and it has {rows} rows"
        op.require(sources[-1] == rows, ends)
        slots = ("pre_ids", "pre_scores", "ids", "scores")
        values = {slot: op.value(slot) if op.has(slot) else None for slot in slots}
        count = select(Candidates.of({**op.attrs, **values}), sources).ids.size
    return {
        "selected_ids": Spec((count, 1), VarType.INT64),
        "selected_scores": of_shape((count, 1), op.spec("scores")),
        "parent_idx": Spec((count,), VarType.INT32),
    }


def beam_search_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """Sources in rows of prefixes, and of each prefix what goes on."""
    levels = op.of("scores")[op.attrs["level"] :]
    if not levels:
        return {}
    sources = op.level("lod_absolute", {"X": levels}) if len(levels) > 1 else levels[0]
    slots = ("pre_ids", "pre_scores", "ids", "scores")
    operands = {slot: [op.value(slot)] for slot in slots if op.uses(slot)}
    names = ("beam_size", "end_id", "is_accumulated")
    attrs = {name: op.attrs[name] for name in names}
    inner = op.level("lod_selected", {**operands, "X": [sources]}, attrs)
    return {"selected_ids": (sources, inner), "selected_scores": (sources, inner)}


def selected_shape(op: Inference) -> Mapping[str, Specs]:
    """One more offset than there are prefixes."""
    rows = _rows(op)
    return {"Out": OFFSETS._replace(shape=(rows + 1 if rows >= 0 else -1,))}


_STEP = "pre_ids 0:3 [5 1], pre_scores [5 1], ids 0:9 [5 4], scores 0.1:1.0 [5 4]"
_SOURCES = "scores@LOD [2 1] [2 0 3]"
define(
    "beam_search",
    BeamSearch,
    beam_search_shape,
    host=_selected,
    reads_values=lambda attrs: ("pre_ids", "pre_scores", "ids", "scores", "scores@LOD"),
    lod=beam_search_lod,
    samples=(
        sample(_STEP, _SOURCES, beam_size=2),
        sample(_STEP, _SOURCES, beam_size=9, is_accumulated=False),
        sample(_STEP, _SOURCES, beam_size=2, level=1, end_id=1),
    ),
    refuses=(
        sample(_STEP, _SOURCES, beam_size=2, level=2),
        sample(_STEP, "scores@LOD [2 2]", beam_size=2),
        sample(_STEP, beam_size=2),
        sample(_STEP, "pre_ids 0:3 [4 1]", _SOURCES, beam_size=2),
        sample(_STEP, "ids 0:9 [5 3]", _SOURCES, beam_size=2),
    ),
)
define(
    "lod_selected",
    OffsetsSelected,
    selected_shape,
    host=_offsets_selected,
    lod=no_sequences,
    samples=(
        sample(_STEP, "X offsets [2 3]", beam_size=2),
        sample(_STEP, "X offsets [2 0 3]", beam_size=3, is_accumulated=False),
    ),
)
