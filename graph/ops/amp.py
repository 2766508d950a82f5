"""Loss scaling: whether gradients are finite, and the scale that follows from it (Paddle 2.x and later)."""

from __future__ import annotations

from .operands import Input, Inputs, Operands, Output, Outputs, named
from .registry import define
from .samples import sample
from .shapes import Sized

CHECK, UPDATE = "check_finite_and_unscale", "update_loss_scaling"
ZERO = "zero_where_infinite"  # not in Paddle: the part of an update that gradients have
LOSS_SCALING = frozenset({CHECK, UPDATE, ZERO})


class CheckFiniteAndUnscale(Operands):
    x: Inputs
    scale: Input
    out: Outputs
    found_infinite: Output


define(
    CHECK,
    CheckFiniteAndUnscale,
    Sized("X floats, Scale [1] -> Out, FoundInfinite bool [1]"),
    in_place={"Out": "X"},
    samples=(sample("X* [3 4] [5], Scale 2.0:8.0 [1]"), sample("X* [2], Scale 2.0:8.0 [1]")),
)
_COUNTERS = "InGoodSteps 1:2 [1], InBadSteps 1:2 [1], PrevLossScaling 4.0:8.0 [1]"


class UpdateLossScaling(Operands):
    x: Inputs | None
    found_infinite: Input
    prev_loss_scaling: Input
    in_good_steps: Input
    in_bad_steps: Input
    stop_update_tensor: Input | None = named("StopUpdate")
    out: Outputs | None
    loss_scaling: Output
    out_good_steps: Output
    out_bad_steps: Output
    incr_every_n_steps: int = 1000
    decr_every_n_nan_or_inf: int = 2
    incr_ratio: float = 2.0
    decr_ratio: float = 0.8
    stop_update: bool = False


define(
    UPDATE,
    UpdateLossScaling,
    Sized(
        "X floats, FoundInfinite bool [1], PrevLossScaling [1], InGoodSteps [1], InBadSteps [1] "
        "-> Out, LossScaling as PrevLossScaling, OutGoodSteps as InGoodSteps, OutBadSteps as InBadSteps",
        "StopUpdate is None; StopUpdate is not built: give the attribute stop_update",
    ),
    in_place={
        "Out": "X",
        "LossScaling": "PrevLossScaling",
        "OutGoodSteps": "InGoodSteps",
        "OutBadSteps": "InBadSteps",
    },
    samples=tuple(
        sample(
            "X* [3 4] [5], FoundInfinite bool [1]",
            _COUNTERS,
            incr_every_n_steps=steps,
            decr_every_n_nan_or_inf=steps,
            stop_update=stop,
        )
        for steps, stop in ((1000, False), (2, False), (2, True))
    ),
)


class ZeroWhereInfinite(Operands):
    x: Inputs
    found_infinite: Input
    out: Outputs


define(
    ZERO,
    ZeroWhereInfinite,
    Sized("X floats -> Out"),
    in_place={"Out": "X"},
    samples=(sample("X* [3 4] [5], FoundInfinite bool [1]"),),
)
