"""Batch norm, a sum and an activation by oneDNN."""

from __future__ import annotations

from functools import partial

from ....graph.ir.capabilities import CHANNELS_LAST
from ..array.fused_norm import Parts, register
from .elementwise import activation, slope_at_result
from .norm import batch_norm, batch_norm_grad
from .support import onednn

register(
    partial(onednn, layout=CHANNELS_LAST),
    Parts(batch_norm, batch_norm_grad, activation, slope_at_result),
)
