"""In which order the elements of images lie in memory.

The shape of an image value is NCHW, as the program says, and so is the array a kernel gets. Where a back end
computes faster so, the array's memory is in the order NHWC: its strides say so, and kernels whose back end says
so can do with any strides. All others are given a copy in the order of the shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..ir.capabilities import (
    AS_THEY_COME,
    CHANNELS_LAST,
    IN_ORDER,
    BackEnd,
    Capabilities,
    libraries,
)
from ..ir.graph import TEMP, Graph, Node, Value
from ..ops.conv import GRAD_ADD, LAST
from ..ops.fused_norm import ADD_ACT, MASKED
from ..ops.registry import OPS

TRANSFER = "transfer_layout"

# Which slots are images.
_IMAGES: Mapping[str, Sequence[str]] = {
    "conv2d": ("Input", "Output"),
    "depthwise_conv2d": ("Input", "Output"),
    "conv2d_transpose": ("Input", "Output"),
    "depthwise_conv2d_transpose": ("Input", "Output"),
    "conv3d": ("Input", "Output"),
    "conv3d_transpose": ("Input", "Output"),
    GRAD_ADD: ("Input", "Output@GRAD", "Addend", "Input@GRAD"),
    "pool2d": ("X", "Out"),
    "pool3d": ("X", "Out"),
    "batch_norm": ("X", "Y"),
    "fused_batch_norm_act": ("X", "Y"),
    ADD_ACT: ("X", "Z", "Y"),
    MASKED: ("X", "Z", "Y"),
}
# An attribute says where channels are.
_WITH_FORMAT = frozenset(name for name in _IMAGES if name.startswith(("conv", "depthwise", "pool")))
# Besides ops with a scalar expression: they compute element by element.
_ELEMENTWISE = frozenset({"sum", "assign", "cast", "fusion_group", "fused_elemwise_activation"})


def lay_out(
    graph: Graph,
    kernels: Mapping[Node, str],
    capabilities: Capabilities,
    array_module: str = "numpy",
    math: str = "float32",
) -> tuple[Graph, dict[Node, str]]:
    """Return the graph in which values know their layout and copies change it, and each node's back end.

    ``math`` says how exact products of single-precision numbers are.
    """
    planner = _Planner(kernels, capabilities, array_module, math)
    nodes = [n for node in graph.nodes for n in planner.place(node)]
    if not planner.moved:
        return graph, dict(kernels)
    copies = sum(node.op == TRANSFER for node in nodes)
    text = f"layout: {planner.moved} images lie channels last, {copies} copies change the order"
    return graph.with_nodes(nodes, planner.swap).noted(text), planner.kernels


class _Planner:
    """Goes through the nodes in order and gives each value that is made a layout."""

    def __init__(
        self,
        kernels: Mapping[Node, str],
        capabilities: Mapping[str, BackEnd],
        array_module: str,
        math: str,
    ) -> None:
        self.back_ends, self.capabilities, self.math = kernels, capabilities, math
        able = libraries(capabilities, array_module)
        self.copies_by = next((n for n, b in able.items() if TRANSFER in b.takes), array_module)
        self.kernels: dict[Node, str] = {}
        self.swap: dict[Value, Value] = {}  # a value -> the same with its layout
        self._copies: dict[tuple[Value, str], Value] = {}
        self.moved = 0

    def place(self, node: Node) -> Iterator[Node]:
        """Yield the node with its operands in the layout that it needs, behind the copies that this takes."""
        back_end = self.back_ends[node]
        node = node.reading(self.swap)
        images: Sequence[str] = ()
        follows = False
        formats = (node.attrs.get("data_layout"), node.attrs.get("data_format"))
        last = any(each in LAST for each in formats)
        if not last:  # else channels are the last dimension already
            layout = self._layout(node, back_end)
            images = _image_slots(node.op) if layout == CHANNELS_LAST else ()
            either = _element_by_element(node) or layout == AS_THEY_COME
            follows = not images and either and self._any_moved(node)
        inputs: dict[str, tuple[Value | None, ...]] = {}
        for slot, values in node.inputs.items():
            operands = []
            for value in values:
                order = IN_ORDER
                if value is not None and (slot in images or follows) and is_image(value):
                    order = CHANNELS_LAST
                if value is not None and value.layout != order:
                    yield from self._copy(value, order, node)
                    value = self._copies[value, order]
                operands.append(value)
            inputs[slot] = tuple(operands)
        outputs = {
            slot: tuple(self._made(v, slot in images or follows) for v in values)
            for slot, values in node.outputs.items()
        }
        grads = tuple((name, self.swap.get(value, value)) for name, value in node.grads)
        placed = replace(node, inputs=inputs, outputs=outputs, grads=grads)
        self.kernels[placed] = back_end
        yield placed

    def _layout(self, node: Node, back_end: str) -> str:
        """Return the order of images that a kernel asks for; on a host beside a GPU it is the shape's."""
        layout = self.capabilities[back_end].layouts.get(node.op, IN_ORDER)
        if node.host:
            return IN_ORDER
        return layout if isinstance(layout, str) else layout(node, self.math)

    def _any_moved(self, node: Node) -> bool:
        return any(value.layout == CHANNELS_LAST for value in node.reads())

    def _made(self, value: Value | None, moves: bool) -> Value | None:
        if value is None or not (moves and value.kind == TEMP and is_image(value)):
            return value
        self.moved += 1
        self.swap[value] = replace(value, layout=CHANNELS_LAST)
        return self.swap[value]

    def _copy(self, value: Value, layout: str, node: Node) -> Iterator[Node]:
        if (value, layout) in self._copies:
            return
        name = f"{value.name}@{layout or 'NCHW'}"
        result = Value(name, value.spec, TEMP, value.version, layout)
        self._copies[value, layout] = result
        copy = Node(TRANSFER, {"X": (value,)}, {"Out": (result,)}, {}, node.role, node.where)
        copy = replace(copy, at=node.at)
        self.kernels[copy] = self.copies_by
        yield copy


def is_image(value: Value) -> bool:
    """Tell whether the order matters: one channel, or one pixel, lies the same in both."""
    shape = value.spec.shape
    return len(shape) == 4 and shape[1] != 1 and tuple(shape[2:]) != (1, 1)


def image_slots(op_type: str) -> Sequence[str]:
    """Return the slots that hold images of an op whose ``data_format`` says where channels are."""
    return _image_slots(op_type) if op_type.removesuffix("_grad") in _WITH_FORMAT else ()


def _image_slots(op_type: str) -> Sequence[str]:
    forward = op_type.removesuffix("_grad")
    slots = _IMAGES.get(forward, ())
    return slots if forward == op_type else (*slots, *(f"{slot}@GRAD" for slot in slots))


def _element_by_element(node: Node) -> bool:
    """Tell whether the kernels of an op take any strides, the same for all images of one shape.

    What lasts keeps the order of its shape.
    """
    forward = node.op.removesuffix("_grad")
    named = forward in _ELEMENTWISE or forward.startswith("elementwise_")
    if not named and OPS[node.op].scalar is None:
        return False
    full = [v.spec.shape for v in (*node.reads(), *node.writes()) if is_image(v)]
    return all(v.kind == TEMP for v in node.writes()) and len(set(full)) == 1
