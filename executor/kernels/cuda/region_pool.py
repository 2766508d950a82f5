"""Pools over regions on a GPU: weights of bins and their windows first, then a thread for each bin, or pixel.

A pixel gathers its gradient from the regions of its image, in their order: the same bits in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import region_pool as ops
from ....graph.ops.operands import Array
from ....strategies.errors import SequenceError
from ...codegen.cuda_launches import (
    BLOCK,
    Argument,
    Maybe,
    call,
    enough_blocks,
    ints,
    read,
    refusal,
    written,
)
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..registry import kernel
from .support import of_same_float

_INCLUDES = ("reduce.cuh", "assert.cuh", "regions.cuh")
_TOGETHER = 8  # channels of a pixel that a thread takes

_on = partial(kernel, on=("cuda",), takes=of_same_float)


class _Regions:
    """Where the bins of all regions lie on their images, as ``how`` of ``regions.cuh`` has it.

    ``ends``: offsets of the regions of each image, or (``counted``) how many each has. ``shift`` is subtracted
    from edges, in pixels. ``slopes``: weights have slopes, too. ``step`` writes all of it, into scratch.

    Raises:
        SequenceError: there are not as many sequences as images.
    """

    def __init__(
        self,
        dev: Device,
        op: str,
        how: str,
        a: ops.Bins,
        images: Array,
        ends: Array,
        *,
        counted: bool = False,
        sampling: int = 0,
        shift: float = 0.0,
        slopes: bool = False,
    ) -> None:
        self._dev, self._how, self._kind, regions = dev, how, c_type(images.dtype), len(a.rois)
        sequences = len(ends) - (not counted)
        if sequences != len(images):
            raise SequenceError(
                f"{op}: ROIs has {sequences} sequences, and X has {len(images)} images. Feed as many sequences "
                f"of ROIs as images."
            )
        height, width = images.shape[2:]
        rows, columns = (a.pooled_height, height), (a.pooled_width, width)
        self.image, self.starts = (dev.scratch((n,), np.int32) for n in (regions, len(images) + 1))
        self._windows = dev.scratch((regions, rows[0] + columns[0], 2), np.int32)
        self._weights, self._slopes = (
            [dev.scratch((*many, *shape), images.dtype) if wanted else None for shape in (rows, columns)]
            for many, wanted in (((regions,), how != "LARGEST"), ((2, regions), slopes))
        )  # fmt: skip
        self._like = images
        self._sizes = ints(bins_h=rows[0], bins_w=columns[0], height=height, width=width)
        all_regions = f"{op}: ROIs has {regions} rows, and {{}} of them belong to an image each"
        odd = refusal(
            dev,
            f"{op}: region {{}} of ROIs is nan or infinite. What it was computed from was not finite: the "
            f"training may have diverged. FLAGS_check_nan_inf names the op that makes NaN.",
        )
        arguments = [
            *read(rois=a.rois, ends=ends),
            *written(image=self.image, starts=self.starts, windows=self._windows),
            *self._weighed(written),
            *refusal(dev, all_regions),
            *ints(of_region=odd[-1][1], regions=regions, images=len(images)),
            *self._sizes,
            *ints(sampling=sampling),
            ("double scale", a.spatial_scale),
            ("double shift", shift),
        ]
        kinds = (str(counted).lower(), self._kind, c_type(ends.dtype))
        self.step = self._step(
            "place_regions", kinds, arguments, max(self._windows.size, len(images) + 1)
        )

    def _weighed(
        self, declare: Callable[..., list[Argument]], slopes: bool = True
    ) -> list[Argument]:
        """Return the parameters of weights, and of their slopes."""
        named = dict(zip(("rows", "columns"), self._weights, strict=True))
        if slopes:
            named |= zip(("row_slopes", "column_slopes"), self._slopes, strict=True)
        return declare(**{name: Maybe(array, self._like) for name, array in named.items()})

    def _step(
        self, function: str, kinds: tuple[str, ...], arguments: list[Argument], work: int
    ) -> Step:
        blocks = enough_blocks(self._dev, work)
        return call(self._dev, function, (self._how, *kinds), arguments, blocks, _INCLUDES)

    def pooled(
        self, x: Array, out: Array, places: Array | None = None, positions: bool = False
    ) -> list[Step]:
        """Return the calls that write the results of all bins, and (None: nowhere) the places of maxima."""
        arguments = [
            *read(x=x, image=self.image, windows=self._windows),
            *self._weighed(read, slopes=False),
            *written(out=out),
            ("long long* places", places),
            *ints(regions=len(out), channels=out.shape[1]),
            *self._sizes,
        ]
        kinds = (str(positions).lower(), self._kind)
        return [self.step, self._step("pool_regions", kinds, arguments, out.size)]

    def spread(
        self, d_out: Array, d_x: Any, places: Array | None = None, positions: bool = False
    ) -> Step:
        """Return the call that writes the gradient of the images."""
        images, channels, height, width = d_x.shape
        together = 1 if positions else min(_TOGETHER, channels)
        arguments = [
            *read(d_out=d_out),
            ("const long long* places", places),
            *read(starts=self.starts, windows=self._windows),
            *self._weighed(read, slopes=False),
            *written(d_x=d_x),
            *ints(images=images, channels=channels),
            *self._sizes,
        ]
        work = images * -(-channels // together) * height * width
        kinds = (str(positions).lower(), str(together), self._kind)
        return self._step("spread_regions", kinds, arguments, work)

    def edges(self, x: Array, d_out: Array, d_rois: Any, scale: float) -> Step:
        """Return the call that writes the gradient of the regions."""
        arguments = [
            *read(x=x, d_out=d_out, image=self.image, windows=self._windows),
            *self._weighed(read),
            *written(d_rois=d_rois),
            *ints(regions=len(d_rois), channels=x.shape[1]),
            *self._sizes,
            ("double scale", scale),
        ]
        function, kinds = "block_slopes_of_regions", (self._kind,)
        return call(self._dev, function, kinds, arguments, len(d_rois), _INCLUDES, BLOCK)


def _ends(a: ops.RegionPool | ops.RegionPoolGrad) -> Array:
    ends: Array = a.rois_at[-1] if a.rois_lod is None else a.rois_lod
    return ends


@_on("roi_pool")
def roi_pool(dev: Device, a: ops.RoiPool) -> list[Step]:
    return _Regions(dev, "roi_pool", "LARGEST", a, a.x, _ends(a)).pooled(a.x, a.out, a.argmax)


@_on("roi_pool_grad")
def roi_pool_grad(dev: Device, a: ops.RoiPoolGrad) -> list[Step]:
    """A pixel looks in the bins over it for those of which it is the largest."""
    regions = _Regions(dev, "roi_pool", "LARGEST", a, a.d_x, _ends(a))
    return [regions.step, regions.spread(a.d_out, a.d_x, a.argmax)]


def _aligned(dev: Device, a: ops.RoiAlign | ops.RoiAlignGrad, images: Array) -> _Regions:
    shift = 0.5 if a.aligned else 0.0
    ends, points = _ends(a), a.sampling_ratio
    return _Regions(dev, "roi_align", "ALIGNED", a, images, ends, sampling=points, shift=shift)


@_on("roi_align")
def roi_align(dev: Device, a: ops.RoiAlign) -> list[Step]:
    return _aligned(dev, a, a.x).pooled(a.x, a.out)


@_on("roi_align_grad")
def roi_align_grad(dev: Device, a: ops.RoiAlignGrad) -> list[Step]:
    regions = _aligned(dev, a, a.d_x)
    return [regions.step, regions.spread(a.d_out, a.d_x)]


@_on("psroi_pool")
def psroi_pool(dev: Device, a: ops.PsroiPool) -> list[Step]:
    regions = _Regions(dev, "psroi_pool", "COUNTED", a, a.x, a.rois_at[-1])
    return regions.pooled(a.x, a.out, positions=True)


@_on("psroi_pool_grad")
def psroi_pool_grad(dev: Device, a: ops.PsroiPoolGrad) -> list[Step]:
    regions = _Regions(dev, "psroi_pool", "COUNTED", a, a.d_x, a.rois_at[-1])
    return [regions.step, regions.spread(a.d_out, a.d_x, positions=True)]


def _precise(
    dev: Device, a: ops.PrroiPool | ops.PrroiPoolGrad, images: Array, slopes: bool = False
) -> _Regions:
    ends, counted = a.batch_ro_i_nums, a.batch_ro_i_nums is not None
    ends = a.rois_at[-1] if ends is None else ends
    return _Regions(
        dev, "prroi_pool", "INTEGRATED", a, images, ends, counted=counted, slopes=slopes
    )


@_on("prroi_pool")
def prroi_pool(dev: Device, a: ops.PrroiPool) -> list[Step]:
    return _precise(dev, a, a.x).pooled(a.x, a.out)


@_on("prroi_pool_grad")
def prroi_pool_grad(dev: Device, a: ops.PrroiPoolGrad) -> list[Step]:
    regions = _precise(dev, a, a.x, slopes=a.d_rois is not None)
    steps = [regions.step]
    if a.d_x is not None:
        steps.append(regions.spread(a.d_out, a.d_x))
    if a.d_rois is not None:
        steps.append(regions.edges(a.x, a.d_out, a.d_rois, a.spatial_scale))
    return steps
