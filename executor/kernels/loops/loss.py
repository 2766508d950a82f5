"""Cross entropy of probabilities with integer labels, forward and backward, as compiled loops over rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....strategies.errors import InvalidValue
from ....strategies.types import VarType
from ...codegen.native import launch
from ...codegen.scalar_math import definitions
from ...device.device import Device
from ..array.loss import cross_entropy as loss_of_arrays
from ..array.loss import cross_entropy2 as loss2_of_arrays
from ..array.loss import cross_entropy_grad as grad_of_arrays
from ..array.loss import cross_entropy_grad2 as grad2_of_arrays
from ..registry import Step, kernel

# ``match`` is what a label picked of its row; the logarithm of 0 is cut off as in ``loss.py``.
_LOSS = """
def run(words):
    labels, wrong, rows, n, ignored = i64(words[0]), i64(words[1]), words[2], words[3], words[4]
    x, y, match = f32(words[5]), f32(words[6]), f32(words[7])
    floor = np.float32(-1e20)
    wrong[0] = 0
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
def run(words):
    labels, wrong, rows, n, ignored = i64(words[0]), i64(words[1]), words[2], words[3], words[4]
    picked, d, out = f32(words[5]), f32(words[6]), f32(words[7])
    wrong[0] = 0
    for i in range(rows * n):
        out[i] = np.float32(0.0)
    for r in range(rows):
        label = labels[r]
        if 0 <= label < n and label != ignored:
            out[r * n + label] = -d[r] / picked[{at}]
        elif label != ignored:
            wrong[0], wrong[1] = 1, label
"""


def _bound(text: str, op: str, label: Any, scores: Any, ignore: int, held: list[Any]) -> list[Step]:
    """Return the loop, and the check that every label was a class."""
    n, wrong = scores.shape[-1], np.zeros(2, np.int64)

    def check() -> None:
        if wrong[0]:
            raise InvalidValue(
                f"{op}: label {int(wrong[1])} is outside the {n} classes (0 to {n - 1})"
            )

    words = [label.ctypes.data, wrong.ctypes.data, scores.size // n, n, ignore]
    words += [array.ctypes.data for array in held]
    return [launch(definitions(text) + text, words, label, wrong, *held), check]


def _hard(node: Node) -> bool:
    """Tell whether labels are int64 classes and everything else is float32."""
    labels = node.inputs["Label"]
    values = [*node.reads(), *node.writes()]
    typed = all(v.spec.dtype == (VarType.INT64 if v in labels else VarType.FP32) for v in values)
    return typed and not node.attrs.get("soft_label")


def _whole(*arrays: Any) -> bool:
    return all(a is None or (a.flags.c_contiguous and a.size) for a in arrays)


@kernel("cross_entropy", on=("numba",), takes=_hard)
def cross_entropy(
    dev: Device, x: Any, label: Any, y: Any, *, soft_label: bool, ignore_index: int
) -> list[Step]:
    """-log of the probability that the label picks."""
    if not _whole(x, label, y):
        return loss_of_arrays(dev, x, label, y, soft_label=soft_label, ignore_index=ignore_index)
    match = dev.scratch(y.shape, y.dtype)
    return _bound(_LOSS, "cross_entropy", label, x, ignore_index, [x, y, match])


@kernel("cross_entropy_grad", on=("numba",), takes=_hard)
def cross_entropy_grad(
    dev: Device, x: Any, label: Any, d_y: Any, d_x: Any, *, soft_label: bool, ignore_index: int
) -> list[Step]:
    """-d / probability, at the label."""
    if d_x is None or not _whole(x, label, d_y, d_x):
        given = {"soft_label": soft_label, "ignore_index": ignore_index}
        return grad_of_arrays(dev, x, label, d_y, d_x, **given)
    text = _SLOPE.format(at="r * n + label")
    return _bound(text, "cross_entropy", label, x, ignore_index, [x, d_y, d_x])


@kernel("cross_entropy2", on=("numba",), takes=_hard)
def cross_entropy2(
    dev: Device, x: Any, label: Any, y: Any, match_x: Any, *, ignore_index: int
) -> list[Step]:
    """The same, and the probability itself for the backward pass."""
    if not _whole(x, label, y, match_x):
        return [loss2_of_arrays(dev, x, label, y, match_x, ignore_index=ignore_index)]
    match = dev.scratch(y.shape, y.dtype) if match_x is None else match_x
    return _bound(_LOSS, "cross_entropy2", label, x, ignore_index, [x, y, match])


@kernel("cross_entropy_grad2", on=("numba",), takes=_hard)
def cross_entropy_grad2(
    dev: Device, label: Any, match_x: Any, d_y: Any, d_x: Any, *, ignore_index: int
) -> list[Step]:
    """-d / probability, from the probability that was kept."""
    if d_x is None or not _whole(label, match_x, d_y, d_x):
        return grad2_of_arrays(dev, label, match_x, d_y, d_x, ignore_index=ignore_index)
    text = _SLOPE.format(at="r")
    return _bound(text, "cross_entropy2", label, d_x, ignore_index, [match_x, d_y, d_x])
