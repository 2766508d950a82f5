"""Boxes, one at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import reference


@reference("iou_similarity")
def iou_similarity(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    end = 0 if attrs["box_normalized"] else 1
    out = np.zeros((len(ins["X"]), len(ins["Y"])))
    for i, j in np.ndindex(*out.shape):
        x, y = ins["X"][i], ins["Y"][j]
        shared = math.prod(max(0, min(x[k + 2], y[k + 2]) - max(x[k], y[k]) + end) for k in (0, 1))
        whole = sum((box[2] - box[0] + end) * (box[3] - box[1] + end) for box in (x, y))
        out[i, j] = shared / (whole - shared + 1e-10)
    return {"Out": out}


@reference("polygon_box_transform")
def polygon_box_transform(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out = -ins["Input"]
    for n, c, row, column in np.ndindex(*out.shape):
        out[n, c, row, column] += 4 * (row if c % 2 else column)
    return {"Output": out}


def _all(image: Any, box_of: Any, attrs: dict[str, Any], end: int = 0) -> tuple[Any, Any]:
    """Return the boxes of each cell: (x, y, width, height) by row and column."""
    boxes = [[list(box_of(row, column)) for column in range(image[1])] for row in range(image[0])]
    x, y, w, h = np.moveaxis(np.array(boxes), -1, 0)
    corners = np.stack(
        [x - (w - end) / 2, y - (h - end) / 2, x + (w - end) / 2, y + (h - end) / 2], -1
    )
    return corners, np.ones_like(corners) * attrs["variances"]


@reference("anchor_generator")
def anchor_generator(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    sw, sh = attrs["stride"]

    def box_of(row: int, column: int) -> Any:
        for ratio in attrs["aspect_ratios"]:
            width = np.floor(np.sqrt(sw * sh / ratio) + 0.5)
            height = np.floor(width * ratio + 0.5)
            for size in attrs["anchor_sizes"]:
                x = column * sw + attrs["offset"] * (sw - 1)
                y = row * sh + attrs["offset"] * (sh - 1)
                yield x, y, size / sw * width, size / sh * height

    anchors, variances = _all(ins["Input"].shape[2:], box_of, attrs, end=1)
    return {"Anchors": anchors, "Variances": variances}


def _places(ins: dict[str, Any], attrs: dict[str, Any]) -> Any:
    """Return the sizes of images (width, height), and how far cells are apart."""
    whole, cells = np.array(ins["Image"].shape[:1:-1]), np.array(ins["Input"].shape[:1:-1])
    steps = np.array([attrs["step_w"], attrs["step_h"]])
    return whole, steps if steps.all() else whole / cells


@reference("prior_box")
def prior_box(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    whole, steps = _places(ins, attrs)
    ratios = []
    for ratio in attrs["aspect_ratios"]:
        if ratio != 1:
            ratios += [ratio, 1 / ratio] if attrs["flip"] else [ratio]

    def box_of(row: int, column: int) -> Any:
        x, y = (np.array([column, row]) + attrs["offset"]) * steps
        for k, size in enumerate(attrs["min_sizes"]):
            largest = (
                [(x, y, *[np.sqrt(size * attrs["max_sizes"][k])] * 2)] if attrs["max_sizes"] else []
            )
            yield x, y, size, size
            if attrs["min_max_aspect_ratios_order"]:
                yield from largest
            for ratio in ratios:
                yield x, y, size * ratio**0.5, size / ratio**0.5
            if not attrs["min_max_aspect_ratios_order"]:
                yield from largest

    boxes, variances = _all(ins["Input"].shape[2:], box_of, attrs)
    boxes /= [*whole, *whole]
    return {"Boxes": boxes.clip(0, 1) if attrs["clip"] else boxes, "Variances": variances}


@reference("density_prior_box")
def density_prior_box(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    whole, steps = _places(ins, attrs)
    step = int(steps.mean())

    def box_of(row: int, column: int) -> Any:
        x, y = (np.array([column, row]) + attrs["offset"]) * steps - step / 2
        for size, count in zip(attrs["fixed_sizes"], attrs["densities"], strict=True):
            shift = step // count
            for ratio in attrs["fixed_ratios"]:
                for i in range(count):
                    for j in range(count):
                        at = x + shift / 2 + j * shift, y + shift / 2 + i * shift
                        yield *at, size * ratio**0.5, size / ratio**0.5

    boxes, variances = _all(ins["Input"].shape[2:], box_of, attrs)
    boxes /= [*whole, *whole]
    boxes[..., :2] = np.maximum(boxes[..., :2], 0)
    boxes[..., 2:] = np.minimum(boxes[..., 2:], 1)
    boxes = boxes.clip(0, 1) if attrs["clip"] else boxes
    if attrs["flatten_to_2d"]:
        boxes, variances = boxes.reshape(-1, 4), variances.reshape(-1, 4)
    return {"Boxes": boxes, "Variances": variances}


@reference("box_coder")
def box_coder(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    priors, targets, end = ins["PriorBox"], ins["TargetBox"], 0 if attrs["box_normalized"] else 1
    decodes = attrs["code_type"] == "decode_center_size"
    rows, columns = targets.shape[:2] if decodes else (len(targets), len(priors))
    out = np.zeros((rows, columns, 4))
    for i, j in np.ndindex(rows, columns):
        p = i if decodes and attrs["axis"] else j
        size = priors[p, 2:] - priors[p, :2] + end
        middle = priors[p, :2] + size / 2
        scale = (
            ins["PriorBoxVar"][p]
            if "PriorBoxVar" in ins
            else np.array(attrs["variance"] or [1] * 4)
        )
        if decodes:
            offset = targets[i, j] * scale
            at, half = offset[:2] * size + middle, np.exp(offset[2:]) * size / 2
            out[i, j] = [*(at - half), *(at + half - end)]
        else:
            box = targets[i]
            moved = ((box[:2] + box[2:]) / 2 - middle) / size
            out[i, j] = np.array([*moved, *np.log(abs((box[2:] - box[:2] + end) / size))]) / scale
    return {"OutputBox": out}


@reference("box_decoder_and_assign")
def box_decoder_and_assign(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out, best = np.zeros(ins["TargetBox"].shape), np.zeros(ins["PriorBox"].shape)
    for i, prior in enumerate(ins["PriorBox"]):
        size = prior[2:] - prior[:2] + 1
        for j in range(ins["BoxScore"].shape[1]):
            offset = ins["TargetBox"][i, 4 * j : 4 * j + 4] * ins.get("PriorBoxVar", 1)
            half = np.exp(np.minimum(offset[2:], attrs["box_clip"])) * size / 2
            at = offset[:2] * size + prior[:2] + size / 2
            out[i, 4 * j : 4 * j + 4] = [*(at - half), *(at + half - 1)]
        label = 1 + int(ins["BoxScore"][i, 1:].argmax())
        best[i] = out[i, 4 * label : 4 * label + 4]
    return {"DecodeBox": out, "OutputAssignBox": best}


@reference("yolo_box")
def yolo_box(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, classes = ins["X"], attrs["class_num"]
    n, _, height, width = x.shape
    anchors = np.array(attrs["anchors"]).reshape(-1, 2)
    cells = x.reshape(n, len(anchors), 5 + classes, height, width)
    boxes = np.zeros((n, len(anchors), height, width, 4))
    scores = np.zeros((n, len(anchors), height, width, classes))
    for b, k, i, j in np.ndindex(*boxes.shape[:4]):
        cell, image = cells[b, k, :, i, j], ins["ImgSize"][b, ::-1]
        shares = 1 / (1 + np.exp(-cell))
        if shares[4] < attrs["conf_thresh"]:
            continue
        grown = attrs["scale_x_y"] * (shares[:2] - 0.5) + 0.5
        middle = (grown + np.array([j, i])) * image / [width, height]
        half = (
            np.exp(cell[2:4]) * anchors[k] * image / [width, height] / attrs["downsample_ratio"] / 2
        )
        low, high = middle - half, middle + half
        if attrs["clip_bbox"]:
            low, high = np.maximum(low, 0), np.minimum(high, image - 1)
        boxes[b, k, i, j], scores[b, k, i, j] = [*low, *high], shares[4] * shares[5:]
    return {"Boxes": boxes.reshape(n, -1, 4), "Scores": scores.reshape(n, -1, classes)}
