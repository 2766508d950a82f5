"""Ops whose attribute says that channels are the last dimension of images: kernels get views in NCHW
(NCDHW).

A kernel that takes images in any order of memory is bound to the views; for others results are made in scratch
and copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ....graph.ir.capabilities import CHANNELS_LAST
from ....graph.ir.graph import Node, Value
from ....graph.lowering.layout import image_slots
from ....graph.ops.conv import LAST, channels_first
from ....graph.ops.operands import Array, Operands
from ....graph.ops.registry import Op
from ...device.device import Device

Step = Callable[[], Any]


def is_last(op_type: str, attrs: Mapping[str, Any]) -> bool:
    """Tell whether the images of an op have their channels in the last dimension."""
    return attrs.get("data_format") in LAST and bool(image_slots(op_type))


def node_in_order(node: Node) -> Node:
    """Return a node as if its images were NCHW: what kernels that look at shapes are asked about."""
    if not is_last(node.op, node.attrs):
        return node
    images = image_slots(node.op)

    def turned(value: Value | None) -> Value | None:
        if value is None:
            return None
        shape = channels_first(value.spec.shape, CHANNELS_LAST)
        return replace(value, spec=value.spec._replace(shape=shape))

    inputs, outputs = (
        {s: tuple(map(turned, vs)) if s in images else vs for s, vs in slots.items()}
        for slots in (node.inputs, node.outputs)
    )
    attrs = {**node.attrs, "data_format": "NCHW"}
    return replace(node, inputs=inputs, outputs=outputs, attrs=attrs)


def in_order(
    dev: Device, op: Op, a: Operands, any_order: bool, bind: Callable[[Operands], Iterable[Step]]
) -> list[Step]:
    """Return the calls of a kernel on views of the images in NCHW; ``bind`` binds the kernel."""
    images = image_slots(op.type)
    slots = [slot for slot in (*op.input_slots, *op.output_slots) if slot.name in images]
    arrays = {slot.parameter: getattr(a, slot.parameter) for slot in slots}
    views = {n: first(array) for n, array in arrays.items() if array is not None}
    a = a.replace(data_format="NCHW")  # for whatever kernel it is handed on to
    if any_order:
        return list(bind(a.replace(**views)))
    written = [slot.parameter for slot in op.output_slots if slot.parameter in views]
    scratch = {name: dev.scratch(views[name].shape, views[name].dtype) for name in written}
    copies = [partial(dev.xp.copyto, views[name], array) for name, array in scratch.items()]
    return [*bind(a.replace(**{**views, **scratch})), *copies]


def first(array: Array) -> Any:
    """View images whose channels are the last dimension with channels behind the batch."""
    return array.transpose(0, -1, *range(1, array.ndim - 1))
