"""Maximum pooling that tells where each maximum lies, its reverse, and pooling in several sizes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ...strategies.types import INTEGERS, VarType
from .conv import dimensions
from .operands import Gradient, Input, Operands, Output, Positive, Unary
from .pool import pooled
from .registry import Inference, Op, Spec, Specs, define, slope
from .rules import of_shape, product, same_shape
from .samples import sample


def indexed_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] to [N, C, oh, ow]; Mask is where each maximum lies among the elements of its channel."""
    x, rank = op.spec("X"), dimensions(op) + 2
    op.require(len(x.shape) == rank, f"X must have {rank} dimensions")
    shape = (*x.shape[:2], *pooled(op, x.shape[2:], op.attr("paddings"), "EXPLICIT"))
    return {"Out": of_shape(shape, x), "Mask": Spec(shape, VarType.INT32)}


def unpooled_shape(op: Inference) -> Mapping[str, Specs]:
    """Zeros but for X, whose elements go to Indices; as large as what a pooling would make X of."""
    x, rank = op.spec("X"), dimensions(op) + 2
    op.require(len(x.shape) == rank, f"X must have {rank} dimensions")
    same_shape(op, "X", "Indices")
    op.require(op.spec("Indices").dtype in INTEGERS, "Indices must hold integers")
    numbers = (op.attr(name) for name in ("ksize", "strides", "paddings"))
    sides = zip(x.shape[2:], *numbers, strict=True)
    dims = [-1 if n < 0 else (n - 1) * stride - 2 * pad + k for n, k, stride, pad in sides]
    dims = list(op.attr("output_size")) or dims
    op.require(len(dims) == rank - 2, f"output_size must have {rank - 2} numbers, got {dims}")
    op.require(all(n > 0 or n == -1 for n in dims), f"the result has no elements: {dims}")
    return {"Out": of_shape((*x.shape[:2], *dims), x)}


def pyramid_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] to [N, C * (1 + 4 + 16 + ...)]: every level has twice as many windows each way."""
    x, height = op.spec("X"), op.attr("pyramid_height")
    op.require(len(x.shape) == 4, "X must have 4 dimensions")
    for level, size in ((i, n) for i in range(height) for n in x.shape[2:] if n >= 0):
        pad, k = level_padding(size, level), -(-size // 2**level)
        op.require(
            pad < k and (2**level - 1) * k - pad < size,
            f"size {size} is too small for the {2**level} windows of pyramid_height {height}",
        )
    return {"Out": of_shape((x.shape[0], product((x.shape[1], (4**height - 1) // 3))), x)}


def level_padding(size: int, level: int) -> int:
    """Return the padding on both sides of images with which 2 ** level windows of one size cover them."""
    count = 2**level
    return (-(-size // count) * count - size + 1) // 2


class MaxPool(Unary):
    mask: Output
    ksize: Sequence[int] = [1, 1]
    global_pooling: bool = False
    adaptive: bool = False
    strides: Sequence[int] = [1, 1]
    paddings: Sequence[int] = [0, 0]
    ceil_mode: bool = False


class MaxPoolGrad(MaxPool, Gradient, reads="x mask"): ...


class _InThreeDimensions(Operands):
    ksize: Sequence[int] = [1, 1, 1]
    strides: Sequence[int] = [1, 1, 1]
    paddings: Sequence[int] = [0, 0, 0]


class MaxPool3d(_InThreeDimensions, MaxPool): ...


class Unpool(Operands):
    x: Input
    indices: Input
    ksize: Sequence[int] = [1, 1]
    strides: Sequence[int] = [1, 1]
    paddings: Sequence[int] = [0, 0]
    unpooling_type: Literal["max"] = "max"
    output_size: Sequence[int] = []
    out: Output


class UnpoolGrad(Unpool, reads="* out"):
    d_out: Input
    d_x: Output


class Unpool3d(_InThreeDimensions, Unpool): ...


class Pyramid(Unary):
    pyramid_height: Positive = 1
    pooling_type: Literal["max", "avg"] = "max"


class PyramidGrad(Pyramid, Gradient, reads="x out"): ...


_SAMPLES = (
    sample("X [2 3 6 4]", ksize=[2, 2], strides=[2, 2]),
    sample("X [1 2 5 6]", ksize=[3, 2], strides=[1, 2], paddings=[1, 0]),
    sample("X [1 2 5 7]", ksize=[2, 3], adaptive=True),
    sample("X [2 2 3 4]", global_pooling=True),
    sample("X [1 2 5 5]", ksize=[2, 2], strides=[2, 2], ceil_mode=True),
)
_OF_VOLUMES = (
    sample("X [1 2 4 3 4]", ksize=[2, 2, 3], strides=[2, 1, 1], paddings=[0, 1, 1]),
    sample("X [1 2 3 4 5]", ksize=[2, 2, 3], adaptive=True),
)
_REFUSES = (
    sample("X [1 1 3 3]", ksize=[5, 5]),
    sample("X [1 1 3 3]", ksize=[2, 2], paddings=[-1, 0]),
)

define(
    "max_pool2d_with_index",
    MaxPool,
    indexed_shape,
    samples=_SAMPLES,
    refuses=_REFUSES,
    slope=Op("max_pool2d_with_index_grad", MaxPoolGrad, shapes_of=("X",)),
)
define(
    "max_pool3d_with_index",
    MaxPool3d,
    indexed_shape,
    samples=_OF_VOLUMES,
    refuses=_REFUSES,
    slope=slope("(x) mask d_out", "d_x"),
)
define(
    "unpool",
    Unpool,
    unpooled_shape,
    samples=(
        sample("X [2 3 1 1], Indices 0:12 [2 3 1 1]", ksize=[3, 4], strides=[2, 2]),
        sample("X [2 2 1 1], Indices 0:20 [2 2 1 1]", ksize=[3, 3], output_size=[4, 5]),
    ),
    refuses=(
        sample("X [1 1 2 2], Indices 0:1 [1 1 2 3]"),
        sample("X [1 1 2 2], Indices [1 1 2 2]"),
    ),
    slope=Op("unpool_grad", UnpoolGrad, shapes_of=("X", "Out")),
)
define(
    "unpool3d",
    Unpool3d,
    unpooled_shape,
    samples=(sample("X [2 3 1 1 1], Indices 0:12 [2 3 1 1 1]", ksize=[2, 2, 3]),),
    refuses=(sample("X [1 1 2 2], Indices 0:1 [1 1 2 2]"),),
    slope=slope("(x) indices (out) d_out", "d_x"),
)
define(
    "spp",
    Pyramid,
    pyramid_shape,
    samples=(
        sample("X [2 2 5 4]", pyramid_height=2),
        sample("X [2 2 7 6]", pyramid_height=3, pooling_type="avg"),
    ),
    refuses=(sample("X [1 1 5 7]", pyramid_height=3),),
    slope=Op("spp_grad", PyramidGrad),
)
