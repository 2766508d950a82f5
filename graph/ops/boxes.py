"""Boxes of images [x0, y0, x1, y1]: those that detectors begin with, and how they overlap.

SSD: Liu et al., arXiv 1512.02325. Faster R-CNN: Ren et al., arXiv 1506.01497.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import formula as f
from .operands import Array, Input, Operands, Output, named
from .registry import Inference, define
from .samples import sample
from .shapes import Sized


class IouSimilarity(Operands):
    x: Input
    y: Input
    out: Output
    box_normalized: bool = True


def iou_similarity(a: IouSimilarity) -> f.Results:
    """What two boxes share, of what they cover; without ``box_normalized`` ends are pixels of their own."""
    end = 0 if a.box_normalized else 1

    def area(boxes: Array) -> Array:
        return (boxes[:, 2] - boxes[:, 0] + end) * (boxes[:, 3] - boxes[:, 1] + end)

    sides = [
        f.minimum(a.x[:, k + 2].reshape(-1, 1), a.y[:, k + 2])
        - f.maximum(a.x[:, k].reshape(-1, 1), a.y[:, k])
        + end
        for k in range(2)
    ]
    shared = f.maximum(sides[0], 0) * f.maximum(sides[1], 0)
    return {"out": shared / (area(a.x).reshape(-1, 1) + area(a.y) - shared + 1e-10)}


define(
    "iou_similarity",
    IouSimilarity,
    Sized("X [N 4], Y [M 4] -> Out [N M]"),
    formula=iou_similarity,
    samples=(
        sample("X uniform [3 4], Y uniform [2 4]"),
        sample("X uniform [3 4], Y 0.0:5.0 [2 4]", box_normalized=False),
    ),
)


class PolygonBoxTransform(Operands):
    input: Input
    output: Output


def polygon_box_transform(a: PolygonBoxTransform) -> f.Results:
    """4 times a pixel's column (row, for odd channels) less the offset. EAST: Zhou et al., arXiv 1704.03155."""
    rows, columns = np.indices(a.input.shape[2:]) * 4
    pairs = np.stack([columns, rows] * (a.input.shape[1] // 2))
    return {"output": f.table(pairs, a.input.dtype) - a.input}


define(
    "polygon_box_transform",
    PolygonBoxTransform,
    Sized(
        "Input [N channels H W] -> Output",
        "channels % 2 == 0; Input must be [N, 2 x corners, H, W]",
    ),
    formula=polygon_box_transform,
    samples=(sample("Input [2 4 3 5]"),),
)


def _grid(image: Sequence[int], steps: Sequence[float], offset: float) -> tuple[Any, Any]:
    """Return the middles of cells, columns and rows, [H, W, 1]."""
    rows, columns = np.indices(image)[..., None]
    return (columns + offset) * steps[0], (rows + offset) * steps[1]


def _boxes(x: Any, y: Any, widths: Any, heights: Any) -> Any:
    """Return boxes [H, W, number, 4] by their middles and sizes."""
    sides = np.broadcast_arrays(x - widths / 2, y - heights / 2, x + widths / 2, y + heights / 2)
    return np.stack(sides, -1)


def _with_variances(a: Any, boxes: Any, dtype: Any) -> list[Array]:
    variances = np.broadcast_to(np.asarray(a.variances), boxes.shape)
    return [f.table(array, dtype) for array in (boxes, variances)]


_IMAGE = (
    "H > 0 and W > 0; Input must have a height and a width",
    "len(variances) == 4 and min(variances) > 0; variances must be 4 numbers above 0",
)
_IMAGES_OF = (
    *_IMAGE,
    "len(Image) == 4 and 0 not in Image[2:]; Image must be [N, C, H, W], with a height and a width",
)


class AnchorGenerator(Operands):
    input: Input
    anchors: Output
    variances_out: Output = named("Variances")
    anchor_sizes: Sequence[float] = []
    aspect_ratios: Sequence[float] = []
    variances: Sequence[float] = [0.1, 0.1, 0.2, 0.2]
    stride: Sequence[float] = []
    offset: float = 0.5


def anchor_generator(a: AnchorGenerator) -> f.Results:
    """Boxes of each ratio and size around each cell, in pixels, ends included."""
    width, height = a.stride
    sizes = []
    for ratio in a.aspect_ratios:
        base = _rounded(math.sqrt(width * height / ratio))
        for size in a.anchor_sizes:
            sizes.append((size / width * base - 1, size / height * _rounded(base * ratio) - 1))
    cells = np.array(a.stride) - 1
    rows, columns = np.indices(a.input.shape[2:])[..., None]
    x, y = columns * width + a.offset * cells[0], rows * height + a.offset * cells[1]
    anchors, variances = _with_variances(a, _boxes(x, y, *np.array(sizes).T), a.input.dtype)
    return {"anchors": anchors, "variances_out": variances}


def _rounded(x: float) -> float:
    """Round halves away from 0, as C does."""
    return math.floor(x + 0.5)


_ANCHORS = {"anchor_sizes": [16.0, 32.0], "aspect_ratios": [0.5, 1.0, 2.0], "stride": [8.0, 16.0]}
define(
    "anchor_generator",
    AnchorGenerator,
    Sized(
        "Input [N C H W] -> Anchors [H W number 4], Variances [H W number 4]",
        *_IMAGE,
        "min(anchor_sizes, default=0) > 0; anchor_sizes must be numbers above 0",
        "min(aspect_ratios, default=0) > 0; aspect_ratios must be numbers above 0",
        "len(stride) == 2 and min(stride) > 0; stride must be a pair above 0",
        "number = len(anchor_sizes) * len(aspect_ratios)",
    ),
    formula=anchor_generator,
    shapes_of=("Input",),
    samples=(sample("Input [1 2 3 4]", **_ANCHORS),),
)


class PriorAttributes(Operands):
    input: Input
    image: Input
    boxes: Output
    variances_out: Output = named("Variances")
    variances: Sequence[float] = [0.1, 0.1, 0.2, 0.2]
    clip: bool = True
    step_w: float = 0.0
    step_h: float = 0.0
    offset: float = 0.5


class PriorBox(PriorAttributes):
    min_sizes: Sequence[float] = []
    max_sizes: Sequence[float] = []
    aspect_ratios: Sequence[float] = []
    flip: bool = True
    min_max_aspect_ratios_order: bool = False
    use_mkldnn: bool = False
    use_quantizer: bool = False


class DensityPriorBox(PriorAttributes):
    flatten_to_2d: bool = False
    fixed_sizes: Sequence[float] = []
    fixed_ratios: Sequence[float] = []
    densities: Sequence[int] = []


def _ratios(aspect_ratios: Sequence[float], flip: bool) -> list[float]:
    """Return 1 and the ratios that differ from those before them, with their inverses if ``flip``."""
    ratios = [1.0]
    for ratio in aspect_ratios:
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    return ratios


def _priors_of_a_cell(op: Inference) -> dict[str, int]:
    ratios = _ratios(op.attr("aspect_ratios"), op.attr("flip"))
    return {"number": len(ratios) * len(op.attr("min_sizes")) + len(op.attr("max_sizes"))}


def _steps(a: PriorAttributes) -> tuple[float, float]:
    """Return how far cells are apart, in pixels of Image."""
    apart = [n / m for n, m in zip(a.image.shape[:1:-1], a.input.shape[:1:-1], strict=True)]
    return (a.step_w, a.step_h) if a.step_w and a.step_h else (apart[0], apart[1])


def _priors(a: Any, boxes: Any, least: float = -np.inf, most: float = np.inf) -> f.Results:
    """Return boxes as shares of the image; first corners are ``least`` or more, the others up to ``most``."""
    height, width = a.image.shape[2:]
    boxes = boxes / np.array([width, height] * 2)
    boxes = np.concatenate((boxes[..., :2].clip(least), boxes[..., 2:].clip(None, most)), -1)
    boxes = boxes.clip(0, 1) if a.clip else boxes
    boxes, variances = _with_variances(a, boxes.reshape(a.boxes.shape), a.input.dtype)
    return {"boxes": boxes, "variances_out": variances}


def prior_box(a: PriorBox) -> f.Results:
    """Boxes of the least size in each ratio, and one between the least and the largest, around each cell."""
    sides: list[tuple[float, float]] = []
    for k, size in enumerate(a.min_sizes):
        first = [(size, size)]
        ratios = [
            (size * math.sqrt(ratio), size / math.sqrt(ratio))
            for ratio in _ratios(a.aspect_ratios, a.flip)[1:]
        ]
        between = [(math.sqrt(size * high),) * 2 for high in a.max_sizes[k : k + 1]]
        order = (
            [first, between, ratios] if a.min_max_aspect_ratios_order else [first, ratios, between]
        )
        sides += [pair for part in order for pair in part]
    x, y = _grid(a.input.shape[2:], _steps(a), a.offset)
    return _priors(a, _boxes(x, y, *np.array(sides).T))


def density_prior_box(a: DensityPriorBox) -> f.Results:
    """Boxes of each size and ratio at ``densities`` squared places in each cell, cut at the image's edges."""
    step = int(sum(_steps(a)) * 0.5)
    places: list[tuple[float, ...]] = []
    for size, count in zip(a.fixed_sizes, a.densities, strict=True):
        shift = step // count
        for ratio in a.fixed_ratios:
            root = math.sqrt(ratio)
            for i, j in np.ndindex(count, count):
                dx, dy = (k * shift - step / 2 + shift / 2 for k in (j, i))
                places.append((dx, dy, size * root, size / root))
    dx, dy, widths, heights = np.array(places).T
    x, y = _grid(a.input.shape[2:], _steps(a), a.offset)
    return _priors(a, _boxes(x + dx, y + dy, widths, heights), 0, 1)


_IMAGES = "Input [1 2 3 4], Image [1 3 24 40]"
_SIZES = {"min_sizes": [4.0, 8.0], "max_sizes": [6.0, 12.0], "aspect_ratios": [2.0, 1.0, 3.0]}
_DENSE = {"fixed_sizes": [4.0, 8.0], "fixed_ratios": [1.0, 2.0], "densities": [2, 1]}
define(
    "prior_box",
    PriorBox,
    Sized(
        "Input [N C H W], Image -> Boxes [H W number 4], Variances [H W number 4]",
        *_IMAGES_OF,
        "min(min_sizes, default=0) > 0; min_sizes must be numbers above 0",
        "len(max_sizes) in (0, len(min_sizes)); max_sizes must be as many as min_sizes",
        "every(low < high for low, high in zip(min_sizes, max_sizes)); max_sizes must be larger",
        "min(aspect_ratios, default=1) > 0; aspect_ratios must be above 0",
        _priors_of_a_cell,
    ),
    formula=prior_box,
    shapes_of=("Input", "Image"),
    samples=(
        sample(_IMAGES, **_SIZES),
        sample(
            _IMAGES,
            **_SIZES,
            flip=False,
            clip=False,
            step_w=9.0,
            step_h=7.0,
            min_max_aspect_ratios_order=True,
        ),
    ),
)
define("density_prior_box", DensityPriorBox, Sized(
        "Input [N C H W], Image -> Boxes [*cells 4], Variances [*cells 4]",
        *_IMAGES_OF,
        "len(fixed_sizes) == len(densities); there must be as many fixed_sizes as densities",
        "min(*fixed_sizes, *densities, 1) > 0 and fixed_sizes; sizes must be above 0",
        "min(fixed_ratios, default=0) > 0; fixed_ratios must be numbers above 0",
        "number = len(fixed_ratios) * sum(n * n for n in densities)",
        "cells = (H * W * number,) if flatten_to_2d else (H, W, number)",
    ), formula=density_prior_box, shapes_of=("Input", "Image"), samples=(
            sample(_IMAGES, **_DENSE),
            sample(_IMAGES, **_DENSE, clip=True, flatten_to_2d=True, step_w=9.0, step_h=7.0)
        ))  # fmt: skip
