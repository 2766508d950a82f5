"""Pools over regions of images (ROIs): each region is cut in pooled_height by pooled_width bins.

The regions of image n are sequence n of ROIs, or RoisLod and BatchRoINums say which they are. Girshick, Fast
R-CNN (arXiv 1504.08083), section 2.1; He and others, Mask R-CNN (1703.06870); Li and others, R-FCN
(1605.06409); Jiang and others, precise pooling (1807.11590).
"""

from __future__ import annotations

from .lod import no_sequences
from .operands import Input, Offsets, Operands, Output, Positive, named
from .registry import Inference, Op, define
from .samples import sample
from .shapes import Sized


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


def _check_sequences(op: Inference) -> None:
    """Refuse regions of which nothing tells the image."""
    if not op.has("RoisLod") and not op.has("BatchRoINums"):
        op.sequences("ROIs")


_POOLED = Sized(
    "X [N C H W], ROIs as X [R 4] "
    "-> Out [R C pooled_height pooled_width], Argmax int64 [R C pooled_height pooled_width]",
    _check_sequences,
)
_ROIS = "ROIs table [1.0 0.5 4.2 3.1; 0.3 1.2 9.7 6.4; 2.1 2.6 3.3 7.8]"
_AT = f"{_ROIS}, ROIs@LOD [2 1]"
_BY_SLOT = f"{_ROIS}, RoisLod table [0 1 3]"


_BINS = {"pooled_height": 2, "pooled_width": 3}
define(
    "roi_pool",
    RoiPool,
    _POOLED,
    lod=no_sequences,
    samples=(
        sample("X [2 2 6 8]", _AT, **_BINS),
        sample("X [2 2 6 8]", _BY_SLOT, **_BINS, spatial_scale=0.5),
    ),
    slope=Op("roi_pool_grad", RoiPoolGrad, shapes_of=("X",)),
)
define(
    "roi_align",
    RoiAlign,
    _POOLED,
    lod=no_sequences,
    samples=(
        sample("X [2 2 6 8]", _AT, **_BINS),
        sample("X [2 2 6 8]", _BY_SLOT, **_BINS, spatial_scale=0.7, sampling_ratio=2),
        sample("X [2 2 6 8]", _AT, **_BINS, spatial_scale=0.3, aligned=True),
    ),
    slope=Op("roi_align_grad", RoiAlignGrad, shapes_of=("X",)),
)
define(
    "psroi_pool",
    PsroiPool,
    Sized(
        "X [N output_channels*pooled_height*pooled_width H W], ROIs as X [R 4] "
        "-> Out [R output_channels pooled_height pooled_width]",
        _check_sequences,
    ),
    lod=no_sequences,
    samples=(
        sample("X [2 12 6 8]", _AT, **_BINS, output_channels=2),
        sample("X [2 6 6 8]", _AT, **_BINS, spatial_scale=0.5),
    ),
    slope=Op("psroi_pool_grad", PsroiPoolGrad, shapes_of=("X",)),
)
define(
    "prroi_pool",
    PrroiPool,
    _POOLED,
    lod=no_sequences,
    samples=(
        sample("X [2 2 6 8]", _AT, **_BINS),
        sample("X [2 2 6 8]", _ROIS, "BatchRoINums table [1 2]", **_BINS, spatial_scale=0.7),
    ),
    slope=Op("prroi_pool_grad", PrroiPoolGrad, shapes_of=("Out",)),
)
