"""Copies between layouts, and roundings to bfloat16."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops.operands import Unary
from ....strategies.types import BFLOAT16
from ...device.device import Device
from ..registry import Step
from .primitive import loaded, reordered
from .support import onednn


@onednn("transfer_layout", low=True)
def transfer_layout(dev: Device, a: Unary) -> list[Step]:
    types = {a.x.dtype, a.out.dtype} - {np.dtype(np.float32)}
    if types and not (types == {BFLOAT16} and loaded().rounds):
        return [partial(np.copyto, a.out, a.x)]
    return reordered(dev, a.x, a.out)
