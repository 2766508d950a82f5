"""The kernel that stands where compression of gradients would."""

from __future__ import annotations

from functools import partial

from ....graph.ops.dgc import RAMPUP_LIMIT, RampupLimit
from ....strategies.errors import InvalidState
from ...device.device import Device
from ..registry import Step, kernel


@kernel(RAMPUP_LIMIT)
def rampup_limit(dev: Device, a: RampupLimit) -> list[Step]:
    """Out = X + 1: the number of this step, which must be below ``rampup_begin_step``."""

    def check() -> None:
        step = int(a.out.max())
        if step >= int(a.rampup_begin_step):
            raise InvalidState(
                f"DGCMomentum: step {step} is to compress gradients (rampup_begin_step="
                f"{int(a.rampup_begin_step)}), which is not built. Train up to it with a higher "
                "rampup_begin_step, or use Momentum."
            )

    return [partial(dev.xp.add, a.x, 1, a.out), check]
