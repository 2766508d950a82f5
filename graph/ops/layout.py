"""The op by which a value changes the order of its elements in memory."""

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
