"""Deep gradient compression: Lin et al., arXiv 1712.01887."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import formula as f
from .operands import Input, Operands, Output, named
from .reduction import clipping
from .registry import define
from .samples import sample
from .shapes import Sized, one_element

DGC, CLIP = "dgc", "dgc_clip_by_norm"


class DgcClipByNorm(Operands):
    current_step: Input = named("current_step")
    x: Input
    out: Output
    rampup_begin_step: float
    max_norm: float


def dgc_clip_by_norm(a: DgcClipByNorm) -> f.Results:
    """X, from step ``rampup_begin_step`` on scaled to a norm of at most ``max_norm``."""
    step = a.current_step.reshape((1,) * a.x.ndim)
    scale = f.where(step < a.rampup_begin_step, 1.0, clipping(a.x, a.max_norm))
    return {"out": a.x * scale}


_STEP = "current_step 4.0:5.0 [1], X [3 4]"
define(
    CLIP,
    DgcClipByNorm,
    Sized("X, current_step -> Out", "max_norm > 0", one_element("current_step")),
    formula=dgc_clip_by_norm,
    samples=(
        sample(_STEP, rampup_begin_step=4.0, max_norm=0.5),
        sample(_STEP, rampup_begin_step=6.0, max_norm=0.5),
    ),
    refuses=(sample(_STEP, "current_step uniform [2]", rampup_begin_step=4.0, max_norm=1.0),),
)


class Dgc(Operands):
    """``regular_type``: 1 is L1, 2 is L2 decay; ``share``: the part of the decay that this place adds."""

    u: Input
    v: Input
    grad: Input
    param: Input
    current_step: Input = named("current_step")
    u_out: Output = named("U_out")
    v_out: Output = named("V_out")
    grad_out: Output = named("Grad_out")
    m: float = 0.9
    use_nesterov: bool = True
    sparsity: Sequence[float] = []
    rampup_begin_step: float = 0.0
    rampup_step: float = 1.0
    regular_coeff: float = 0.0
    regular_type: int = 0
    share: float = 1.0


def elements_sent(attrs: Mapping[str, Any], step: int, size: int) -> int | None:
    """Return how many elements a step (counted from 0) sends of ``size``; None before compression begins.

    The ratios in ``sparsity`` share ``rampup_step`` steps evenly; the last one stays.
    """
    late, ratios = step - int(attrs["rampup_begin_step"]), attrs["sparsity"]
    if late < 0:
        return None
    stage = min(int(late * len(ratios) / attrs["rampup_step"]), len(ratios) - 1)
    return counts_sent(attrs, size)[stage]


def counts_sent(attrs: Mapping[str, Any], size: int) -> list[int]:
    """Return how many elements are sent of ``size`` at each of the ratios."""
    return [max(int(size * (1 - ratio)), 1) for ratio in attrs["sparsity"]]


_STATE = "U [4 5], V [4 5], Grad [4 5], Param [4 5], current_step 4.2:4.8 [1]"
_RAMP = {"rampup_begin_step": 2.0, "rampup_step": 4.0, "sparsity": [0.5, 0.75, 0.9]}
define(
    DGC,
    Dgc,
    Sized(
        "Param [...], U [...], V [...], Grad [...], current_step "
        "-> U_out as Param, V_out as Param, Grad_out as Param",
        "sparsity and 0 <= min(sparsity) <= max(sparsity) <= 1; sparsity must be in [0, 1]",
        one_element("current_step"),
    ),
    in_place={"U_out": "U", "V_out": "V"},
    samples=(
        sample(_STATE, **_RAMP),
        sample(_STATE, **_RAMP, use_nesterov=False, regular_coeff=0.1, regular_type=2),
        sample(_STATE, **{**_RAMP, "rampup_begin_step": 5.0}, regular_coeff=0.1, regular_type=1),
        sample(_STATE, rampup_begin_step=0.0, sparsity=[0.0]),
    ),
)
