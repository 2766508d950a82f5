"""One step of beam search, from all candidates sorted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


def survivors(ins: Slots, attrs: Slots, sources: Any) -> list[tuple[int, float, int]]:
    """Return (prefix, score, word) of what goes on, by prefix, the best first."""
    alive = []
    for begin, end in pairwise(sources):
        candidates = []
        for row in range(begin, end):
            before, ended = ins["pre_scores"][row, 0], ins["pre_ids"][row, 0] == attrs["end_id"]
            if ended:
                candidates.append((row, before, attrs["end_id"]))
                continue
            for word, score in zip(ins["ids"][row], ins["scores"][row], strict=True):
                total = score if attrs["is_accumulated"] else before + np.log(score)
                candidates.append((row, total, word))
        best = sorted(candidates, key=lambda c: -c[1])[: attrs["beam_size"]]
        if any(ins["pre_ids"][row, 0] != attrs["end_id"] for row, _, _ in best):
            alive += sorted(best, key=lambda c: c[0])
    return alive


@reference("beam_search")
def beam_search(ins: Slots, attrs: Slots) -> Slots:
    levels = ins["scores@LOD"][attrs["level"] :]
    sources = levels[-1]
    for level in levels[-2::-1]:
        sources = [sources[k] for k in level]
    alive = survivors(ins, attrs, sources)
    return {
        "selected_ids": np.array([[word] for _, _, word in alive]).reshape(-1, 1),
        "selected_scores": np.array([[score] for _, score, _ in alive]).reshape(-1, 1),
        "parent_idx": np.array([row for row, _, _ in alive]),
    }


@reference("lod_selected")
def lod_selected(ins: Slots, attrs: Slots) -> Slots:
    rows = [row for row, _, _ in survivors(ins, attrs, ins["X"])]
    counts = [rows.count(row) for row in range(len(ins["pre_ids"]))]
    return {"Out": np.cumsum([0, *counts])}


@reference("lod_absolute")
def lod_absolute(ins: Slots, attrs: Slots) -> Slots:
    outer, inner = ins["X"]
    return {"Out": [inner[k] for k in outer]}
