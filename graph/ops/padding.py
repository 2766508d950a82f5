"""Ops that put a margin around a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .operands import Input, Operands, Output, Unary, named
from .registry import Op, define, slope
from .samples import sample
from .shapes import Sized


def _padded(line: str, sizes: str = "n", sign: str = "+") -> Sized:
    """Return the rule that sizes of a line become ``padded``: two of ``paddings`` more (or less) each."""
    return Sized(
        line,
        f"len(paddings) == 2 * len({sizes}); paddings must be two for each dimension",
        "every(pad >= 0 for pad in paddings); paddings must not be negative",
        f"sides = [*zip({sizes}, paddings[::2], paddings[1::2])]",
        f"padded = [size {sign} (low + high) for size, low, high in sides]",
    )


class Pad(Unary):
    paddings: Sequence[int] = []
    pad_value: float = 0.0


define(
    "pad",
    Pad,
    _padded("X [*n] -> Out [*padded]"),
    linear=("X",),
    made_linear={"pad_value": 0.0},
    samples=(sample("X [2 3]", paddings=[0, 1, 2, 0], pad_value=9.0),),
    refuses=(sample("X [2 3]", paddings=[0, 1]), sample("X [2 3]", paddings=[0, -1, 0, 0])),
    slope=slope("d_out", "d_x", shape=_padded("Out@GRAD [*n] -> X@GRAD [*padded]", sign="-")),
)


def image_axis(data_format: str) -> int:
    """Return the first of the two image dimensions."""
    return 2 if data_format == "NCHW" else 1


_IMAGES = {
    layout: _padded(line, "(H, W)").extended(
        "->",
        "every(size != 0 for size in (H, W)); there is nothing to pad",
        "mode != 'reflect' or every([max(paddings[:2]) < H, max(paddings[2:]) < W]); "
        "images must be larger than the paddings that reflect them",
    )
    for layout, line in (
        ("NCHW", "X [N C H W] -> Out [N C *padded]"),
        ("NHWC", "X [N H W C] -> Out [N *padded C]"),
    )
}


class Pad2d(Operands):
    x: Input
    paddings_tensor: Input | None = named("Paddings")
    paddings: Sequence[int] = [0, 0, 0, 0]
    pad_value: float = 0.0
    mode: Literal["constant", "reflect", "edge"] = "constant"
    data_format: Literal["NCHW", "NHWC"] = "NCHW"
    out: Output


class Pad2dGrad(Pad2d, reads="*"):
    d_out: Input
    d_x: Output


define(
    "pad2d",
    Pad2d,
    lambda op: _IMAGES[op.attr("data_format")](op),
    linear=("X",),
    made_linear={"pad_value": 0.0},
    numbers={"Paddings": "paddings"},
    samples=(
        sample("X [1 2 2 3]", paddings=[1, 0, 1, 2], pad_value=9.0),
        sample("X [2 2 3 17]", paddings=[0, 1, 2, 1]),
        sample("X [2 1 3 3]", paddings=[1, 2, 2, 1], mode="reflect"),
        sample("X [1 2 3 2]", paddings=[3, 0, 1, 2], mode="edge", data_format="NHWC"),
    ),
    refuses=(
        sample("X [1 1 2 3]", paddings=[2, 0, 0, 0], mode="reflect"),
        sample("X [1 2 3]", paddings=[1, 0, 0, 0]),
        sample("X [1 1 2 3]", paddings=[-1, 0, 0, 0]),
    ),
    slope=Op("pad2d_grad", Pad2dGrad, numbers={"Paddings": "paddings"}, shapes_of=("X",)),
)
