"""Cross entropy of probabilities with integer labels as compiled loops over rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops import loss as ops
from ....graph.ops.operands import Array
from ....strategies.types import VarType
from ...codegen.text_loops import bind_checked
from ...device.device import Device
from ..registry import Step, kernel, of_types
from .rows import outside_error

# ``match`` is what a label picked of its row; the logarithm of 0 is cut off as in ``loss.py``.
_LOSS = """
    floor = np.float32(-1e20)
    for r in range(rows):
        label = labels[r]
        if label == ignored:
            y[r], match[r] = np.float32(0.0), np.float32(1.0)
        elif 0 <= label < n:
            picked = x[r * n + label]
            low = log_(picked)
            y[r], match[r] = -select(low < floor, floor, low), picked
        else:
            wrong[0], wrong[1] = 1, label
"""
_SLOPE = """
    for i in range(rows * n):
        out[i] = np.float32(0.0)
    for r in range(rows):
        label = labels[r]
        if 0 <= label < n and label != ignored:
            out[r * n + label] = -d[r] / picked[{at}]
        elif label != ignored:
            wrong[0], wrong[1] = 1, label
"""


_typed = of_types(VarType.FP32, Label=[VarType.INT64])


def _hard(node: Node) -> bool:
    """Tell whether labels are int64 classes and everything else is float32."""
    return _typed(node) and not node.attrs.get("soft_label")


def _bound(dev: Device, text: str, op: str, a: Any, scores: Array, **arrays: Array) -> list[Step]:
    """Return the loop, and the check that every label was a class."""
    n = scores.shape[-1]
    error = outside_error(op, n, "label", "classes")
    arrays |= {"labels": a.label}
    sizes = {"rows": scores.size // n, "n": n, "ignored": a.ignore_index}
    return bind_checked(dev, text, arrays, error, **sizes)


def _losses(op: str, grad: str, at: str) -> None:
    """Register an op, and its gradient, which reads what the labels pick: ``at`` is where of row r."""
    on_rows = partial(kernel, on=("llvm",), takes=_hard, gapless=True)

    @on_rows(op)
    def loss(dev: Device, a: ops.CrossEntropy | ops.CrossEntropy2) -> list[Step]:
        """-log of the probability that the label picks, which is kept if the backward pass reads it."""
        match = vars(a).get("match_x")
        match = dev.scratch(a.y.shape, a.y.dtype) if match is None else match
        return _bound(dev, _LOSS, op, a, a.x, x=a.x, y=a.y, match=match)

    @on_rows(grad)
    def slope(dev: Device, a: ops.CrossEntropyGrad | ops.CrossEntropyGrad2) -> list[Step]:
        """-d / probability, at the label."""
        picked = a.match_x if isinstance(a, ops.CrossEntropyGrad2) else a.x
        operands = {"picked": picked, "d": a.d_y, "out": a.d_x}
        return _bound(dev, _SLOPE.format(at=at), op, a, a.d_x, **operands)


_losses("cross_entropy", "cross_entropy_grad", "r * n + label")
_losses("cross_entropy2", "cross_entropy_grad2", "r")
