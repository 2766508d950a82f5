"""The order of sequences by length on CPUs, where sorting is faster than comparing each with each."""

from __future__ import annotations

import numpy as np

from ....graph.ops.sequence_choice import RankTable
from ..registry import each_step


@each_step("lod_rank_table", on=("numpy",))
def lod_rank_table(a: RankTable) -> None:
    lengths = np.diff(a.x_lod[a.level])
    order = np.argsort(-lengths, kind="stable")
    a.out[:, 0], a.out[:, 1] = order, lengths[order]
