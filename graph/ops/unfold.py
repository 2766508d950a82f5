"""Windows of images as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .operands import Input, Operands, Output
from .registry import Inference, Op, Specs, define
from .rules import of_shape, product
from .samples import normal, sample


def window_count(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return how many windows fit a dimension with ``padding`` on both sides together."""
    return (size + padding - dilation * (kernel - 1) - 1) // stride + 1 if size >= 0 else -1


def unfold_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] to [N, C * kh * kw, windows]."""
    x = op.spec("X")
    op.require(len(x.shape) == 4, "X must have 4 dimensions")
    kernel, strides, dilations = (op.attr(n) for n in ("kernel_sizes", "strides", "dilations"))
    paddings = op.attr("paddings")
    for name, numbers in (("kernel_sizes", kernel), ("strides", strides), ("dilations", dilations)):
        op.require(
            len(numbers) == 2 and min(numbers) > 0,
            f"{name} {list(numbers)} must be two above 0",
        )
    op.require(
        len(paddings) == 4 and min(paddings) >= 0, f"paddings {paddings} must be four, none below 0"
    )
    counts = tuple(
        window_count(x.shape[2 + i], kernel[i], strides[i], paddings[i] + paddings[2 + i], d)
        for i, d in enumerate(dilations)
    )
    op.require(0 not in counts and min(counts) >= -1, f"the windows do not fit {x.shape[2:]}")
    columns = product((x.shape[1], *kernel))
    return {"Y": of_shape((x.shape[0], columns, product(counts)), x)}


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
    unfold_shape,
    samples=(
        sample(
            {"X": normal(2, 2, 4, 3)},
            kernel_sizes=[2, 2],
            strides=[1, 1],
            paddings=[0, 0, 0, 0],
            dilations=[1, 1],
        ),
        sample(
            {"X": normal(1, 2, 5, 6)},
            kernel_sizes=[3, 2],
            strides=[2, 1],
            paddings=[1, 0, 2, 3],
            dilations=[1, 3],
        ),
    ),
    refuses=(
        sample(
            {"X": normal(1, 2, 2, 2)},
            kernel_sizes=[3, 3],
            strides=[1, 1],
            paddings=[0, 0, 0, 0],
            dilations=[1, 1],
        ),
        sample(
            {"X": normal(1, 2, 4, 4)},
            kernel_sizes=[3, 3],
            strides=[0, 1],
            paddings=[0, 0, 0, 0],
            dilations=[1, 1],
        ),
    ),
    slope=Op("unfold_grad", UnfoldGrad),
)
