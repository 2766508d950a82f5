"""Pools over regions of images (ROIs): each region is cut in pooled_height by pooled_width bins.

The regions of image n are sequence n of ROIs, or RoisLod and BatchRoINums say which they are. Girshick, Fast
R-CNN (arXiv 1504.08083), section 2.1; He and others, Mask R-CNN (1703.06870); Li and others, R-FCN
(1605.06409); Jiang and others, precise pooling (1807.11590).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import VarType
from .lod import no_sequences
from .operands import Input, Offsets, Operands, Output, Positive, named
from .registry import Inference, Op, ShapeRule, Spec, Specs, define
from .rules import match, one_dtype
from .samples import Draw, normal, offsets, sample, table


class Bins(Operands):
    x: Input
    rois: Input = named("ROIs")
    rois_at: Offsets = named("ROIs@LOD")
    spatial_scale: float = 1.0
    pooled_height: Positive = 1
    pooled_width: Positive = 1


class RegionPool(Bins):
    rois_lod: Input | None
    out: Output


class RegionPoolGrad(RegionPool, reads="*"):
    d_out: Input
    d_x: Output


class RoiPool(RegionPool):
    argmax: Output | None


class RoiPoolGrad(RegionPoolGrad):
    argmax: Input


class RoiAlign(RegionPool):
    """``aligned``: pixel 0 reaches from -0.5 to 0.5, and no region is made larger, as in Paddle 2.x."""

    sampling_ratio: int = -1
    aligned: bool = False


class RoiAlignGrad(RegionPoolGrad):
    sampling_ratio: int = -1
    aligned: bool = False


class PsroiPool(Bins):
    out: Output
    output_channels: int = 1


class PsroiPoolGrad(Bins):
    d_out: Input
    d_x: Output
    output_channels: int = 1


class PrroiPool(Bins):
    batch_ro_i_nums: Input | None = named("BatchRoINums")
    out: Output


class PrroiPoolGrad(PrroiPool, reads="* out"):
    d_out: Input
    d_x: Output | None
    d_rois: Output | None = named("ROIs@GRAD")


def _pooled(positions: bool = False, *results: str) -> ShapeRule:
    """Return the rule of one window of bins for each region; of ``positions`` each has its own channels."""

    def rule(op: Inference) -> Mapping[str, Specs]:
        x, rois = op.spec("X"), op.spec("ROIs")
        height, width = op.attr("pooled_height"), op.attr("pooled_width")
        match(op, X="N C H W", ROIs="R 4")
        one_dtype(op, "X", "ROIs")
        op.require(min(height, width) > 0, "pooled_height and pooled_width must be above 0")
        if not op.has("RoisLod") and not op.has("BatchRoINums"):
            op.sequences("ROIs")
        channels = x.shape[1]
        if positions:
            channels = op.attr("output_channels")
            fits = x.shape[1] in (-1, channels * height * width)
            op.require(fits, f"X must have {channels} x {height} x {width} channels")
        shape = (rois.shape[0], channels, height, width)
        return {"Out": Spec(shape, x.dtype), **{r: Spec(shape, VarType.INT64) for r in results}}

    return rule


def _slopes(op: Inference) -> Mapping[str, Specs]:
    return {slot.name: op.spec(slot.name.removesuffix("@GRAD")) for slot in op.op.output_slots}


_ROIS = table([[1.0, 0.5, 4.2, 3.1], [0.3, 1.2, 9.7, 6.4], [2.1, 2.6, 3.3, 7.8]])
_AT = {"ROIs": _ROIS, "ROIs@LOD": [offsets(2, 1)]}
_BY_SLOT = {"ROIs": _ROIS, "RoisLod": table([0, 1, 3])}


def _x(channels: int = 2) -> dict[str, Draw]:
    return {"X": normal(2, channels, 6, 8)}


_BINS = {"pooled_height": 2, "pooled_width": 3}
_REFUSES = (
    sample({"X": normal(2, 6, 8), **_AT}),
    sample({**_x(), **_AT, "ROIs": normal(3, 5)}),
)

define(
    "roi_pool",
    RoiPool,
    _pooled(False, "Argmax"),
    lod=no_sequences,
    samples=(
        sample({**_x(), **_AT}, **_BINS),
        sample({**_x(), **_BY_SLOT}, **_BINS, spatial_scale=0.5),
    ),
    refuses=_REFUSES,
    slope=Op("roi_pool_grad", RoiPoolGrad, _slopes),
)
define(
    "roi_align",
    RoiAlign,
    _pooled(),
    lod=no_sequences,
    samples=(
        sample({**_x(), **_AT}, **_BINS),
        sample({**_x(), **_BY_SLOT}, **_BINS, spatial_scale=0.7, sampling_ratio=2),
        sample({**_x(), **_AT}, **_BINS, spatial_scale=0.3, aligned=True),
    ),
    refuses=_REFUSES,
    slope=Op("roi_align_grad", RoiAlignGrad, _slopes),
)
define(
    "psroi_pool",
    PsroiPool,
    _pooled(True),
    lod=no_sequences,
    samples=(
        sample({**_x(12), **_AT}, **_BINS, output_channels=2),
        sample({**_x(6), **_AT}, **_BINS, spatial_scale=0.5),
    ),
    refuses=(*_REFUSES, sample({**_x(7), **_AT}, **_BINS)),
    slope=Op("psroi_pool_grad", PsroiPoolGrad, _slopes),
)
define(
    "prroi_pool",
    PrroiPool,
    _pooled(),
    lod=no_sequences,
    samples=(
        sample({**_x(), **_AT}, **_BINS),
        sample({**_x(), "ROIs": _ROIS, "BatchRoINums": table([1, 2])}, **_BINS, spatial_scale=0.7),
    ),
    refuses=_REFUSES,
    slope=Op("prroi_pool_grad", PrroiPoolGrad, _slopes),
)
