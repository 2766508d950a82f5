"""Regions that may hold an object, and what is learnt from them, a box at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .box_choice import staying
from .registry import reference

Slots = dict[str, Any]


def proposals(ins: Slots, attrs: Slots) -> list[list[tuple[float, Any]]]:
    """The scores and boxes of each image that stay."""
    images, more = [], int(attrs["pixel_offset"])
    for n, (height, width, scale) in enumerate(ins["ImInfo"]):
        regions = []
        for i, j, k in np.ndindex(ins["Anchors"].shape[:3]):
            x0, y0, x1, y1 = ins["Anchors"][i, j, k]
            size = np.array([x1 - x0 + more, y1 - y0 + more])
            d = ins["BboxDeltas"][n, 4 * k : 4 * k + 4, i, j] * ins["Variances"][i, j, k]
            middle = np.array([x0, y0]) + size / 2 + d[:2] * size
            size = size * np.minimum(np.exp(d[2:]), 62.5)
            box = np.array([*(middle - size / 2), *(middle + size / 2 - more)])
            box = np.minimum(np.maximum(box, 0), [width - more, height - more] * 2)
            regions.append((ins["Scores"][n, k, i, j], box))
        regions = sorted(regions, key=lambda pair: -pair[0])[: attrs["pre_nms_topN"]]
        large = []
        for score, box in regions:
            sides = box[2:] - box[:2]
            middle = box[:2] + (sides + 1) / 2
            big = min(sides) / scale + more >= max(attrs["min_size"], 1)
            if big and (not more or (middle[0] <= width and middle[1] <= height)):
                large.append((score, box))
        scores, boxes = [s for s, _ in large], [b for _, b in large]
        stay = staying(boxes, scores, attrs["nms_thresh"], attrs["eta"], more)
        images.append([large[k] for k in stay[: attrs["post_nms_topN"]]])
    return images


@reference("generate_proposals")
def generate_proposals(ins: Slots, attrs: Slots) -> Slots:
    rows = [pair for image in proposals(ins, attrs) for pair in image]
    return {
        "RpnRois": np.array([box for _, box in rows]).reshape(-1, 4),
        "RpnRoiProbs": np.array([score for score, _ in rows]).reshape(-1, 1),
    }


@reference("lod_of_proposals")
def lod_of_proposals(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.cumsum([0, *map(len, proposals(ins, attrs))])}


def best_rows(levels: Any, scores: Any, most: int) -> list[tuple[int, int]]:
    """(image, number) of the best rows, by image."""
    images = [n for ends in levels for n, (b, e) in enumerate(pairwise(ends)) for _ in range(b, e)]
    flat = [float(v) for part in scores for v in part.reshape(-1)]
    best = sorted(range(len(flat)), key=lambda k: -flat[k])[:most]
    return sorted(((images[k], k) for k in best), key=lambda pair: pair[0])


@reference("collect_fpn_proposals")
def collect_fpn_proposals(ins: Slots, attrs: Slots) -> Slots:
    levels, most = ins["MultiLevelRois@LOD"], attrs["post_nms_topN"]
    best = best_rows(levels, ins["MultiLevelScores"], most)
    return {"FpnRois": np.concatenate(ins["MultiLevelRois"])[[k for _, k in best]]}


@reference("lod_collected")
def lod_collected(ins: Slots, attrs: Slots) -> Slots:
    levels = ins["MultiLevelRois@LOD"]
    best = best_rows(levels, ins["MultiLevelScores"], attrs["post_nms_topN"])
    images = [n for n, _ in best]
    return {"Out": np.cumsum([0, *(images.count(n) for n in range(len(levels[0]) - 1))])}


def map_of(box: Any, attrs: Slots) -> int:
    more = int(attrs["pixel_offset"])
    side = np.sqrt((box[2] - box[0] + more) * (box[3] - box[1] + more))
    level = int(np.floor(np.log2(side / attrs["refer_scale"] + 1e-6) + attrs["refer_level"]))
    return min(max(level, attrs["min_level"]), attrs["max_level"]) - attrs["min_level"]


@reference("distribute_fpn_proposals")
def distribute_fpn_proposals(ins: Slots, attrs: Slots) -> Slots:
    count = attrs["max_level"] - attrs["min_level"] + 1
    numbers = [map_of(box, attrs) for box in ins["FpnRois"]]
    maps = [[k for k, number in enumerate(numbers) if number == m] for m in range(count)]
    order = [k for own in maps for k in own]
    return {
        "MultiFpnRois": [ins["FpnRois"][own] for own in maps],
        "RestoreIndex": np.array([[order.index(k)] for k in range(len(numbers))]),
    }


@reference("lod_distributed")
def lod_distributed(ins: Slots, attrs: Slots) -> Slots:
    here = [map_of(box, attrs) == attrs["number"] for box in ins["FpnRois"]]
    return {"Out": np.array([sum(here[:end]) for end in ins["FpnRois@LOD"][-1]])}


def shared(one: Any, other: Any) -> float:
    sides = [min(one[k + 2], other[k + 2]) - max(one[k], other[k]) + 1 for k in range(2)]
    both = max(sides[0], 0) * max(sides[1], 0)
    areas = [(b[2] - b[0] + 1) * (b[3] - b[1] + 1) for b in (one, other)]
    return float(both / (sum(areas) - both))


def offsets(box: Any, thing: Any, weights: Any = (1, 1, 1, 1)) -> Any:
    size, length = box[2:] - box[:2] + 1, thing[2:] - thing[:2] + 1
    moved = ((thing[:2] + length / 2) - (box[:2] + size / 2)) / size
    return np.array([*moved, *np.log(length / size)]) / weights


@reference("rpn_target_assign")
def rpn_target_assign(ins: Slots, attrs: Slots) -> Slots:
    places: list[int] = []
    scores: list[int] = []
    moved: list[Any] = []
    labels: list[int] = []
    weights: list[list[float]] = []
    anchors, batch = ins["Anchor"], attrs["rpn_batch_size_per_im"]
    for n, (begin, end) in enumerate(pairwise(ins["GtBoxes@LOD"][-1])):
        height, width, scale = ins["ImInfo"][n]
        t = attrs["rpn_straddle_thresh"]
        inside = [
            k for k, b in enumerate(anchors)
            if t < 0 or (min(b[:2]) >= -t and b[2] < width + t and b[3] < height + t)
        ]  # fmt: skip
        objects = [
            box * scale
            for box, crowd in zip(
                ins["GtBoxes"][begin:end], ins["IsCrowd"][begin:end].ravel(), strict=True
            )
            if not crowd
        ]
        share = {k: [shared(anchors[k], thing) for thing in objects] for k in inside}
        tops = [max(share[k][m] for k in inside) for m in range(len(objects))]
        front = [
            k for k in inside
            if max(share[k]) >= attrs["rpn_positive_overlap"]
            or any(abs(s - top) < 1e-5 for s, top in zip(share[k], tops, strict=True))
        ][: int(batch * attrs["rpn_fg_fraction"])]  # fmt: skip
        back = [k for k in inside if max(share[k]) < attrs["rpn_negative_overlap"]]
        back = back[: batch - len(front)]
        both = [k for k in front if k in back]
        real = [k for k in front if k not in back]
        learnt = front[:1] * len(both) + real
        places += [k + n * len(anchors) for k in learnt]
        scores += [k + n * len(anchors) for k in real + back]
        moved += [offsets(anchors[k], objects[int(np.argmax(share[k]))]) for k in learnt]
        labels += [1] * len(real) + [0] * len(back)
        weights += [[0.0] * 4] * len(both) + [[1.0] * 4] * len(real)
    return {
        "LocationIndex": np.array(places),
        "ScoreIndex": np.array(scores),
        "TargetBBox": np.array(moved),
        "TargetLabel": np.array(labels)[:, None],
        "BBoxInsideWeight": np.array(weights),
    }


def regions(ins: Slots, attrs: Slots, rois_at: Any, objects_at: Any) -> list[Any]:
    """(region, class, offsets) of each image."""
    images = []
    for n, (begin, end) in enumerate(pairwise(objects_at)):
        scale, things = ins["ImInfo"][n, 2], ins["GtBoxes"][begin:end]
        boxes = [box / scale for box in ins["RpnRois"][rois_at[n] : rois_at[n + 1]]]
        cascade = attrs["is_cascade_rcnn"]
        crowd = [] if cascade else ins["IsCrowd"][begin:end].ravel()
        boxes = boxes if cascade else [*things, *boxes]
        front, back = [], []
        for k, box in enumerate(boxes):
            shares = [shared(box, thing) for thing in things]
            most = -1 if k < len(crowd) and crowd[k] else max(shares)
            label = int(ins["GtClasses"].ravel()[begin + int(np.argmax(shares))])
            if most >= attrs["fg_thresh"]:
                moved = offsets(box, things[int(np.argmax(shares))], attrs["bbox_reg_weights"])
                front.append((box * scale, label, moved))
            elif attrs["bg_thresh_lo"] <= most < attrs["bg_thresh_hi"]:
                back.append((box * scale, 0, None))
        if not cascade:
            front = front[: int(attrs["batch_size_per_im"] * attrs["fg_fraction"])]
            back = back[: attrs["batch_size_per_im"] - len(front)]
        images.append(front + back)
    return images


@reference("generate_proposal_labels")
def generate_proposal_labels(ins: Slots, attrs: Slots) -> Slots:
    levels = ins["RpnRois@LOD"][-1], ins["GtBoxes@LOD"][-1]
    rows = [row for image in regions(ins, attrs, *levels) for row in image]
    wide = np.zeros((2, len(rows), attrs["class_nums"], 4))
    for k, (_, label, moved) in enumerate(rows):
        if label:
            column = 1 if attrs["is_cls_agnostic"] else label
            wide[0, k, column], wide[1, k, column] = moved, 1
    wide = wide.reshape(2, len(rows), -1)
    return {
        "Rois": np.array([box for box, *_ in rows]),
        "LabelsInt32": np.array([[label] for _, label, _ in rows]),
        "BboxTargets": wide[0],
        "BboxInsideWeights": wide[1],
        "BboxOutsideWeights": wide[1],
    }


@reference("lod_of_regions")
def lod_of_regions(ins: Slots, attrs: Slots) -> Slots:
    images = regions(ins, attrs, ins["RpnRois@LOD"][-1], ins["GtBoxes@LOD"][-1])
    return {"Out": np.cumsum([0, *map(len, images)])}


def with_masks(labels: Any, ends: Any) -> list[list[int]]:
    """Numbers of the regions of each image that have a mask."""
    images = []
    for begin, end in pairwise(ends):
        own = labels.ravel()[begin:end]
        front = [k for k, label in enumerate(own) if label > 0]
        images.append(front or [k for k, label in enumerate(own) if label == 0][:1])
    return images


def mask(outline: Any, size: int) -> Any:
    """Pixels by how often the outline, walked in fifths of a pixel, passes their column's middle above them."""
    outline = [[int(5 * float(v) + 0.5) for v in point] for point in outline]
    walk = []
    for begin, end in pairwise([*outline, outline[0]]):
        along = int(abs(end[0] - begin[0]) < abs(end[1] - begin[1]))
        steps = abs(end[along] - begin[along])
        low, high = (begin, end) if begin[along] <= end[along] else (end, begin)
        line = []
        for t in range(steps + 1):
            other = low[1 - along] + (high[1 - along] - low[1 - along]) / max(steps, 1) * t
            point = (low[along] + t, int(other + 0.5))
            line.append(point if along == 0 else point[::-1])
        walk += line if low is begin else line[::-1]
    passes = []
    for (x, y), (next_x, next_y) in pairwise(walk):
        column = (next_x if next_x < x else next_x - 1) - 2
        if next_x != x and column % 5 == 0 and 0 <= column // 5 < size:
            row = np.ceil(min(max((min(y, next_y) + 0.5) / 5 - 0.5, 0), size))
            passes.append(column // 5 * size + int(row))
    cells = [sum(p <= cell for p in passes) % 2 for cell in range(size * size)]
    return np.array(cells).reshape(size, size).T


@reference("generate_mask_labels")
def generate_mask_labels(ins: Slots, attrs: Slots) -> Slots:
    size, (objects, polygons, points) = attrs["resolution"], ins["GtSegms@LOD"]
    boxes, masks = [], []
    numbers = with_masks(ins["LabelsInt32"], ins["Rois@LOD"][-1])
    for n, own in enumerate(numbers):
        real = [
            [ins["GtSegms"][points[p] : points[p + 1]] for p in range(*polygons[k : k + 2])]
            for k in range(*objects[n : n + 2])
            if ins["GtClasses"][k, 0] > 0 and not ins["IsCrowd"][k, 0]
        ]
        for number in own:
            at = ins["Rois@LOD"][-1][n] + number
            label = ins["LabelsInt32"][at, 0]
            box = ins["Rois"][at] / ins["ImInfo"][n, 2]
            boxes.append(box * ins["ImInfo"][n, 2])
            wide = np.full((attrs["num_classes"], size, size), -1)
            if label:
                corners = [np.concatenate(outlines) for outlines in real]
                share = [shared(box, [*c.min(0), *c.max(0)]) for c in corners]
                sides = np.maximum(box[2:] - box[:2], 1)
                outlines = real[int(np.argmax(share))]
                parts = [mask((o - box[:2]) * size / sides, size) for o in outlines]
                wide[label] = np.max(parts, 0)
            masks.append(wide.ravel())
    return {
        "MaskRois": np.array(boxes),
        "RoiHasMaskInt32": np.array([[k] for own in numbers for k in own]),
        "MaskInt32": np.array(masks),
    }


@reference("lod_of_masks")
def lod_of_masks(ins: Slots, attrs: Slots) -> Slots:
    images = with_masks(ins["LabelsInt32"], ins["Rois@LOD"][-1])
    return {"Out": np.cumsum([0, *map(len, images)])}


@reference("retinanet_target_assign")
def retinanet_target_assign(ins: Slots, attrs: Slots) -> Slots:
    names = ("LocationIndex", "ScoreIndex", "TargetBBox", "TargetLabel", "BBoxInsideWeight")
    columns: Slots = {name: [] for name in (*names, "ForegroundNumber")}
    anchors = ins["Anchor"]
    for n, (begin, end) in enumerate(pairwise(ins["GtBoxes@LOD"][-1])):
        objects = [
            (ins["GtBoxes"][k] * ins["ImInfo"][n, 2], ins["GtLabels"].ravel()[k])
            for k in range(begin, end)
            if not ins["IsCrowd"].ravel()[k]
        ]
        share = [[shared(anchor, thing) for thing, _ in objects] for anchor in anchors]
        tops = [max(column) for column in zip(*share, strict=True)]
        front, back = [], []
        for k, row in enumerate(share):
            best = any(abs(s - top) < 1e-5 for s, top in zip(row, tops, strict=True))
            if best or max(row) >= attrs["positive_overlap"]:
                front.append(k)
            if max(row) < attrs["negative_overlap"]:
                back.append(k)
        real = [k for k in front if k not in back]
        fake = [front[0]] * (len(front) - len(real))
        first = n * len(anchors)
        for k in fake + real:
            columns["TargetBBox"].append(offsets(anchors[k], objects[int(np.argmax(share[k]))][0]))
        columns["LocationIndex"] += [first + k for k in fake + real]
        columns["ScoreIndex"] += [first + k for k in real + back]
        labels = [objects[int(np.argmax(share[k]))][1] for k in real] + [0] * len(back)
        columns["TargetLabel"] += [[label] for label in labels]
        columns["BBoxInsideWeight"] += [[0.0] * 4] * len(fake) + [[1.0] * 4] * len(real)
        columns["ForegroundNumber"].append([len(fake) + len(real) + 1])
    return {name: np.array(rows) for name, rows in columns.items()}


def detections(ins: Slots, attrs: Slots) -> list[list[Any]]:
    """The rows of each image: class, score and box."""
    images = []
    for n, (height, width, scale) in enumerate(ins["ImInfo"]):
        by_class: dict[int, list[Any]] = {}
        for level, scores in enumerate(ins["Scores"]):
            lowest = attrs["score_threshold"] if level + 1 < len(ins["Scores"]) else 0
            ranked = sorted(
                ((-s, m, c) for (m, c), s in np.ndenumerate(scores[n]) if s > lowest),
                key=lambda entry: entry[0],
            )
            for minus, m, c in ranked[: attrs["nms_top_k"]]:
                anchor, delta = ins["Anchors"][level][m], ins["BBoxes"][level][n, m]
                size = anchor[2:] - anchor[:2] + 1
                middle = anchor[:2] + size / 2 + delta[:2] * size
                size = size * np.exp(delta[2:])
                box = np.array([*(middle - size / 2), *(middle + size / 2 - 1)]) / scale
                last = [round(width / scale) - 1, round(height / scale) - 1] * 2
                box = np.minimum(np.maximum(box, 0), last)
                by_class.setdefault(c + 1, []).append((-minus, box))
        rows = []
        for label, pairs in sorted(by_class.items()):
            scores, boxes = [s for s, _ in pairs], [b for _, b in pairs]
            stay = staying(boxes, scores, attrs["nms_threshold"], attrs["nms_eta"], 1)
            rows += [[label, scores[k], *boxes[k]] for k in stay]
        best = sorted(rows, key=lambda row: -row[1])
        images.append(best if attrs["keep_top_k"] < 0 else best[: attrs["keep_top_k"]])
    return images


@reference("retinanet_detection_output")
def retinanet_detection_output(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.array([row for image in detections(ins, attrs) for row in image])}


@reference("lod_of_detections")
def lod_of_detections(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.cumsum([0, *map(len, detections(ins, attrs))])}
