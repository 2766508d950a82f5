"""How a kernel of cuDNN is registered, and what computes a node whose arrays the library does not take."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ....graph.ir.capabilities import CHANNELS_LAST, IN_ORDER, Layout
from ....graph.ir.graph import Node, Value
from ....graph.lowering.layout import is_image
from ....graph.ops.operands import Array, Operands
from ....graph.ops.registry import OPS, Op, Spec
from ....strategies.types import LOW, VarType, to_var_type
from ...cuda.dnn import Graph, tensor
from ...device.device import Device
from ..cuda.support import on_boundary
from ..registry import KERNELS, F, Step, by_arrays, call, has_elements, kernel

Kernel = Callable[..., list[Step]]
FLOATS = (VarType.FP16, VarType.BF16, VarType.FP32)


class Declined(Exception):
    """Raised by a kernel while it is bound: cuDNN cannot compute this."""


def cudnn(
    *op_types: str,
    takes: Callable[[Node], bool] | None = None,
    any_order: bool = False,
    layout: Layout = IN_ORDER,
    bits: str = "",
) -> Callable[[F], F]:
    """Register a kernel for nodes of single or low precision that ``takes`` accepts (None: all).

    What is in the slot ``bits`` has no precision.

    It never sees arrays without elements. These, and what it declines, are left to the next library that takes
    them, as if cuDNN were not here.
    """

    def accepts(node: Node) -> bool:
        slots = {**node.inputs, **node.outputs}
        values = (v for slot, many in slots.items() if slot != bits for v in many if v is not None)
        kinds = all(v.spec.dtype in FLOATS for v in values)
        return kinds and (takes is None or takes(node))

    def register(function: F) -> F:
        for op_type in op_types:
            how: dict[str, Any] = {
                "takes": accepts,
                "low": True,
                "any_order": any_order,
                "layout": layout,
            }
            registered = kernel(op_type, on=("cudnn",), **how)
            registered(_or_elsewhere(OPS[op_type], function))
        return function

    return register


def on_tensor_cores(otherwise: str) -> Layout:
    """Ask for channels last where products are computed on tensor cores.

    Factors in float32 that stay exact are faster in order.
    """

    def layout(node: Node, math: str) -> str:
        low = any(v.spec.dtype in LOW for v in node.reads() if is_image(v))
        return CHANNELS_LAST if low or math == "tf32" else otherwise

    return layout


def _or_elsewhere(op: Op, function: Kernel) -> Kernel:
    @wraps(function)
    def bound(dev: Device, a: Operands) -> list[Step]:
        try:
            if not has_elements(op, a):
                raise Declined
            return function(dev, a)
        except Declined:
            return elsewhere(dev, op, a)

    return bound


def elsewhere(dev: Device, op: Op, a: Operands) -> list[Step]:
    """Return the calls of the next library's kernel."""
    node = _node(op, a)
    for library in ("cublaslt", "cuda"):
        kernel = KERNELS.get((op.type, library))
        if kernel is not None and (kernel.takes is None or kernel.takes(node)):
            return call(op, kernel, a, dev)
    return by_arrays(op.type, dev, a)


def _node(op: Op, a: Operands) -> Node:
    """Return the node that would be bound to these arrays."""
    arrays, attrs = op.arrays(a), {name: getattr(a, name) for name in op.attrs}
    inputs, outputs = (
        {
            slot: (Value(slot, Spec(tuple(array.shape), to_var_type(array.dtype))),)
            for slot, name, _ in slots
            if (array := arrays[name]) is not None
        }
        for slots in op.parameters
    )
    return Node(op.type, inputs, outputs, attrs)


def bound(dev: Device, graph: Graph, **arrays: Any) -> list[Step]:
    """Return the calls of cuDNN for a graph; ``arrays`` are its operands by name.

    Those that begin off a boundary, as gradients in their bucket may, are copied: cuDNN's plans need one.

    Raises:
        Declined: the library cannot compute it.
    """
    dnn, copying = dev.cuda.dnn, dev.cuda.copying
    needs = dnn.workspace(graph)
    if needs is None:
        raise Declined
    near = {n: a if on_boundary(dev, a) else _near(dev, a) for n, a in arrays.items()}
    moved = [name for name in arrays if near[name] is not arrays[name]]
    read = [name for name in moved if name not in graph.results]
    written = [name for name in moved if name in graph.results]
    return [
        *(copying(near[name], arrays[name]) for name in read),
        dnn.bind(graph, near, dev.scratch((needs,), "uint8")),
        *(copying(arrays[name], near[name]) for name in written),
    ]


def _near(dev: Device, array: Array) -> Any:
    """Return scratch on a boundary, in which elements lie as in an array without gaps."""
    if tensor(array).nbytes != array.nbytes:
        raise Declined
    return dev.scratch_like(array)
