"""The loss of YOLOv3: Redmon and Farhadi, arXiv 1804.02767; GTScore weighs boxes of mixed images.

Boxes of images are (x, y, width, height), middles first, as shares of the image. Legend: N images, M anchors of
this map, C classes, H x W cells, B boxes of an image.
"""

from __future__ import annotations

from collections.abc import Sequence

from .lod import no_sequences
from .operands import Input, Operands, Output, Positive, named
from .registry import Op, define
from .samples import integers, normal, sample, table
from .shapes import Sized


class YoloAttributes(Operands):
    x: Input
    gt_box: Input = named("GTBox")
    gt_label: Input = named("GTLabel")
    gt_score: Input | None = named("GTScore")
    class_num: Positive = 1
    anchors: Sequence[int] = []
    anchor_mask: Sequence[int] = []
    downsample_ratio: int = 32
    ignore_thresh: float = 0.7
    use_label_smooth: bool = True
    scale_x_y: float = 1.0


class YoloLoss(YoloAttributes):
    """``objectness_mask``: 0 where no box is, -1 where a cell foretells one well enough, else its score."""

    loss: Output
    objectness_mask: Output
    gt_match_mask: Output = named("GTMatchMask")


class YoloLossGrad(YoloLoss, reads="* objectness_mask gt_match_mask"):
    d_loss: Input
    d_x: Output


_BOXES = table(
    [
        [[0.31, 0.42, 0.32, 0.25], [0.82, 0.13, 0.11, 0.57], [0.0, 0.0, 0.0, 0.0]],
        [[0.55, 0.85, 0.74, 0.64], [0.16, 0.37, 0.23, 0.16], [0.91, 0.6, 0.08, 0.11]],
    ]
)
_YOLO = {"X": normal(2, 14, 3, 3), "GTBox": _BOXES, "GTLabel": integers(2, 3, high=2)}
_ANCHORS = {"class_num": 2, "anchors": [10, 13, 16, 30, 33, 23], "downsample_ratio": 16}
_MAP = {**_ANCHORS, "anchor_mask": [0, 2]}

define(
    "yolov3_loss",
    YoloLoss,
    Sized(
        "X floats [N boxes*(5+class_num) side side], GTBox as X [N B 4], GTLabel integers [N B], GTScore [N B] "
        "-> Loss [N], ObjectnessMask [N boxes side side], GTMatchMask int32 [N B]",
        "anchors and len(anchors) % 2 == 0; anchors must be pairs",
        "anchor_mask and every(0 <= k < len(anchors) // 2 for k in anchor_mask); "
        "anchor_mask must name some of the anchors",
        "boxes = len(anchor_mask)",
    ),
    lod=no_sequences,
    samples=(
        sample(_YOLO, **_MAP),
        sample(_YOLO, "GTScore uniform [2 3]", **_MAP, ignore_thresh=0.3, scale_x_y=1.2),
        sample(_YOLO, **_ANCHORS, anchor_mask=[1, 2], use_label_smooth=False),
    ),
    slope=Op("yolov3_loss_grad", YoloLossGrad),
)
