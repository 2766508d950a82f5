"""Matrix products and their gradients."""

from __future__ import annotations

from ....graph.ops.operands import Array
from ...device.device import Device
from ..array.linear import register
from ..registry import Step
from .product import product
from .support import cublaslt


def _scaled_product(dev: Device, left: Array, right: Array, out: Array, alpha: float) -> list[Step]:
    return product(dev, left, right, out, alpha=alpha)


register(cublaslt, _scaled_product)
