"""One step of beam search. On the host, where the number of results is read."""

from __future__ import annotations

import numpy as np

from ....graph.ops.beam import BeamSearch, OffsetsSelected, select
from ....graph.ops.lod_levels import absolute
from ...device.device import Device
from ..registry import Step, kernel


@kernel("beam_search", on=("numpy",))
def beam_search(dev: Device, a: BeamSearch) -> Step:
    def run() -> None:
        selection = select(a, absolute(a.scores_lod[a.level :]))
        a.selected_ids[:, 0], a.selected_scores[:, 0] = selection.ids, selection.scores
        if a.parent_idx is not None:
            a.parent_idx[...] = selection.parents

    return run


@kernel("lod_selected", on=("numpy",))
def lod_selected(dev: Device, a: OffsetsSelected) -> Step:
    """Count what goes on before each prefix; what goes on is ordered by prefix."""

    def run() -> None:
        a.out[...] = np.searchsorted(select(a, a.x).parents, np.arange(a.out.size))

    return run
