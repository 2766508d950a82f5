"""Batch norm, a sum and an activation by oneDNN."""

from __future__ import annotations

from ..array.fused_norm import Parts, register
from .elementwise import activation, slope_at_result
from .norm import batch_norm, batch_norm_grad
from .support import onednn

register(onednn, Parts(batch_norm, batch_norm_grad, activation, slope_at_result))
