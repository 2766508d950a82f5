"""Ops by which a value changes where or in which order its elements lie."""

from __future__ import annotations

from .registry import Op, define
from .rules import same
from .samples import normal, sample

transfer_layout = define(
    Op(
        type="transfer_layout",
        inputs=("X",),
        outputs=("Out",),
        attrs={},
        shape=same("X"),
        samples=(sample({"X": normal(2, 3, 4, 5)}),),
    )
)

memcpy = define(
    Op(
        type="memcpy",
        inputs=("X",),
        outputs=("Out",),
        attrs={"dst_place_type": 0},
        shape=same("X"),
        samples=(sample({"X": normal(2, 3)}, dst_place_type=1),),
    )
)
