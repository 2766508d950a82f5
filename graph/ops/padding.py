"""Ops that put a margin around a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from .operands import Input, Operands, Output, Unary, named
from .registry import Inference, Op, Specs, define, slope
from .rules import of_shape
from .samples import normal, sample

Shape = tuple[int, ...]


def _widened(shape: Shape, margins: Sequence[int], sign: int = 1) -> Shape:
    """Add (or take) the two margins of each dimension; unknown sizes stay unknown."""
    pairs = zip(shape, margins[::2], margins[1::2], strict=True)
    return tuple(size if size < 0 else size + sign * (low + high) for size, low, high in pairs)


def _margins(op: Inference, rank: int) -> list[int]:
    margins = list(op.attr("paddings"))
    op.require(
        len(margins) == 2 * rank, f"paddings {margins} must be two for each of {rank} dimensions"
    )
    op.require(min(margins, default=0) >= 0, f"paddings {margins} must not be below 0")
    return margins


def pad_shape(op: Inference) -> Mapping[str, Specs]:
    """Dimension i grows by ``paddings[2 i]`` in front and ``paddings[2 i + 1]`` behind."""
    x = op.spec("X")
    return {"Out": of_shape(_widened(x.shape, _margins(op, len(x.shape))), x)}


def pad_grad_shape(op: Inference) -> Mapping[str, Specs]:
    """The shape of Out without its margins."""
    d_out = op.spec("Out@GRAD")
    margins = _margins(op, len(d_out.shape))
    return {"X@GRAD": of_shape(_widened(d_out.shape, margins, -1), d_out)}


class Pad(Unary):
    paddings: Sequence[int] = []
    pad_value: float = 0.0


define(
    "pad",
    Pad,
    pad_shape,
    linear=("X",),
    made_linear={"pad_value": 0.0},
    samples=(sample({"X": normal(2, 3)}, paddings=[0, 1, 2, 0], pad_value=9.0),),
    refuses=(
        sample({"X": normal(2, 3)}, paddings=[0, 1]),
        sample({"X": normal(2, 3)}, paddings=[0, -1, 0, 0]),
    ),
    slope=slope("d_out", "d_x", shape=pad_grad_shape),
)


def image_axis(data_format: str) -> int:
    """Return the first of the two image dimensions."""
    return 2 if data_format == "NCHW" else 1


def pad2d_shape(op: Inference) -> Mapping[str, Specs]:
    """Height and width grow by ``paddings``: top, bottom, left, right."""
    x, mode, layout = op.spec("X"), op.attr("mode"), op.attr("data_format")
    op.require(len(x.shape) == 4, "X must have 4 dimensions")
    margins = _margins(op, 2)
    first = image_axis(layout)
    image = x.shape[first : first + 2]
    for i, size in enumerate(image):
        widest = max(margins[2 * i : 2 * i + 2])
        fits = size < 0 or mode == "constant" or widest < size + (mode == "edge") * widest
        op.require(fits and size != 0, f"paddings {margins} do not fit a {mode} of {size} elements")
    shape = (*x.shape[:first], *_widened(image, margins), *x.shape[first + 2 :])
    return {"Out": of_shape(shape, x)}


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
    pad2d_shape,
    linear=("X",),
    made_linear={"pad_value": 0.0},
    numbers={"Paddings": "paddings"},
    samples=(
        sample({"X": normal(1, 2, 2, 3)}, paddings=[1, 0, 1, 2], pad_value=9.0),
        sample({"X": normal(2, 2, 3, 17)}, paddings=[0, 1, 2, 1]),
        sample({"X": normal(2, 1, 3, 3)}, paddings=[1, 2, 2, 1], mode="reflect"),
        sample({"X": normal(1, 2, 3, 2)}, paddings=[3, 0, 1, 2], mode="edge", data_format="NHWC"),
    ),
    refuses=(
        sample({"X": normal(1, 1, 2, 3)}, paddings=[2, 0, 0, 0], mode="reflect"),
        sample({"X": normal(1, 2, 3)}, paddings=[1, 0, 0, 0]),
        sample({"X": normal(1, 1, 2, 3)}, paddings=[-1, 0, 0, 0]),
    ),
    slope=Op("pad2d_grad", Pad2dGrad, numbers={"Paddings": "paddings"}, shapes_of=("X",)),
)
