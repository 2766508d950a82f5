"""Means over the pixels that bins of regions touch, channel by channel, in compiled loops.

Which pixels these are follows from the regions, step by step. Legend: R regions, C channels, P and Q bins, H
and W pixels.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops.operands import Array
from ....graph.ops.region_pool import PsroiPool, PsroiPoolGrad
from ....strategies.types import VarType
from ...codegen.text_loops import bind_text, named
from ...device.device import Device
from ..array.region_pool import images_of, touched
from ..registry import Step, by_arrays, kernel, of_types
from .spans import readable

_BINS = """
    for r in range(R):
        for k in range(C * P * Q):
            p, q = k // Q % P, k % Q
            top, bottom = tops[r * P + p], bottoms[r * P + p]
            left, right = lefts[r * Q + q], rights[r * Q + q]
            plane, to = (images[r] * C * P * Q + k) * H * W, r * C * P * Q + k
            size = np.float32(max((bottom - top) * (right - left), 1))
            {body}
"""
_MEAN = _BINS.format(
    body="""
            total = np.float32(0)
            for h in range(top, bottom):
                for w in range(left, right):
                    total += x[plane + h * W + w]
            out[to] = total / size
"""
)
_MEAN_GRAD = _BINS.format(
    body="""
            share = d_out[to] / size
            for h in range(top, bottom):
                for w in range(left, right):
                    d_x[plane + h * W + w] += share
"""
)


_loop = partial(kernel, on=("llvm",), takes=of_types(VarType.FP32, VarType.INT32, VarType.INT64))


def _run(text: str, a: PsroiPool | PsroiPoolGrad, **arrays: Array) -> None:
    (tops, bottoms), (lefts, rights) = touched(a)
    bins = named("tops bottoms lefts rights", (tops, bottoms, lefts, rights))
    bins = {name: np.ascontiguousarray(edges) for name, edges in bins.items()}
    _, planes, height, width = a.x.shape
    rows, columns = a.pooled_height, a.pooled_width
    sizes = (len(a.rois), planes // (rows * columns), rows, columns, height, width)
    images = images_of("psroi_pool", a)
    bind_text(text, {**arrays, **bins, "images": images}, **named("R C P Q H W", sizes))()


@_loop("psroi_pool")
def psroi_pool(dev: Device, a: PsroiPool) -> Step | list[Step]:
    if not readable(a.x, a.out):
        return by_arrays("psroi_pool", dev, a)
    return partial(_run, _MEAN, a, x=a.x, out=a.out)


@_loop("psroi_pool_grad")
def psroi_pool_grad(dev: Device, a: PsroiPoolGrad) -> list[Step]:
    if a.d_x is None or not readable(a.d_out, a.d_x):
        return by_arrays("psroi_pool_grad", dev, a)
    return [partial(a.d_x.fill, 0), partial(_run, _MEAN_GRAD, a, d_out=a.d_out, d_x=a.d_x)]
