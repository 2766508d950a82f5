"""Batch norm, a sum and an activation by oneDNN."""

from __future__ import annotations

from typing import Any

from ....graph.ir.capabilities import CHANNELS_LAST
from ..array.fused_norm import Parts, register
from .elementwise import slope_at_result, sum_and_activation
from .norm import batch_norm, batch_norm_grad
from .support import onednn


def _kernel(op_type: str) -> Any:
    """Return the decorator of a kernel; its gradient reads of a relu's result no more than the signs."""
    signs = {"Y": ()} if op_type.endswith("_grad") else {}
    return onednn(op_type, layout=CHANNELS_LAST, factors=signs)


register(
    _kernel,
    Parts(batch_norm, batch_norm_grad, sum_and_activation, slope_at_result),
)
