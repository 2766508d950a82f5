"""Convolutions by cuDNN. Filters lie [O, C, kh, kw]: where a plan wants channels last, it turns them itself."""

from __future__ import annotations

from typing import Any

from ....graph.ir.capabilities import IN_ORDER
from ....graph.ops.conv import ConvOperands
from ....graph.ops.operands import Array
from ...cuda.dnn import Convolution, tensor
from ...device.device import Device
from ..array.conv import CONVOLUTIONS, Product, geometry, product_kernels
from ..registry import Step
from .support import bound, cudnn, on_tensor_cores, part


def _compute(dev: Device, a: ConvOperands, product: Product) -> list[Step]:
    result, x, w, y = product
    geo = geometry(a, product)
    conv = Convolution(
        tensor(x),
        tensor(w),
        tensor(y),
        result,
        tuple(geo.strides),
        tuple(geo.dilations),
        tuple(before for before, _ in geo.pads),
        tuple(after for _, after in geo.pads),
        exact=dev.math != "tf32",
    )
    return bound(dev, conv, x=x, w=w, y=y)


def _rectified(dev: Device, x: Array) -> tuple[Any, list[Step]]:
    """Return scratch for relu(x), in the same order in memory, and the calls that fill it."""
    scratch = dev.scratch_like(x)
    return scratch, part(dev, "relu", {"X": x}, {"Out": scratch})


def _slope(dev: Device, x: Array, d_x: Any) -> list[Step]:
    """Relu(x) > 0 where x is."""
    return part(dev, "relu_grad", {"Out": x, "Out@GRAD": d_x}, {"X@GRAD": d_x})


cudnn(*CONVOLUTIONS, any_order=True, layout=on_tensor_cores(IN_ORDER))(
    product_kernels(_compute, _rectified, _slope)
)
