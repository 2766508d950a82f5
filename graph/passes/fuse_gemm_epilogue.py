"""Join a matrix product, its bias row and its activation, forward and backward.

Of two such products in a row the upper one's gradient goes through the gelu between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..ir.graph import Graph, Node, Value
from ..ops.fused_linear import GEMM
from .match import Change, GraphRewriter, nonempty_slots, output_of, sole_value
from .target import Pass, Target

_NAME = "fuse_gemm_epilogue"
_ADD = "elementwise_add"
_ACTIVATIONS = {"relu": "Out", "gelu": "X"}  # the slope is a function of it


def fuse_gemm_epilogue(graph: Graph, target: Target) -> Graph:
    """mul or matmul, + bias, [relu or gelu] becomes fused_gemm_epilogue, and the gradients one op, too.

    An activation that cannot be fused stays behind the fused product.
    """
    edit = GraphRewriter(graph, target)
    forward = active = backward = 0
    for add in edit.nodes(_ADD):
        product = _Product.find(edit, add)
        if product is None:
            continue
        act = product.activation()
        changes = product.changes(act)
        if changes and edit.fuse_all(changes):
            forward += 1
            active += act is not None
            backward += len(changes) - 1
    through = sum(_take_slope_below(edit, node) for node in edit.nodes(f"{GEMM}_grad"))
    counts = {
        "product(s) with bias": forward,
        "of them with activation": active,
        "of their gradients": backward,
        "of these with the slope of the gelu below": through,
    }
    return edit.result(_NAME, counts, "no bias row is added to a product")


def _take_slope_below(edit: GraphRewriter, lower: Node) -> bool:
    """Multiply the upper product's gradient by the slope of the gelu below (libraries have its tanh form)."""
    d_out, total = sole_value(lower.inputs, "DOut"), sole_value(lower.inputs, "ReserveSpace")
    upper = edit.writer(d_out, lower.op)
    if d_out is None or total is None or upper is None:
        return False
    fits = lower.attrs["approximate"] and not upper.attrs["trans_x"]
    if not fits or upper.outputs.get("DX") != (d_out,) or not edit.can_fuse_away(d_out, (lower,)):
        return False
    through = Value(f"{total.name}@GRAD", total.spec)
    if any(str(value) == str(through) for value in edit.maker):
        return False
    above = replace(
        upper,
        inputs={**upper.inputs, "Below": (total,)},
        outputs={**upper.outputs, "DX": (through,)},
        attrs={**upper.attrs, "activation_below": "gelu_grad"},
    )
    rest = {slot: values for slot, values in lower.inputs.items() if slot != "ReserveSpace"}
    below = replace(
        lower, inputs={**rest, "DOut": (through,)}, attrs={**lower.attrs, "activation_grad": "none"}
    )
    return edit.fuse_all([((upper,), above), ((lower,), below)])


@dataclass
class _Product:
    """A product and its sum with a bias row; ``grad`` holds the gradient ops of the sum and the product."""

    edit: GraphRewriter
    product: Node
    add: Node
    attrs: dict[str, Any]
    grad: tuple[Node, ...]

    @classmethod
    def find(cls, edit: GraphRewriter, add: Node) -> _Product | None:
        """Return the product behind a sum; None, with the reason recorded, if it cannot be fused."""
        middle, bias = sole_value(add.inputs, "X"), sole_value(add.inputs, "Y")
        product = edit.writer(middle, *_READ)
        if middle is None or bias is None or product is None:
            return None
        attrs = _READ[product.op](product)
        rank = len(middle.spec.shape)
        row = bias.spec.shape == middle.spec.shape[-1:] and add.attrs["axis"] in (-1, rank - 1)
        if attrs is None or not row:
            reason = (
                "is no plain product of rows and a matrix" if row else "is added to no bias row"
            )
            edit.refuse(f"{output_of(product)} {reason}")
            return None
        grad = _gradients(edit, product, middle)
        if grad is None or not edit.can_fuse_away(middle, (add, *grad)):
            return None
        return cls(edit, product, add, attrs, grad)

    def activation(self) -> tuple[Node, ...] | None:
        """Return the activation of the sum, and its gradient op if there is one; None if it cannot be fused."""
        total = sole_value(self.add.outputs, "Out")
        assert total is not None
        act = next((n for n in self.edit.readers(total) if n.op in _ACTIVATIONS), None)
        if act is None:
            return None
        if not self.grad:
            return (act,) if self.edit.can_fuse_away(total, (act,)) else None
        d_total = sole_value(self.grad[0].inputs, "Out@GRAD")
        act_grad = self.edit.writer(d_total, f"{act.op}_grad")
        if d_total is None or act_grad is None:
            return None
        slot = _ACTIVATIONS[act.op]
        same_operand = sole_value(act_grad.inputs, slot) is sole_value(
            {**act.inputs, **act.outputs}, slot
        )
        d_total_vanishes = self.edit.can_fuse_away(d_total, self.grad)
        total_vanishes = act.op == "gelu" or self.edit.can_fuse_away(total, (act,))
        return (act, act_grad) if same_operand and d_total_vanishes and total_vanishes else None

    def changes(self, act: tuple[Node, ...] | None) -> list[Change]:
        """Return the change of the forward ops, and that of their gradient ops if there are any."""
        total, out = self.add.outputs["Out"], (act[0] if act else self.add).outputs["Out"]
        settings = dict(self.attrs, activation=act[0].op if act else "none")
        if act:
            settings["approximate"] = bool(act[0].attrs.get("approximate", False))
        reserved = bool(act) and len(act or ()) == 2 and _ACTIVATIONS[settings["activation"]] == "X"
        fused = Node(
            GEMM,
            {
                "X": self.product.inputs["X"],
                "Y": self.product.inputs["Y"],
                "Bias": self.add.inputs["Y"],
            },
            {"Out": out, **({"ReserveSpace": total} if reserved else {})},
            settings,
            where=self.product.where,
        )
        changes: list[Change] = [((self.product, self.add, *(act or ())[:1]), fused)]
        if self.grad:
            reserve = {"ReserveSpace": total[0]} if reserved else {"Out": out[0]} if act else {}
            changes.append(self._backward(act, settings, reserve))
        return changes

    def _backward(
        self,
        act: tuple[Node, ...] | None,
        settings: dict[str, Any],
        reserve: dict[str, Value | None],
    ) -> Change:
        add_grad, *products = self.grad
        first = act[1] if act else add_grad
        d_out = sole_value(first.inputs, "Out@GRAD")
        d_product = products[0].outputs if products else {}
        attrs = {k: v for k, v in settings.items() if k != "activation"}
        attrs["activation_grad"] = f"{act[0].op}_grad" if act else "none"
        attrs["activation_below"] = "none"
        inputs = {"DOut": d_out, "X": sole_value(self.product.inputs, "X")}
        inputs |= {"Y": sole_value(self.product.inputs, "Y"), **reserve}
        outputs = {"DX": sole_value(d_product, "X@GRAD"), "DY": sole_value(d_product, "Y@GRAD")}
        outputs["DBias"] = sole_value(add_grad.outputs, "Y@GRAD")
        node = Node(
            f"{GEMM}_grad",
            nonempty_slots(inputs),
            nonempty_slots(outputs),
            attrs,
            where=add_grad.where,
        )
        return (*((first,) if act else ()), add_grad, *products), node


def _gradients(edit: GraphRewriter, product: Node, middle: Value) -> tuple[Node, ...] | None:
    """Return the gradient ops of the sum and of the product; () if there are none, None if they do not fit."""
    add_grad = edit.reader(middle, f"{_ADD}_grad", "X")
    if add_grad is None:
        return ()
    d_middle = sole_value(add_grad.outputs, "X@GRAD")
    if d_middle is None:
        return (add_grad,)
    product_grad = edit.reader(d_middle, f"{product.op}_grad", "Out@GRAD")
    if product_grad is None or not edit.can_fuse_away(d_middle, (product_grad,)):
        return None
    if any(product_grad.inputs[slot] != product.inputs[slot] for slot in ("X", "Y")):
        return None  # an operand is written in between, and the gradient is of what it holds then
    return add_grad, product_grad


def _of_mul(product: Node) -> dict[str, Any] | None:
    x, y = sole_value(product.inputs, "X"), sole_value(product.inputs, "Y")
    assert x is not None and y is not None
    dims = product.attrs["x_num_col_dims"]
    if len(y.spec.shape) != 2:
        return None
    rows = -1 if dims == len(x.spec.shape) - 1 else dims
    return {"trans_x": False, "trans_y": False, "approximate": False, "x_num_col_dims": rows}


def _of_matmul(product: Node) -> dict[str, Any] | None:
    x, y = sole_value(product.inputs, "X"), sole_value(product.inputs, "Y")
    assert x is not None and y is not None
    attrs, rank = product.attrs, len(x.spec.shape)
    if len(y.spec.shape) != 2 or rank < 2 or attrs["alpha"] != 1.0:
        return None
    if attrs["transpose_X"] and rank != 2:
        return None
    return {
        "trans_x": attrs["transpose_X"],
        "trans_y": attrs["transpose_Y"],
        "approximate": False,
        "x_num_col_dims": -1,
    }


_READ = {"mul": _of_mul, "matmul": _of_matmul}
PASS = Pass(
    _NAME,
    fuse_gemm_epilogue,
    lambda target: target.strategy is not None and target.strategy.fuse_gemm_epilogue,
    "a bias belongs to its product rather than to the activation behind it",
)
