"""What deep gradient compression needs beside momentum."""

from __future__ import annotations

from .operands import Unary
from .registry import Op, define
from .rules import same
from .samples import sample, uniform

RAMPUP_LIMIT = "rampup_limit"  # not in Paddle: refuses the steps that Paddle compresses


class RampupLimit(Unary):
    rampup_begin_step: float = 0.0


define(
    Op(
        type=RAMPUP_LIMIT,
        record=RampupLimit,
        shape=same("X", "Out"),
        samples=(sample({"X": uniform(1)}, rampup_begin_step=3.0),),
    )
)
