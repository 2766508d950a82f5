"""Windows of images as columns."""

from __future__ import annotations

from collections.abc import Sequence

from .operands import Input, Operands, Output
from .registry import Op, define
from .samples import sample
from .shapes import Sized, numbers


class Unfold(Operands):
    x: Input
    kernel_sizes: Sequence[int] = []
    strides: Sequence[int] = []
    paddings: Sequence[int] = []
    dilations: Sequence[int] = []
    y: Output


class UnfoldGrad(Unfold, reads="x"):
    d_y: Input
    d_x: Output


define(
    "unfold",
    Unfold,
    Sized(
        "X [N C H W] -> Y [N columns windows]",
        "len(X) == 4; X must have 4 dimensions",
        *numbers(2, 1, "kernel_sizes", "strides", "dilations"),
        *numbers(4, 0, "paddings"),
        "rooms = [n + a + b for n, a, b in zip(X[2:], paddings[:2], paddings[2:])]",
        "spans = [d * (k - 1) + 1 for k, d in zip(kernel_sizes, dilations)]",
        "counts = [(n - m) // step + 1 for n, m, step in zip(rooms, spans, strides)]",
        "every(count > 0 for count in counts); the windows do not fit",
        "columns, windows = X[1] * prod(kernel_sizes), prod(counts)",
    ),
    samples=(
        sample(
            "X [2 2 4 3]",
            kernel_sizes=[2, 2],
            strides=[1, 1],
            paddings=[0, 0, 0, 0],
            dilations=[1, 1],
        ),
        sample(
            "X [1 2 5 6]",
            kernel_sizes=[3, 2],
            strides=[2, 1],
            paddings=[1, 0, 2, 3],
            dilations=[1, 3],
        ),
    ),
    slope=Op("unfold_grad", UnfoldGrad, shapes_of=("X",)),
)
