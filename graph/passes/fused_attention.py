"""fused_attention: softmax(scale * Q K^T + Mask) V, with dropout of weights, as one op forward and one back.

Five to eight ops of a program need memory for a matrix of scores; fused, memory grows with the number of rows
alone (see ``graph/ops/attention.py``). ``fuse_dot_product_attention`` switches the same pass on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...strategies.types import FLOATS
from ..ir.graph import Graph, Node, Value
from ..ops.attention import RULED_OUT
from ..ops.registry import Spec
from ..ops.rules import statistic
from .attention_layout import take_views
from .constants import constant
from .match import GraphRewriter, nonempty_slots, output_of, sole_value
from .path import Hop, can_fuse_away, derives_same, gradient_op, with_gradients
from .target import Pass, Target

FUSED, FUSED_GRAD = "fused_dot_product_attention", "fused_dot_product_attention_grad"
_SCALING = ("scale", "elementwise_mul", "elementwise_div")


def fused_attention(graph: Graph, target: Target) -> Graph:
    """Fuse the core of every attention, then the transposes and splits around it."""
    edit = GraphRewriter(graph, target)
    fused = sum(_fuse(edit, node, target) for node in edit.nodes("softmax"))
    views = take_views(edit)
    back = len(edit.nodes(FUSED_GRAD)) if fused else 0
    counts = {
        "attention(s)": fused,
        "of them with the views around": views,
        "causal": sum(node.attrs["causal"] for node in edit.nodes(FUSED)) if fused else 0,
        "of their gradients": back,
        "of their dropouts by cuDNN": _by_library(edit),
    }
    return edit.result("fused_attention", counts, "the program has no matmul, softmax, matmul")


def _by_library(edit: GraphRewriter) -> int:
    """Return of how many attentions a library drops the weights."""
    return sum(node.attrs["dropout"].get("by_library", False) for node in edit.nodes(FUSED))


def _fuse(edit: GraphRewriter, softmax: Node, target: Target) -> bool:
    """Fuse the attention around a softmax, if it is one."""
    path = _path(edit, softmax)
    if path is None:
        return False
    hops = with_gradients(edit, path)
    if hops is None or not can_fuse_away(edit, hops):
        return False
    return _Attention(edit, hops).fuse(target)


def _path(edit: GraphRewriter, softmax: Node) -> list[tuple[Node, str]] | None:
    """Return the ops from the product of queries and keys to that with the values (None: no attention)."""
    weights = _result(softmax)
    path = [(softmax, "X")]
    dropout = edit.reader(weights, "dropout", "X")
    if dropout is not None:
        path.append((dropout, "X"))
        weights = _result(dropout)
    last = edit.reader(weights, "matmul", "X")
    first = _scores(edit, sole_value(softmax.inputs, "X"))
    if last is None:
        return None
    if first is None:
        edit.refuse(
            f"softmax (built at {softmax.where}) is not of a product, scaled and with one mask"
        )
        return None
    path = [*first, *path, (last, "X")]
    return path if _is_attention(edit, path, softmax) else None


def _is_attention(edit: GraphRewriter, path: Sequence[tuple[Node, str]], softmax: Node) -> bool:
    """Tell whether the ops of a path are put together as in attention; if not, record the reason."""
    first, last = path[0][0], path[-1][0]
    spec, of = _result(softmax).spec, output_of(softmax)
    if softmax.attrs["axis"] not in (-1, len(spec.shape) - 1):
        return edit.refuse(f"softmax (built at {softmax.where}) is not along the last dimension")
    if last.attrs["transpose_X"] or last.attrs["transpose_Y"] or last.attrs["alpha"] != 1.0:
        return edit.refuse(f"{of} is multiplied transposed or scaled")
    if first.attrs["transpose_X"] or not first.attrs["transpose_Y"]:
        return edit.refuse(f"{output_of(first)} is not a product with transposed keys")
    if spec.dtype not in FLOATS:
        return edit.refuse(f"{of} is {spec.dtype.name}")
    shapes = [v.spec.shape for node in (first, last) for v in node.reads()]
    if len({len(shape) for shape in shapes}) > 1 or not 2 <= len(spec.shape) <= 4:
        return edit.refuse(
            f"{of} and its operands differ in the number of dimensions, or have over 4"
        )
    return True


def _scores(edit: GraphRewriter, value: Value | None) -> list[tuple[Node, str]] | None:
    """Return the ops that make scores from a product, in order: scalings by constants, then one mask."""
    node = edit.writer(value)
    if node is None or value is None:
        return None
    if node.op != "elementwise_add":
        return _scaled_product(edit, value)
    for slot in ("X", "Y"):
        scores = sole_value(node.inputs, slot)
        path = None if scores is None else _scaled_product(edit, scores)
        if path is not None and scores is not None and scores.spec == value.spec:
            x = sole_value(node.inputs, "X")
            fits = x is not None and len(x.spec.shape) == len(scores.spec.shape)
            return [*path, (node, slot)] if fits else None
    return None


def _scaled_product(edit: GraphRewriter, value: Value) -> list[tuple[Node, str]] | None:
    path: list[tuple[Node, str]] = []
    node = edit.writer(value)
    while node is not None and factor(edit, node) is not None:
        path.insert(0, (node, "X"))
        node = edit.writer(sole_value(node.inputs, "X"))
    return [(node, "X"), *path] if node is not None and node.op == "matmul" else None


def factor(edit: GraphRewriter, node: Node) -> float | None:
    """Return the constant by which an op multiplies X, None if it does anything else."""
    if node.op not in _SCALING:
        return None
    if node.op == "scale":
        plain = not node.attrs["bias"] and sole_value(node.inputs, "ScaleTensor") is None
        return float(node.attrs["scale"]) if plain else None
    other = sole_value(node.inputs, "Y")
    constant = edit.writer(other)
    if constant is None or constant.op != "fill_constant" or constant.inputs or other is None:
        return None
    if any(size != 1 for size in other.spec.shape):
        return None
    number = float(constant.attrs["value"])
    return number if node.op == "elementwise_mul" else 1.0 / number if number else None


def _result(node: Node) -> Value:
    value = sole_value(node.outputs, "Out")
    assert value is not None
    return value


class _Attention:
    """Operands, results and attributes of the fused ops for one attention."""

    def __init__(self, edit: GraphRewriter, hops: Sequence[Hop]) -> None:
        self.edit = edit
        self.first, self.last = hops[0], hops[-1]
        self.add = next((hop for hop in hops if hop.node.op == "elementwise_add"), None)
        self.dropout = next((hop for hop in hops if hop.node.op == "dropout"), None)
        self.forward = [hop.node for hop in hops]
        self.backward = [hop.grad for hop in hops if hop.grad is not None]
        self.scale = float(self.first.node.attrs["alpha"])
        for hop in hops:
            self.scale *= factor(edit, hop.node) or 1.0
        self.q, self.d_q = self.first.read("X"), self.first.d("X")
        self._take_scaling()

    def _take_scaling(self) -> None:
        """Fold a scaling of the queries into the fused op, if nothing else reads the scaled queries."""
        node = self.edit.writer(self.q)
        if node is None or factor(self.edit, node) is None or node.op != "scale":
            return
        grad = gradient_op(self.edit, node, self.d_q) if self.d_q is not None else None
        if (grad is None) != (self.d_q is None):
            return
        hop = Hop(node, "X", grad)
        if can_fuse_away(self.edit, [hop, self.first], [*self.forward, *self.backward]):
            self.scale *= float(node.attrs["scale"])
            self.q, self.d_q = hop.read("X"), hop.d("X")
            self.forward.insert(0, node)
            self.backward += [grad] if grad is not None else []

    def fuse(self, target: Target) -> bool:
        """Put the fused ops in; return False and record the reason if they do not fit."""
        out = self.last.result()
        rows = Spec(out.spec.shape[:-1], statistic(out.spec.dtype))
        results = {
            "Out": out,
            "SoftmaxMax": Value(f"{out}@MAX", rows),
            "SoftmaxSum": Value(f"{out}@SUM", rows),
        }
        other = None if self.add is None else "Y" if self.add.slot == "X" else "X"
        mask = self.add.read(other) if self.add is not None and other is not None else None
        d_mask = self.add.d(other) if self.add is not None and other is not None else None
        operands = {"Q": self.q, "K": self.first.read("Y"), "V": self.last.read("Y"), "Mask": mask}
        node = Node(
            FUSED,
            nonempty_slots(operands),
            nonempty_slots(results),
            self._attrs(mask),
            where=self.last.node.where,
        )
        if not derives_same(self.edit, node):
            return False
        if target.strategy is not None and target.strategy.cudnn_attention_dropout:
            node = self._dropped_by_library(node, d_mask, target)
        pairs = [(self.forward, node)]
        if self.backward:
            gradients = {
                "Q": self.d_q,
                "K": self.first.d("Y"),
                "V": self.last.d("Y"),
                "Mask": d_mask,
            }
            inputs = nonempty_slots({**operands, **results, "Out@GRAD": self.last.d_result()})
            outputs = nonempty_slots({f"{slot}@GRAD": value for slot, value in gradients.items()})
            grad = replace(node, op=FUSED_GRAD, inputs=inputs, outputs=outputs)
            pairs.append((self.backward, grad))
        return self.edit.fuse_all(pairs)

    def _dropped_by_library(self, node: Node, d_mask: Value | None, target: Target) -> Node:
        """Return the node with its dropout left to a library, if one draws numbers for this and its gradient.

        Both kernels draw the same only if the same library has both, so what it may decline is asked here.
        """
        dropout = node.attrs["dropout"]
        if not dropout or dropout["is_test"] or not dropout["dropout_prob"]:
            return node
        candidate = replace(node, attrs={**node.attrs, "dropout": {**dropout, "by_library": True}})
        why = ""
        if target.drops_weights is None:
            why = "there is no cuDNN on all places"
        elif dropout["dropout_implementation"] != "upscale_in_train":
            why = "cuDNN scales what is left in training (upscale_in_train)"
        elif d_mask is not None:
            why = "its mask has a gradient"
        elif not target.drops_weights(candidate):
            why = "cuDNN takes float16 and bfloat16, and heads of a multiple of 8"
        if why:
            self.edit.refuse(f"weights of {node.outputs['Out'][0]} are not dropped by cuDNN: {why}")
            return node
        return candidate

    def _attrs(self, mask: Value | None) -> dict[str, Any]:
        axis = -1
        if self.add is not None and self.add.slot == "X":
            axis = self.add.node.attrs["axis"]
        dropout: dict[str, Any] = {}
        if self.dropout is not None:
            dropout = {**self.dropout.node.attrs, "name": self.dropout.result().name}
        return {
            "scale": self.scale,
            "layout": "bhtd",
            "mask_axis": axis,
            "causal": _is_causal(constant(self.edit, mask), self.first.result().spec.shape),
            "dropout": dropout,
        }


def _is_causal(mask: np.ndarray | None, scores: tuple[int, ...]) -> bool:
    """Tell whether a constant mask rules out the keys behind each query, and does nothing else."""
    rows, keys = scores[-2:]
    if mask is None or rows != keys or mask.shape[-2:] != (rows, keys) or mask.size != rows * keys:
        return False
    mask, later = mask.reshape(rows, keys), np.triu(np.ones((rows, keys), bool), 1)
    return not mask[~later].any() and bool((mask[later] <= RULED_OUT).all())


def _is_on(target: Target) -> bool:
    build = target.strategy
    return build is not None and (build.fused_attention or build.fuse_dot_product_attention)


PASS = Pass(
    "fused_attention",
    fused_attention,
    _is_on,
    "its products must not have become part of fused products before",
)
