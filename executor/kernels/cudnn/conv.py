"""Convolutions by cuDNN. Filters lie [O, C, kh, kw]: where a plan wants channels last, it turns them itself."""

from __future__ import annotations

from ....graph.ir.capabilities import IN_ORDER
from ....graph.ir.graph import Node
from ....graph.ops.conv import GRAD_ADD, Conv2dGradAdd, ConvOperands
from ....graph.ops.operands import Array
from ....strategies.types import LOW
from ...cuda.dnn import Convolution, tensor
from ...device.device import Device
from ..array.conv import CONVOLUTIONS, Product, geometry, product_kernels
from ..cuda.support import part, rectified, through_relu
from ..registry import Step
from .support import Declined, bound, cudnn, on_tensor_cores


def _compute(
    dev: Device, a: ConvOperands, product: Product, addend: Array | None = None
) -> list[Step]:
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
        addend=None if addend is None else tensor(addend),
    )
    extra = {} if addend is None else {"addend": addend}
    return bound(dev, conv, x=x, w=w, y=y, **extra)


cudnn(*CONVOLUTIONS, any_order=True, layout=on_tensor_cores(IN_ORDER))(
    product_kernels(_compute, rectified, through_relu)
)


def _low(node: Node) -> bool:
    """Take what tensor cores compute: no engine adds to a gradient of exact factors in float32."""
    return all(value.spec.dtype in LOW for value in node.reads())


@cudnn(GRAD_ADD, takes=_low, any_order=True, layout=on_tensor_cores(IN_ORDER))
def conv2d_grad_add(dev: Device, a: Conv2dGradAdd) -> list[Step]:
    """In one call, or two where no engine takes both."""
    product = Product("x", a.d_input, a.filter, a.d_output)
    try:
        return _compute(dev, a, product, a.addend)
    except Declined:
        inputs = {"X": a.d_input, "Y": a.addend}
        add = part(dev, "elementwise_add", inputs, {"Out": a.d_input})
        return [*_compute(dev, a, product), *add]
