"""Sums over a window of steps, chosen by counts that stay on the device."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops.averaging import MOST_ACCUMULATES, AverageAccumulates
from ...device.device import Device
from ..registry import Step, kernel


@kernel("average_accumulates")
def average_accumulates(dev: Device, a: AverageAccumulates) -> list[Step]:
    """Add the parameter to the first sum; put sums away after many steps, and where a window ends."""
    xp = dev.xp
    first, second, third = a.out_sum_1, a.out_sum_2, a.out_sum_3
    count, updates = a.out_num_accumulates, a.out_num_updates
    total = dev.scratch(first.shape, first.dtype)
    limit, share = dev.scratch((1,), np.int64), dev.scratch((1,), np.float32)
    full, ends = dev.scratch((1,), bool), dev.scratch((1,), bool)
    carried = (
        (second, a.in_sum_2),
        (third, a.in_sum_3),
        (a.out_old_num_accumulates, a.in_old_num_accumulates),
    )
    return [
        *(partial(xp.copyto, new, old) for new, old in carried if new is not old),
        partial(xp.add, a.in_sum_1, a.param, first),
        partial(xp.add, a.in_num_accumulates, 1, count),
        partial(xp.add, a.in_num_updates, 1, updates),
        partial(xp.add, first, second, total),
        partial(xp.remainder, updates, MOST_ACCUMULATES, limit),
        partial(xp.equal, limit, 0, full),
        partial(xp.copyto, second, total, where=full),
        partial(xp.copyto, first, 0, where=full),
        # The window: a share of all steps, cut to a whole number, within its bounds
        partial(xp.multiply, updates, np.float32(a.average_window), share, casting="same_kind"),
        partial(xp.copyto, limit, share, casting="unsafe"),
        partial(xp.minimum, limit, a.max_average_window, out=limit),
        partial(xp.maximum, limit, a.min_average_window, out=limit),
        partial(xp.greater_equal, count, limit, ends),
        partial(xp.copyto, third, total, where=ends),
        partial(xp.copyto, first, 0, where=ends),
        partial(xp.copyto, second, 0, where=ends),
        partial(xp.copyto, a.out_old_num_accumulates, count, where=ends),
        partial(xp.copyto, count, 0, where=ends),
    ]
