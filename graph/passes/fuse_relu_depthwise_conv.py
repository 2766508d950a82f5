"""Let a depthwise convolution apply the relu before it, forward and backward: relu's result is not kept."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node, Value
from .match import Change, GraphRewriter, sole_value
from .target import Pass, Target

_NAME = "fuse_relu_depthwise_conv"
_FUSED = {"fuse_relu_before_depthwise_conv": True, "use_cudnn": False}


def fuse_relu_depthwise_conv(graph: Graph, target: Target) -> Graph:
    """relu -> depthwise_conv2d becomes a convolution that applies relu; so do their gradients."""
    edit = GraphRewriter(graph, target)
    forward = backward = 0
    for conv in edit.nodes("depthwise_conv2d"):
        middle = sole_value(conv.inputs, "Input")
        relu = edit.writer(middle, "relu")
        if middle is None or relu is None:
            continue
        x = sole_value(relu.inputs, "X")
        assert x is not None
        conv_grad = edit.reader(middle, "depthwise_conv2d_grad", "Input")
        changes: list[Change] = [((relu, conv), _with_relu(conv, x))]
        if conv_grad is not None:
            changes += _backward(edit, conv_grad, x)
            if len(changes) == 1:
                continue
        old = [node for nodes, _ in changes for node in nodes]
        if edit.can_fuse_away(middle, old) and edit.fuse_all(changes):
            forward += 1
            backward += len(changes) - 1
    counts = {"relu into depthwise_conv2d": forward, "of their gradients": backward}
    return edit.result(_NAME, counts, "no relu stands before a depthwise_conv2d")


def _backward(edit: GraphRewriter, conv_grad: Node, x: Value) -> list[Change]:
    """Return the change of the gradients: the convolution's is taken by relu's operand ``x``."""
    fused = _with_relu(conv_grad, x)
    d_middle = sole_value(conv_grad.outputs, "Input@GRAD")
    if d_middle is None:
        return [((conv_grad,), fused)]
    relu_grad = edit.reader(d_middle, "relu_grad", "Out@GRAD")
    if relu_grad is None or not edit.can_fuse_away(d_middle, (relu_grad,)):
        return []
    outputs = {**fused.outputs, "Input@GRAD": relu_grad.outputs["X@GRAD"]}
    return [((conv_grad, relu_grad), replace(fused, outputs=outputs))]


def _with_relu(conv: Node, x: Value) -> Node:
    return replace(conv, inputs={**conv.inputs, "Input": (x,)}, attrs={**conv.attrs, **_FUSED})


PASS = Pass(
    _NAME,
    fuse_relu_depthwise_conv,
    lambda target: target.strategy is not None and target.strategy.fuse_relu_depthwise_conv,
    "takes a relu that a batch norm would take later",
)
