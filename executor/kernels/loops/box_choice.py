"""What boxes have in common, and which of them stay, in compiled loops.

They are the compiled forms of functions of ``graph/ops/box_choice.py`` and ``locality_nms.py``, on which sizes
depend. Coordinates stand in planes, [4, K], so that loops over boxes are vectors. A product is rounded before
it enters a sum, as NumPy's are.
"""

from __future__ import annotations

import numpy as np

from ....graph.ops import box_choice as ops
from ....graph.ops import locality_nms
from ....graph.ops.largest import largest_first
from ....graph.ops.operands import Array
from ...codegen.text_loops import bind_text
from .host_function import compiled

_FUNCTIONS = """
def area_of(left, top, right, bottom, end):
    width, height = right - left, bottom - top
    none = (width < np.float32(0)) | (height < np.float32(0))
    return select(none, np.float32(0), product(width + end, height + end))

def side_of(first, last, other_first, other_last, end, shortest):
    length = least(last, other_last) - largest(first, other_first) + end
    return product(length, select(length >= shortest, np.float32(1), np.float32(0)))

def share_of(width, height, area, other_area):
    common = product(width, height)
    share = common / (area + other_area - common)
    return select(share > np.float32(0), share, np.float32(0))
"""
_AREAS = """
    for j in range({count}):
        store({areas}, j, area_of(load({planes}, j), load({planes}, {count} + j),
            load({planes}, 2 * {count} + j), load({planes}, 3 * {count} + j), end))
"""
# Of a box, whose sides have names, with box j of L others
_SHARE = """
            first, last = load(planes, j), load(planes, 2 * L + j)
            width = side_of(left, right, first, last, end, shortest)
            first, last = load(planes, L + j), load(planes, 3 * L + j)
            height = side_of(top, bottom, first, last, end, shortest)
            share = share_of(width, height, area, load(areas, j))
"""
_OVERLAP = (
    "    end, shortest = settings[0], settings[1]"
    + _AREAS.format(count="L", planes="planes", areas="areas")
    + """
    for k in range(K):
        left, top, right, bottom = boxes[4 * k], boxes[4 * k + 1], boxes[4 * k + 2], boxes[4 * k + 3]
        area = area_of(left, top, right, bottom, end)
        for j in range(L):"""
    + _SHARE
    + "            store(out, k * L + j, share)\n"
)
# ``share[j]``: the most that box j has in common with one that stays.
_SUPPRESSED = (
    "    end, shortest = settings[0], settings[1]"
    + _AREAS.format(count="L", planes="planes", areas="areas")
    + """
    for j in range(L):
        store(shares, j, np.float32(0))
    count, threshold = np.int64(0), limits[0]
    for k in range(L if most != 0 else 0):
        if shares[k] > np.float32(threshold):
            continue
        stay[count] = k
        count += 1
        if count == most:
            break
        if limits[1] < 1.0 and threshold > 0.5:
            threshold *= limits[1]
        left, top, right, bottom = planes[k], planes[L + k], planes[2 * L + k], planes[3 * L + k]
        area = areas[k]
        for j in range(k + 1, L):"""
    + _SHARE
    + """
            before = load(shares, j)
            store(shares, j, select(share > before, share, before))
    total[0] = count
"""
)
# Box k, and the last of those that are left: the mean of two, by their scores, takes the place of this.
_MERGED = """
    end, shortest, threshold = settings[0], settings[1], limits[0]
    stay[0], count = 0, np.int64(1)
    for k in range(1, K):
        to, o = 4 * stay[count - 1], 4 * k
        width = side_of(boxes[o], boxes[o + 2], boxes[to], boxes[to + 2], end, shortest)
        height = side_of(boxes[o + 1], boxes[o + 3], boxes[to + 1], boxes[to + 3], end, shortest)
        area = area_of(boxes[o], boxes[o + 1], boxes[o + 2], boxes[o + 3], end)
        other = area_of(boxes[to], boxes[to + 1], boxes[to + 2], boxes[to + 3], end)
        if np.float64(share_of(width, height, area, other)) > threshold:
            own, before = scores[k], scores[stay[count - 1]]
            for i in range(4):
                parts = product(boxes[o + i], own) + product(boxes[to + i], before)
                boxes[to + i] = parts / (own + before)
            scores[stay[count - 1]] = own + before
        else:
            stay[count] = k
            count += 1
    total[0] = count
"""


def _single(*boxes: Array) -> bool:
    return all(b.dtype == np.float32 and b.size for b in boxes)


def _settings(normalized: bool, nearby: bool = False) -> Array:
    """Return what is added to a side, and the least side that two boxes share."""
    end = 0 if normalized else 1
    return np.array([end, end - (1 if nearby else 0)], np.float32)


@compiled(ops.overlap)
def overlap(boxes: Array, others: Array, normalized: bool, nearby: bool = False) -> Array | None:
    """Compute rows of as many elements as there are boxes of the larger number."""
    if not _single(boxes, others):
        return None
    if len(others) < len(boxes):
        return ops.overlap(others, boxes, normalized, nearby).T
    arrays = {
        "boxes": np.ascontiguousarray(boxes),
        "planes": np.ascontiguousarray(others.T),
        "areas": np.empty(len(others), np.float32),
        "out": np.empty((len(boxes), len(others)), np.float32),
        "settings": _settings(normalized, nearby),
    }
    bind_text(_OVERLAP, arrays, _FUNCTIONS, K=len(boxes), L=len(others))()
    return arrays["out"]


@compiled(ops.suppressed)
def suppressed(
    boxes: Array,
    scores: Array,
    threshold: float,
    eta: float = 1.0,
    normalized: bool = True,
    most: int = -1,
) -> Array | None:
    """Compare each box that stays with all that come after it."""
    if not _single(boxes):
        return None
    order, count = largest_first(scores), len(boxes)
    arrays = {
        "planes": np.ascontiguousarray(boxes[order].T),
        "areas": np.empty(count, np.float32),
        "shares": np.empty(count, np.float32),
        "stay": np.empty(count, np.int64),
        "total": np.zeros(1, np.int64),
        "settings": _settings(normalized),
        "limits": np.array([threshold, eta], np.float64),
    }
    bind_text(_SUPPRESSED, arrays, _FUNCTIONS, L=count, most=most)()
    return order[arrays["stay"][: arrays["total"][0]]]


@compiled(locality_nms.merged)
def merged(boxes: Array, scores: Array, normalized: bool, threshold: float) -> Array | None:
    """Compare each box with the last one that is left."""
    if not _single(boxes, scores) or boxes.shape[1] != 4 or not boxes.flags.c_contiguous:
        return None
    arrays = {
        "boxes": boxes,
        "scores": scores,
        "stay": np.empty(len(boxes), np.int64),
        "total": np.empty(1, np.int64),
        "settings": _settings(normalized),
        "limits": np.array([threshold], np.float64),
    }
    bind_text(_MERGED, arrays, _FUNCTIONS, K=len(boxes))()
    return arrays["stay"][: arrays["total"][0]]
