"""Cross entropy of probabilities with integer labels as compiled loops over rows."""

from __future__ import annotations

from functools import partial

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


def _bound(
    dev: Device, text: str, op: str, label: Array, scores: Array, ignored: int, **arrays: Array
) -> list[Step]:
    """Return the loop, and the check that every label was a class."""
    n = scores.shape[-1]
    error = outside_error(op, n, "label", "classes")
    arrays |= {"labels": label}
    return bind_checked(dev, text, arrays, error, rows=scores.size // n, n=n, ignored=ignored)


_typed = of_types(VarType.FP32, Label=[VarType.INT64])


def _hard(node: Node) -> bool:
    """Tell whether labels are int64 classes and everything else is float32."""
    return _typed(node) and not node.attrs.get("soft_label")


_of_rows = partial(kernel, on=("numba",), takes=_hard, gapless=True)


@_of_rows("cross_entropy")
def cross_entropy(dev: Device, a: ops.CrossEntropy) -> list[Step]:
    """-log of the probability that the label picks."""
    return _loss(dev, "cross_entropy", a, None)


@_of_rows("cross_entropy2")
def cross_entropy2(dev: Device, a: ops.CrossEntropy2) -> list[Step]:
    """The same, and the probability itself for the backward pass."""
    return _loss(dev, "cross_entropy2", a, a.match_x)


def _loss(
    dev: Device, op: str, a: ops.CrossEntropy | ops.CrossEntropy2, match: Array | None
) -> list[Step]:
    match = dev.scratch(a.y.shape, a.y.dtype) if match is None else match
    return _bound(dev, _LOSS, op, a.label, a.x, a.ignore_index, x=a.x, y=a.y, match=match)


@_of_rows("cross_entropy_grad")
def cross_entropy_grad(dev: Device, a: ops.CrossEntropyGrad) -> list[Step]:
    """-d / probability, at the label."""
    operands = {"picked": a.x, "d": a.d_y, "out": a.d_x}
    text = _SLOPE.format(at="r * n + label")
    return _bound(dev, text, "cross_entropy", a.label, a.x, a.ignore_index, **operands)


@_of_rows("cross_entropy_grad2")
def cross_entropy_grad2(dev: Device, a: ops.CrossEntropyGrad2) -> list[Step]:
    """-d / probability, from the probability that was kept."""
    operands = {"picked": a.match_x, "d": a.d_y, "out": a.d_x}
    text = _SLOPE.format(at="r")
    return _bound(dev, text, "cross_entropy2", a.label, a.d_x, a.ignore_index, **operands)
