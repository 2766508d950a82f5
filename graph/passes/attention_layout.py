"""Attention that reads queries, keys and values where they were projected: no transposes, splits and joins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir.graph import Node, Value
from .match import GraphRewriter, nonempty_slots, sole_value
from .path import Hop, derives_same, gradient_op, gradient_read

_FUSED, _GRAD = "fused_dot_product_attention", "fused_dot_product_attention_grad"
_HEADS_FIRST, _PACKED = [0, 2, 1, 3], [2, 0, 3, 1, 4]
_SQUEEZES = ("squeeze", "squeeze2")
_TRANSPOSES = ("transpose", "transpose2")


@dataclass
class _Views:
    """Views that lead to Q, K and V: the values before them, and the ops to leave out, forward and back."""

    layout: str
    read: dict[str, Value | None] = field(default_factory=dict)
    gradients: dict[str, Value | None] = field(default_factory=dict)
    forward: list[Node] = field(default_factory=list)
    backward: list[Node] = field(default_factory=list)


def take_views(edit: GraphRewriter) -> int:
    """Fold the views around fused attentions into them; return how many attentions changed."""
    return sum(_take(edit, node) for node in edit.nodes(_FUSED) if node.attrs["layout"] == "bhtd")


def _take(edit: GraphRewriter, node: Node) -> bool:
    out = sole_value(node.outputs, "Out")
    assert out is not None
    grad = edit.reader(out, _GRAD, "Out")
    after = _transpose_after(edit, out, grad)
    if after is None:
        return False
    views = _packed_views(edit, node, grad) or _transposed_views(edit, node, grad)
    return views is not None and _fuse_views(edit, node, grad, after, views)


def _transpose_after(edit: GraphRewriter, out: Value, grad: Node | None) -> Hop | None:
    """Return the transpose that puts rows before heads again, if it alone reads the result."""
    node = next((n for n in edit.readers(out) if n.op in _TRANSPOSES), None)
    if node is None or node.attrs["axis"] != _HEADS_FIRST:
        return None
    if grad is None:
        return Hop(node, "X")
    d_out = sole_value(grad.inputs, "Out@GRAD")
    before = edit.writer(d_out, f"{node.op}_grad")
    if before is None:
        return None
    seed = gradient_read(node, before)
    return Hop(node, "X", before) if seed and gradient_op(edit, node, seed) is before else None


def _transposed_views(edit: GraphRewriter, node: Node, grad: Node | None) -> _Views | None:
    """Return the views if each of Q, K and V is a transpose of [B, T, H, D]."""
    views = _Views("bthd")
    for slot in "QKV":
        view = edit.writer(sole_value(node.inputs, slot), *_TRANSPOSES)
        if view is None or view.attrs["axis"] != _HEADS_FIRST:
            return None
        views.forward.append(view)
        views.read[slot] = sole_value(view.inputs, "X")
        d = None if grad is None else sole_value(grad.outputs, f"{slot}@GRAD")
        back = None if d is None else gradient_op(edit, view, d)
        if (back is None) != (d is None):
            return None
        if back is not None:
            views.backward.append(back)
            views.gradients[f"{slot}@GRAD"] = sole_value(back.outputs, "X@GRAD")
    return views


def _packed_views(edit: GraphRewriter, node: Node, grad: Node | None) -> _Views | None:
    """Return the views if Q, K and V are the three parts of a transpose of [B, T, 3, H, D]."""
    squeezes = [edit.writer(sole_value(node.inputs, slot), *_SQUEEZES) for slot in "QKV"]
    if any(view is None or list(view.attrs["axes"]) != [0] for view in squeezes):
        return None
    parts = tuple(sole_value(view.inputs, "X") for view in squeezes if view is not None)
    split = edit.writer(parts[0], "split")
    if split is None or tuple(split.outputs["Out"]) != parts or split.attrs["axis"] != 0:
        return None
    view = edit.writer(sole_value(split.inputs, "X"), *_TRANSPOSES)
    if view is None or view.attrs["axis"] != _PACKED:
        return None
    forward = [view, split, *(n for n in squeezes if n is not None)]
    views = _Views("packed", {"Q": sole_value(view.inputs, "X")}, forward=forward)
    trains = grad is not None and any(f"{slot}@GRAD" in grad.outputs for slot in "QKV")
    return _packed_gradients(edit, views, grad) if trains and grad is not None else views


def _packed_gradients(edit: GraphRewriter, views: _Views, grad: Node) -> _Views | None:
    """Return the views with the ops that join the gradients of Q, K and V, None if they do not fit."""
    view, split, *squeezes = views.forward
    pieces: list[Value | None] = []
    for slot, squeeze in zip("QKV", squeezes, strict=True):
        d = sole_value(grad.outputs, f"{slot}@GRAD")
        back = None if d is None else gradient_op(edit, squeeze, d)
        if back is None:
            return None
        views.backward.append(back)
        pieces.append(sole_value(back.outputs, "X@GRAD"))
    join = None if pieces[0] is None else gradient_op(edit, split, pieces[0])
    packed = None if join is None else sole_value(join.outputs, "Out")
    if join is None or packed is None or list(join.inputs["X"]) != pieces:
        return None
    back = gradient_op(edit, view, packed)
    if back is None:
        return None
    views.backward += [join, back]
    views.gradients["Q@GRAD"] = sole_value(back.outputs, "X@GRAD")
    return views


def _fuse_views(
    edit: GraphRewriter, node: Node, grad: Node | None, after: Hop, views: _Views
) -> bool:
    """Put in ops that work across the views; return False and record the reason if they do not fit."""
    out = after.result()
    forward = [node, after.node, *views.forward]
    operands = {
        **{s: v[0] for s, v in node.inputs.items() if s not in ("Q", "K", "V")},
        **views.read,
    }
    results = {**{s: v[0] for s, v in node.outputs.items()}, "Out": out}
    attrs = {**node.attrs, "layout": views.layout}
    fused = replace(
        node, inputs=nonempty_slots(operands), outputs=nonempty_slots(results), attrs=attrs
    )
    pairs: list[tuple[list[Node], Node]] = [(forward, fused)]
    if grad is not None:
        d_mask = sole_value(grad.outputs, "Mask@GRAD")
        inputs = nonempty_slots({**operands, **results, "Out@GRAD": after.d_result()})
        outputs = nonempty_slots({**views.gradients, "Mask@GRAD": d_mask})
        fused_grad = replace(grad, inputs=inputs, outputs=outputs, attrs=attrs)
        assert after.grad is not None
        pairs.append(([grad, after.grad, *views.backward], fused_grad))
    group = [n for old, _ in pairs for n in old]
    lasting = {v for _, new in pairs for v in new.writes()}
    inner = [v for n in group for v in n.writes() if v not in lasting]
    if not all(edit.can_fuse_away(value, group) for value in inner) or not derives_same(
        edit, fused
    ):
        return False
    return edit.fuse_all([(list(dict.fromkeys(old)), new) for old, new in pairs])
