"""The loss of YOLOv3, on the host, as in Paddle: which cells answer for boxes follows from the boxes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....graph.ops.operands import Array
from ....graph.ops.yolo_loss import YoloAttributes, YoloLoss, YoloLossGrad
from ..registry import each_step

_SMALLEST = 1e-6  # a box whose width or height is less is none


class _Answers(NamedTuple):
    """Of each box that an anchor of this map fits best: where it is, and what is expected there.

    ``at`` are image, anchor, row and column of its cell; ``places`` the place in the cell and the logarithms of
    its size in anchors, [boxes, 4]; ``classes`` the probabilities of classes; ``scales`` weigh places.
    """

    at: tuple[Array, ...]
    places: Array
    classes: Array
    scores: Array
    scales: Array


def _cells(array: Array, a: YoloAttributes) -> Array:
    """Return X or its gradient as [N, M, 5 + C, H, W], a view."""
    images, _, height, width = a.x.shape
    return array.reshape(images, len(a.anchor_mask), 5 + a.class_num, height, width)


def _sizes(a: YoloAttributes) -> Array:
    """Return widths and heights of all anchors as shares of the image."""
    whole = a.downsample_ratio * a.x.shape[2]
    return np.array(a.anchors, a.x.dtype).reshape(-1, 2) / a.x.dtype.type(whole)


def _boxes(a: YoloAttributes) -> tuple[Array, Array]:
    """Return which boxes are boxes, and of each the anchor of this map that fits it best, or -1."""
    sizes, new = a.gt_box[..., None, 2:], _sizes(a)
    real = np.minimum(a.gt_box[..., 2], a.gt_box[..., 3]) >= _SMALLEST
    shared = np.minimum(sizes, new).prod(-1)
    best = (shared / (sizes.prod(-1) + new.prod(-1) - shared + (~real)[..., None])).argmax(-1)
    number = np.full(len(new), -1, np.int32)
    number[list(a.anchor_mask)] = np.arange(len(a.anchor_mask))
    return real, np.where(real, number[best], -1)


def _answers(a: YoloAttributes, match: Array) -> _Answers:
    images, boxes = np.nonzero(match >= 0)
    grid, anchors = a.x.shape[2], match[images, boxes]
    box = a.gt_box[images, boxes]
    cells = np.minimum((box[:, :2] * grid).astype(np.int64), grid - 1)
    sizes = box[:, 2:] / _sizes(a)[np.array(a.anchor_mask)[anchors]]
    places = np.concatenate([box[:, :2] * grid - cells, np.log(sizes)], 1)
    least = min(1 / a.class_num, 1 / 40) if a.use_label_smooth else 0.0
    labels = a.gt_label[images, boxes][:, None] == np.arange(a.class_num)
    scores = np.ones(len(box)) if a.gt_score is None else a.gt_score[images, boxes]
    scores = scores.astype(a.x.dtype)
    classes = np.where(labels, 1 - least, least).astype(a.x.dtype)
    scales = (2 - box[:, 2] * box[:, 3]) * scores
    return _Answers((images, anchors, cells[:, 1], cells[:, 0]), places, classes, scores, scales)


def _overlap(a: YoloAttributes, real: Array) -> Array:
    """Return the largest share that the box which a cell foretells has in common with a real one."""
    x, grid = _cells(a.x, a), a.x.shape[2]
    sizes = _sizes(a)[list(a.anchor_mask)]
    best = np.zeros((len(x), x.shape[1], *x.shape[3:]), a.x.dtype)
    middles, halves = [], []
    for k in range(2):
        cell = np.arange(grid, dtype=a.x.dtype).reshape((1, -1) if k == 0 else (-1, 1))
        share = a.scale_x_y / (1 + np.exp(-x[:, :, k])) - 0.5 * (a.scale_x_y - 1)
        middles.append((cell + share) / grid)
        halves.append(np.exp(x[:, :, 2 + k]) * sizes[:, k].reshape(-1, 1, 1) / 2)
    area = 4 * halves[0] * halves[1]
    for number in range(real.shape[1]):
        box = a.gt_box[:, number, :, None, None, None]
        shared = real[:, number, None, None, None].astype(a.x.dtype)
        for k in range(2):
            high = np.minimum(middles[k] + halves[k], box[:, k] + box[:, 2 + k] / 2)
            low = np.maximum(middles[k] - halves[k], box[:, k] - box[:, 2 + k] / 2)
            shared = shared * np.maximum(high - low, 0)
        np.maximum(best, shared / (area + box[:, 2] * box[:, 3] - shared), out=best)
    return best


def _entropy(x: Array, expected: Array | float) -> Array:
    """The cross entropy of a sigmoid."""
    return np.maximum(x, 0) - x * expected + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@each_step("yolov3_loss", on=("numpy",))
def yolov3_loss(a: YoloLoss) -> None:
    real, match = _boxes(a)
    a.gt_match_mask[...] = match
    answers, x = _answers(a, match), _cells(a.x, a)
    mask = np.where(_overlap(a, real) > a.ignore_thresh, -1, 0).astype(a.x.dtype)
    mask[answers.at] = answers.scores
    a.objectness_mask[...] = mask
    images, anchors, rows, columns = answers.at
    cell = x[images, anchors, :, rows, columns]
    middles = _entropy(cell[:, :2], answers.places[:, :2])
    places = middles.sum(1) + np.abs(cell[:, 2:4] - answers.places[:, 2:]).sum(1)
    classes = _entropy(cell[:, 5:], answers.classes).sum(1)
    sure = _entropy(x[:, :, 4], mask > 1e-5) * np.where(mask > 1e-5, mask, mask > -0.5)
    a.loss[...] = sure.sum((1, 2, 3))
    np.add.at(a.loss, images, places * answers.scales + classes * answers.scores)


@each_step("yolov3_loss_grad", on=("numpy",))
def yolov3_loss_grad(a: YoloLossGrad) -> None:
    """Of boxes that meet in a cell the last one says what is expected there, as in Paddle."""
    d_x, x = _cells(a.d_x, a), _cells(a.x, a)
    answers = _answers(a, a.gt_match_mask)
    images, anchors, rows, columns = answers.at
    cell = x[images, anchors, :, rows, columns]
    slopes = np.zeros_like(cell)
    weight = a.d_loss[images][:, None]
    scales, scores = answers.scales[:, None] * weight, answers.scores[:, None] * weight
    slopes[:, :2] = (_sigmoid(cell[:, :2]) - answers.places[:, :2]) * scales
    slopes[:, 2:4] = np.where(cell[:, 2:4] > answers.places[:, 2:], scales, -scales)
    slopes[:, 5:] = (_sigmoid(cell[:, 5:]) - answers.classes) * scores
    d_x[...] = 0
    d_x[images, anchors, :, rows, columns] = slopes
    mask = a.objectness_mask
    sure = _sigmoid(x[:, :, 4]) - (mask > 1e-5)
    weights = np.where(mask > 1e-5, mask, mask > -0.5) * a.d_loss.reshape(-1, 1, 1, 1)
    d_x[:, :, 4] = sure * weights
