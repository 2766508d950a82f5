"""Boxes as offsets from others, and back.

R-CNN: Girshick et al., arXiv 1311.2524, appendix C. YOLOv3: Redmon and Farhadi, arXiv 1804.02767, section 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from . import formula as f
from .lod import Lods
from .operands import Array, Input, Operands, Output, Positive
from .registry import Inference, Specs, define
from .rules import match, of_shape
from .samples import sample
from .shapes import Sized


def box_coder_shape(op: Inference) -> Mapping[str, Specs]:
    """Boxes [N, 4] and M priors to [N, M, 4]; decoding, offsets [N, M, 4] to boxes."""
    priors, target, axis = op.shape("PriorBox")[0], op.spec("TargetBox"), op.attr("axis")
    kind, variance = op.attr("code_type"), op.attr("variance")
    op.require(len(variance) in (0, 4), f"variance {list(variance)} must have 4 numbers")
    op.require(
        not (variance and op.has("PriorBoxVar")), "PriorBoxVar and variance cannot both be given"
    )
    match(op, PriorBox="M 4", PriorBoxVar="M 4")
    if kind == "encode_center_size":
        match(op, TargetBox="N 4")
        return {"OutputBox": of_shape((target.shape[0], priors, 4), target)}
    match(op, TargetBox=(priors, "N", 4) if axis else ("N", priors, 4))
    return {"OutputBox": target}


class BoxCoder(Operands):
    prior_box: Input
    prior_box_var: Input | None
    target_box: Input
    output_box: Output
    code_type: Literal["encode_center_size", "decode_center_size"] = "encode_center_size"
    box_normalized: bool = True
    axis: Literal[0, 1] = 0
    variance: Sequence[float] = []


def _middles(boxes: Array, end: int) -> tuple[Array, Array]:
    """Return the middles and the sizes of boxes, [..., 2] each."""
    size = boxes[..., 2:] - boxes[..., :2] + end
    return boxes[..., :2] + size * 0.5, size


def coded_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """The sequences of what has a row for each row of the result."""
    by_prior = op.attrs["code_type"] == "decode_center_size" and op.attrs["axis"] == 1
    return {"OutputBox": op.of("PriorBox" if by_prior else "TargetBox")}


def box_coder(a: BoxCoder) -> f.Results:
    """Offsets of middles by a prior's size, and logarithms of relative sizes, by their variance; and back."""
    end = 0 if a.box_normalized else 1
    decoded = a.code_type == "decode_center_size"
    spread = (-1, 1, 4) if decoded and a.axis == 1 else (1, -1, 4)
    middle, size = _middles(a.prior_box.reshape(spread), end)
    scale = f.table(np.array(a.variance or [1.0] * 4), a.target_box.dtype)
    scale = scale if a.prior_box_var is None else a.prior_box_var.reshape(spread)
    if decoded:
        offset = a.target_box * scale
        middle, size = offset[..., :2] * size + middle, f.exp(offset[..., 2:]) * size
        corners = [middle - size * 0.5, middle + size * 0.5 - end]
        return {"output_box": f.concatenate(corners, -1)}
    _, size_of_target = _middles(a.target_box, end)
    target = (a.target_box[:, :2] + a.target_box[:, 2:]) * 0.5
    moved = (target.reshape(-1, 1, 2) - middle) / size
    grown = f.log(f.absolute(size_of_target.reshape(-1, 1, 2) / size))
    return {"output_box": f.concatenate([moved, grown], -1) / scale}


_PRIORS = "PriorBox uniform [3 4]"
_ENCODED = f"{_PRIORS}, TargetBox 2.0:4.0 [2 4]"
_DECODED = f"{_PRIORS}, PriorBoxVar uniform [3 4], TargetBox [2 3 4]"
define(
    "box_coder",
    BoxCoder,
    box_coder_shape,
    lod=coded_lod,
    formula=box_coder,
    samples=(
        sample(_ENCODED, box_normalized=False),
        sample(_ENCODED, "PriorBoxVar 0.5:1.0 [3 4]", box_normalized=False),
        sample(_DECODED, code_type="decode_center_size"),
        sample(
            _PRIORS,
            "TargetBox [3 2 4]",
            code_type="decode_center_size",
            axis=1,
            box_normalized=False,
            variance=[0.1, 0.1, 0.2, 0.2],
        ),
    ),
    refuses=(
        sample(_ENCODED, "TargetBox uniform [2 3]"),
        sample(_DECODED, code_type="decode_center_size", axis=1),
        sample(_DECODED, code_type="decode_center_size", variance=[0.1]),
    ),
)


class BoxDecoderAndAssign(Operands):
    prior_box: Input
    prior_box_var: Input | None
    target_box: Input
    box_score: Input
    decode_box: Output
    output_assign_box: Output
    box_clip: float = 4.135


def box_decoder_and_assign(a: BoxDecoderAndAssign) -> f.Results:
    """Boxes of each class, and those of the best class but the first; the last pixels belong to boxes."""
    rows, classes = a.box_score.shape
    middle, size = _middles(a.prior_box.reshape(rows, 1, 4), 1)
    scale = 1 if a.prior_box_var is None else a.prior_box_var
    offset = a.target_box.reshape(rows, classes, 4) * scale
    half = f.exp(f.minimum(offset[..., 2:], a.box_clip)) * size * 0.5
    middle = offset[..., :2] * size + middle
    boxes = f.concatenate([middle - half, middle + half - 1], -1)
    best = a.box_score[:, 1:].argmax(1) + f.table(np.arange(rows) * classes + 1)
    return {
        "decode_box": boxes.reshape(rows, -1),
        "output_assign_box": f.take(boxes.reshape(-1, 4), best),
    }


_SCORED = (
    "PriorBox uniform [3 4], PriorBoxVar 0.1:1.0 [4], TargetBox [3 12], BoxScore uniform [3 3]"
)
define(
    "box_decoder_and_assign",
    BoxDecoderAndAssign,
    Sized(
        "PriorBox [N 4], BoxScore [N C], TargetBox [N 4*C], PriorBoxVar [4] "
        "-> DecodeBox as TargetBox, OutputAssignBox as PriorBox",
        "C > 1; BoxScore must have a class besides the background",
    ),
    formula=box_decoder_and_assign,
    samples=(sample(_SCORED, box_clip=0.5),),
    refuses=(sample(_SCORED, "TargetBox [3 4], BoxScore uniform [3 1]"),),
)


class YoloBox(Operands):
    x: Input
    img_size: Input
    boxes: Output
    scores: Output
    class_num: Positive = 1
    anchors: Sequence[int] = []
    downsample_ratio: int = 32
    conf_thresh: float = 0.01
    clip_bbox: bool = True
    scale_x_y: float = 1.0


def yolo_box(a: YoloBox) -> f.Results:
    """Boxes around cells, in pixels of the images, and scores of classes; zeros below ``conf_thresh``."""
    n, _, height, width = a.x.shape
    sizes = np.array(a.anchors, float).reshape(-1, 2)
    x = a.x.reshape(n, len(sizes), 5 + a.class_num, height, width)
    image = a.img_size.astype(a.x.dtype)
    rows, columns = np.indices((height, width))
    corners: list[list[Array]] = [[], []]
    sure = f.sigmoid(x[:, :, 4])
    for k, (place, cells) in enumerate(((columns, width), (rows, height))):
        pixels = image[:, 1 - k].reshape(n, 1, 1, 1)
        share = f.sigmoid(x[:, :, k]) * a.scale_x_y - 0.5 * (a.scale_x_y - 1)
        middle = (share + f.table(place, a.x.dtype)) * pixels * (1 / cells)
        anchor = f.table(sizes[:, k].reshape(-1, 1, 1) / (a.downsample_ratio * cells), a.x.dtype)
        half = f.exp(x[:, :, 2 + k]) * anchor * pixels * 0.5
        low, high = middle - half, middle + half
        if a.clip_bbox:
            low, high = f.maximum(low, 0), f.minimum(high, pixels - 1)
        for side, edge in zip(corners, (low, high), strict=True):
            side.append(f.where(sure < a.conf_thresh, 0, edge).reshape(n, -1, 1))
    scores = f.sigmoid(x[:, :, 5:]) * f.where(sure < a.conf_thresh, 0, sure)[:, :, None]
    return {
        "boxes": f.concatenate([*corners[0], *corners[1]], 2),
        "scores": scores.transpose(0, 1, 3, 4, 2).reshape(n, -1, a.class_num),
    }


_CELLS = "X [2 14 2 3], ImgSize 20:60 [2 2]"
define("yolo_box", YoloBox, Sized(
        "X [N boxes*(5+class_num) H W], ImgSize integers [N 2] "
        "-> Boxes [N boxes*H*W 4], Scores [N boxes*H*W class_num]",
        "len(anchors) % 2 == 0 and min(anchors, default=0) > 0; anchors must be pairs of sizes",
        "boxes = len(anchors) // 2",
    ), formula=yolo_box, samples=(
            sample(_CELLS, class_num=2, anchors=[10, 13, 16, 30], downsample_ratio=8),
            sample(
                _CELLS, class_num=2, anchors=[10, 13, 16, 30], conf_thresh=0.5, clip_bbox=False,
                scale_x_y=1.2
            )
        ))  # fmt: skip
