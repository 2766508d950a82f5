"""Loss scaling without leaving the device: nothing here reads a value while binding or on the host.

Micikevicius et al., arXiv 1710.03740, section 3.2.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.amp import CheckFiniteAndUnscale, UpdateLossScaling, ZeroWhereInfinite
from ....strategies.types import is_low
from ...device.device import Device
from ..registry import Step, kernel
from .optimize import blocks


@kernel("check_finite_and_unscale", low=True)
def check_finite_and_unscale(dev: Device, a: CheckFiniteAndUnscale) -> list[Step]:
    """Out = X / Scale; FoundInfinite tells whether any element of any X is infinite or no number."""
    xp = dev.xp
    inverse = dev.scratch((1,), a.scale.dtype)
    finite, all_finite = dev.scratch((1,), bool), dev.scratch((1,), bool)
    steps: list[Step] = [partial(xp.divide, 1.0, a.scale, inverse), partial(all_finite.fill, True)]
    for grad, written in zip(a.x, a.out, strict=True):
        parts = blocks(grad, written)
        with dev.in_turn():
            size = max(part.size for part, _ in parts)
            mask = dev.scratch((size,), bool)
            wide = dev.scratch((size,), np.float32) if is_low(grad.dtype) else None
        for g, w in parts:
            m, work = mask[: g.size], g if wide is None else wide[: g.size]
            steps += [] if wide is None else [partial(xp.copyto, work, g)]
            steps += [
                partial(xp.isfinite, work, m),
                partial(xp.all, m, 0, finite.reshape(())),
                partial(xp.logical_and, all_finite, finite, all_finite),
                partial(xp.multiply, work, inverse, w if wide is None else work),
            ]
            steps += [] if wide is None else [partial(xp.copyto, w, work, casting="unsafe")]
    return [*steps, partial(xp.logical_not, all_finite, a.found_infinite)]


@kernel("zero_where_infinite", low=True)
def zero_where_infinite(dev: Device, a: ZeroWhereInfinite) -> list[Step]:
    """Out = X, or zeros where FoundInfinite holds."""
    steps: list[Step] = []
    for grad, written in zip(a.x, a.out, strict=True):
        if written is not grad:
            steps.append(partial(dev.xp.copyto, written, grad))
        steps.append(partial(dev.xp.copyto, written, 0, where=a.found_infinite))
    return steps


@kernel("update_loss_scaling", low=True)
def update_loss_scaling(dev: Device, a: UpdateLossScaling) -> list[Step]:
    """Zero gradients that are not finite; let the scale follow what was found, in this step and before."""
    xp = dev.xp
    zeroed = ZeroWhereInfinite(x=a.x or [], found_infinite=a.found_infinite, out=a.out or [])
    steps = zero_where_infinite(dev, zeroed)
    copies = [
        partial(xp.copyto, new, old)
        for new, old in (
            (a.loss_scaling, a.prev_loss_scaling),
            (a.out_good_steps, a.in_good_steps),
            (a.out_bad_steps, a.in_bad_steps),
        )
        if new is not old
    ]
    steps += copies
    if a.stop_update:
        return steps
    finite = dev.scratch((1,), bool)
    steps.append(partial(xp.logical_not, a.found_infinite, finite))
    # A row of bad steps ends with a good one, and the other way round.
    steps += _counted(dev, a.out_good_steps, finite, a.found_infinite)
    steps += _counted(dev, a.out_bad_steps, a.found_infinite, finite)
    steps += _scaled(
        dev, a.loss_scaling, a.incr_ratio, (a.out_good_steps, a.incr_every_n_steps), grows=True
    )
    bad = (a.out_bad_steps, a.decr_every_n_nan_or_inf)
    return steps + _scaled(dev, a.loss_scaling, a.decr_ratio, bad, grows=False)


def _counted(dev: Device, counter: Any, counts: Any, restarts: Any) -> list[Step]:
    xp = dev.xp
    return [
        partial(xp.add, counter, counts, counter, casting="same_kind"),
        partial(xp.copyto, counter, 0, where=restarts),
    ]


def _scaled(
    dev: Device, scale: Any, ratio: float, counted: tuple[Any, int], *, grows: bool
) -> list[Step]:
    """Where the counter is full, scale by the ratio (to a finite number; not below 1) and begin again."""
    xp, (counter, full) = dev.xp, counted
    due, finite = dev.scratch((1,), bool), dev.scratch((1,), bool)
    new = dev.scratch((1,), scale.dtype)
    steps: list[Step] = [
        partial(xp.greater_equal, counter, full, due),
        partial(xp.multiply, scale, ratio, new),
    ]
    if not grows:
        steps.append(partial(xp.maximum, new, 1.0, out=new))
    return [
        *steps,
        partial(xp.copyto, counter, 0, where=due),
        partial(xp.isfinite, new, finite),
        partial(xp.logical_and, due, finite, due),
        partial(xp.copyto, scale, new, where=due),
    ]
