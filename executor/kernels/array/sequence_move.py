"""Kernels that cut sequences."""

from __future__ import annotations

from ....graph.ops.sequence_move import SequenceErase
from ...device.device import Device
from ..registry import Step, kernel


@kernel("sequence_erase")
def sequence_erase(dev: Device, a: SequenceErase) -> Step:
    """Copy the numbers that are none of ``tokens``."""
    xp = dev.xp

    def run() -> None:
        x = a.x.reshape(-1)
        a.out[...] = x[~xp.isin(x, xp.asarray(a.tokens))].reshape(a.out.shape)

    return run
