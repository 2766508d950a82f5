"""Pooling over images in NCHW or NHWC, and over volumes in NCDHW or NDHWC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from .conv import as_given, check_images, window_paddings
from .operands import Operands, SlopeOfBoth, Unary
from .registry import Inference, Specs, define, slope
from .rules import of_shape
from .samples import sample


def pool_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] to [N, C, oh, ow], or with channels last."""
    n, c, *image = check_images(op, "X")
    pads = (op.attr("paddings"), op.attr("padding_algorithm"))
    result = (n, c, *pooled(op, image, *pads))
    return {"Out": of_shape(as_given(result, op.attr("data_format")), op.spec("X"))}


def pooled(
    op: Inference, image: Sequence[int], paddings: Sequence[int], algorithm: str
) -> list[int]:
    """Return the sizes of the result."""
    k, strides = op.attr("ksize"), op.attr("strides")
    if op.attr("global_pooling"):
        return list(image) if op.attr("adaptive") else [1] * len(image)
    op.require(min(*k, *strides) > 0, "ksize and strides must be above 0")
    op.require(min(paddings) >= 0, f"paddings={list(paddings)} must not be negative")
    if op.attr("adaptive"):
        return list(k)
    pads = window_paddings(paddings, algorithm, image, k, strides)
    dims = []
    for size, pad, window, stride in zip(image, pads, k, strides, strict=True):
        room = size + sum(pad) - window + (stride - 1 if op.attr("ceil_mode") else 0)
        # As in Paddle, a window that is larger than the padded image, by less than its stride, sees all of it.
        op.require(size < 0 or room > -stride, f"the window {k} is larger than the padded image")
        dims.append(-1 if size < 0 else max(room, 0) // stride + 1)
    return dims


class PoolAttributes(Operands):
    pooling_type: Literal["max", "avg"] = "max"
    ksize: Sequence[int] = [1, 1]
    global_pooling: bool = False
    strides: Sequence[int] = [1, 1]
    paddings: Sequence[int] = [0, 0]
    exclusive: bool = True
    adaptive: bool = False
    ceil_mode: bool = False
    data_format: str = "NCHW"
    padding_algorithm: str = "EXPLICIT"
    use_cudnn: bool = False
    use_mkldnn: bool = False


class Pool(Unary, PoolAttributes): ...


class PoolGrad(SlopeOfBoth, PoolAttributes): ...


class Pool2d(Pool):
    is_test: bool = False
    use_quantizer: bool = False


class Pool3d(Pool):
    ksize: Sequence[int] = [1, 1, 1]
    strides: Sequence[int] = [1, 1, 1]
    paddings: Sequence[int] = [0, 0, 0]
    data_format: str = "NCDHW"


define(
    "pool2d",
    Pool2d,
    pool_shape,
    samples=(
        sample("X [2 3 6 6]", ksize=[2, 2], strides=[2, 2]),
        sample("X [2 3 7 6]", ksize=[3, 3], strides=[2, 2], paddings=[1, 1]),
        sample("X [2 2 7 6]", ksize=[3, 2], strides=[2, 2], ceil_mode=True),
        sample("X [2 3 6 6]", ksize=[2, 2], strides=[2, 2], pooling_type="avg"),
        sample("X [1 2 5 5]", ksize=[3, 3], paddings=[1, 1], pooling_type="avg"),
        sample("X [1 2 5 5]", ksize=[3, 3], paddings=[1, 1], pooling_type="avg", exclusive=False),
        sample("X [2 3 4 5]", global_pooling=True, pooling_type="avg"),
        sample("X [2 2 5 4]", ksize=[3, 4], pooling_type="avg", strides=[3, 1]),
        sample("X [2 3 4 4]", ksize=[2, 2], adaptive=True, pooling_type="avg"),
        sample("X [2 3 5 7]", ksize=[2, 3], adaptive=True, pooling_type="avg"),
        sample("X [2 3 5 7]", ksize=[3, 2], adaptive=True),
        sample(
            "X [2 6 5 4]",
            ksize=[3, 2],
            strides=[2, 2],
            paddings=[1, 0, 1, 0],
            data_format="NHWC",
            pooling_type="avg",
        ),
        sample("X [2 4 5 3]", ksize=[2, 2], data_format="NHWC", ceil_mode=True),
        sample("X [2 2 6 5]", ksize=[7, 7], strides=[7, 7], pooling_type="avg"),
        sample("X [2 2 6 5]", ksize=[7, 3], strides=[2, 2]),
    ),
    refuses=(
        sample("X [1 1 3 3]", ksize=[5, 5]),
        sample("X [1 1 6 6]", ksize=[8, 2], strides=[2, 2]),
    ),
    slope=slope("x out d_out", "d_x"),
)
define(
    "pool3d",
    Pool3d,
    pool_shape,
    samples=(
        sample("X [2 2 4 3 5]", ksize=[2, 2, 3], strides=[2, 1, 2]),
        sample(
            "X [1 2 3 4 3]",
            ksize=[2, 3, 2],
            strides=[1, 2, 2],
            paddings=[1, 0, 1, 1, 0, 1],
            pooling_type="avg",
        ),
        sample(
            "X [1 2 3 4 4]",
            ksize=[2, 2, 2],
            strides=[2, 2, 2],
            paddings=[0, 0, 1],
            pooling_type="avg",
            exclusive=False,
            ceil_mode=True,
        ),
        sample("X [2 2 2 3 2]", global_pooling=True, pooling_type="avg"),
        sample("X [1 2 3 4 5]", ksize=[2, 2, 3], adaptive=True, pooling_type="avg"),
        sample("X [1 2 3 4 5]", ksize=[2, 3, 2], adaptive=True),
        sample(
            "X [2 3 4 3 2]",
            ksize=[2, 2, 2],
            strides=[2, 1, 2],
            padding_algorithm="SAME",
            data_format="NDHWC",
        ),
    ),
    refuses=(
        sample("X [1 1 3 3 3]", ksize=[5, 2, 2]),
        sample("X [1 1 3 3]", ksize=[2, 2, 2]),
        sample("X [1 1 3 3 3]", ksize=[2, 2]),
    ),
    slope=slope("x out d_out", "d_x"),
)
