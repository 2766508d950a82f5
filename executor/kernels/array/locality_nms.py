"""Which boxes and polygons of text stay; on the host, where the number of results is read."""

from __future__ import annotations

from ....graph.ops.locality_nms import LocalityAwareNms, chosen
from ..registry import each_step


@each_step("locality_aware_nms", on=("numpy",))
def locality_aware_nms(a: LocalityAwareNms) -> None:
    choice = chosen(a)
    a.out[...] = choice.rows if len(choice.rows) else -1
