"""One step of beam search. On the host, where the number of results is read."""

from __future__ import annotations

import numpy as np

from ....graph.ops.beam import BeamSearch, OffsetsSelected, select
from ....graph.ops.lod_levels import absolute
from ..registry import each_step


@each_step("beam_search", on=("numpy",))
def beam_search(a: BeamSearch) -> None:
    selection = select(a, absolute(a.scores_lod[a.level :]))
    a.selected_ids[:, 0], a.selected_scores[:, 0] = selection.ids, selection.scores
    if a.parent_idx is not None:
        a.parent_idx[...] = selection.parents


@each_step("lod_selected", on=("numpy",))
def lod_selected(a: OffsetsSelected) -> None:
    """Count what goes on before each prefix; what goes on is ordered by prefix."""
    a.out[...] = np.searchsorted(select(a, a.x).parents, np.arange(a.out.size))
