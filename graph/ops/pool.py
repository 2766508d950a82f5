"""Pooling over images in NCHW."""

from __future__ import annotations

from collections.abc import Mapping

from .conv import window_paddings
from .registry import Grad, Inference, Op, Specs, define
from .rules import grads_like, of_shape
from .samples import normal, sample

POOL_ATTRS = {
    "pooling_type": "max",
    "ksize": [1, 1],
    "global_pooling": False,
    "strides": [1, 1],
    "paddings": [0, 0],
    "exclusive": True,
    "adaptive": False,
    "ceil_mode": False,
    "data_format": "NCHW",
    "padding_algorithm": "EXPLICIT",
    "is_test": False,
    "use_cudnn": False,
    "use_mkldnn": False,
    "use_quantizer": False,
}


def pool_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] to [N, C, oh, ow]."""
    x = op.spec("X")
    op.require(len(x.shape) == 4, "X must have 4 dimensions")
    op.require(
        op.attr("data_format") in ("NCHW", "AnyLayout"), "data_format other than NCHW is not built"
    )
    op.require(
        op.attr("pooling_type") in ("max", "avg"),
        f"pooling_type {op.attr('pooling_type')!r} is unknown",
    )
    k, strides = op.attr("ksize"), op.attr("strides")
    if op.attr("global_pooling"):
        return {"Out": of_shape((*x.shape[:2], 1, 1), x)}
    op.require(min(k) > 0 and min(strides) > 0, "ksize and strides must be above 0")
    if op.attr("adaptive"):
        divides = all(d < 0 or d % n == 0 for d, n in zip(x.shape[2:], k, strict=True))
        op.require(divides, f"adaptive pooling to {k} is built for image sizes that it divides")
        return {"Out": of_shape((*x.shape[:2], *k), x)}
    pads = window_paddings(
        op.attr("paddings"), op.attr("padding_algorithm"), x.shape[2:], k, strides
    )
    dims = []
    for size, pad, window, stride in zip(x.shape[2:], pads, k, strides, strict=True):
        room = size + sum(pad) - window
        steps = -(-room // stride) if op.attr("ceil_mode") else room // stride
        op.require(size < 0 or steps >= 0, f"the window {k} is larger than the padded image")
        dims.append(-1 if size < 0 else steps + 1)
    return {"Out": of_shape((*x.shape[:2], *dims), x)}


define(
    Op(
        type="pool2d",
        inputs=("X",),
        outputs=("Out",),
        attrs=POOL_ATTRS,
        shape=pool_shape,
        grad=Grad("pool2d_grad", ("X", "Out", "Out@GRAD"), ("X@GRAD",)),
        samples=(
            sample({"X": normal(2, 3, 6, 6)}, ksize=[2, 2], strides=[2, 2]),
            sample({"X": normal(2, 3, 7, 6)}, ksize=[3, 3], strides=[2, 2], paddings=[1, 1]),
            sample({"X": normal(2, 2, 7, 6)}, ksize=[3, 2], strides=[2, 2], ceil_mode=True),
            sample({"X": normal(2, 3, 6, 6)}, ksize=[2, 2], strides=[2, 2], pooling_type="avg"),
            sample({"X": normal(1, 2, 5, 5)}, ksize=[3, 3], paddings=[1, 1], pooling_type="avg"),
            sample(
                {"X": normal(1, 2, 5, 5)},
                ksize=[3, 3],
                paddings=[1, 1],
                pooling_type="avg",
                exclusive=False,
            ),
            sample({"X": normal(2, 3, 4, 5)}, global_pooling=True, pooling_type="avg"),
            sample({"X": normal(2, 3, 4, 4)}, ksize=[2, 2], adaptive=True, pooling_type="avg"),
        ),
        refuses=(sample({"X": normal(1, 1, 3, 3)}, ksize=[5, 5]),),
    )
)
define(
    Op(
        type="pool2d_grad",
        inputs=("X", "Out", "Out@GRAD"),
        outputs=("X@GRAD",),
        attrs=POOL_ATTRS,
        shape=grads_like("X"),
    )
)
