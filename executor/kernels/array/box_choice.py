"""Which boxes stay; on the host, where the number of results is read."""

from __future__ import annotations

from ....graph.ops.box_choice import (
    MatrixNms,
    MulticlassNms,
    MulticlassNms2,
    OffsetsOfChoice,
    OffsetsOfDecayed,
    chosen,
    decayed,
)
from ...device.device import Device
from ..registry import Step, kernel

ON = ("numpy",)


@kernel("multiclass_nms", "multiclass_nms2", on=ON)
def multiclass_nms(dev: Device, a: MulticlassNms | MulticlassNms2) -> Step:
    def run() -> None:
        choice = chosen(a, a.b_boxes_lod[-1] if a.b_boxes_lod else None)
        a.out[...] = choice.rows if len(choice.rows) else -1
        if isinstance(a, MulticlassNms2) and a.index is not None:
            a.index[:, 0] = choice.numbers

    return run


@kernel("lod_of_choice", on=ON)
def lod_of_choice(dev: Device, a: OffsetsOfChoice) -> Step:
    def run() -> None:
        a.out[...] = chosen(a, a.x).offsets()

    return run


@kernel("matrix_nms", on=ON)
def matrix_nms(dev: Device, a: MatrixNms) -> Step:
    def run() -> None:
        choice = decayed(a)
        a.out[...], a.index[:, 0] = choice.rows, choice.numbers

    return run


@kernel("lod_of_decayed", on=ON)
def lod_of_decayed(dev: Device, a: OffsetsOfDecayed) -> Step:
    def run() -> None:
        a.out[...] = decayed(a).ends()

    return run
