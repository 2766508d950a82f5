"""Which boxes stay; on the host, where the number of results is read."""

from __future__ import annotations

from ....graph.ops.box_choice import (
    MatrixNms,
    MulticlassNms,
    MulticlassNms2,
    chosen,
    decayed,
)
from ..registry import each_step

ON = ("numpy",)


@each_step("multiclass_nms", "multiclass_nms2", on=ON)
def multiclass_nms(a: MulticlassNms | MulticlassNms2) -> None:
    choice = chosen(a)
    a.out[...] = choice.rows if len(choice.rows) else -1
    if isinstance(a, MulticlassNms2) and a.index is not None:
        a.index[:, 0] = choice.numbers


@each_step("matrix_nms", on=ON)
def matrix_nms(a: MatrixNms) -> None:
    choice = decayed(a)
    a.out[...], a.index[:, 0] = choice.rows, choice.numbers
