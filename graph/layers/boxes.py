"""Layers of boxes: those that detectors begin with, and how boxes overlap."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidValue, require_type
from ..program.variable import Variable
from .arguments import integers, number
from .helper import constant_layers, layer, layers

_VARIANCES = (0.1, 0.1, 0.2, 0.2)


def iou_similarity(
    x: Variable, y: Variable, box_normalized: bool = True, name: str | None = None
) -> Variable:
    """Return the overlap (intersection over union) of boxes [N, 4] and [M, 4]: [N, M].

    Boxes are (x0, y0, x1, y1); without ``box_normalized`` x1 and y1 are pixels that belong to them.
    """
    return layer("iou_similarity", name, x=x, y=y, box_normalized=box_normalized)


def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Offsets [N, 2 corners, H, W] from pixels, four apart, as places in the image."""
    return layer("polygon_box_transform", name, input=input)


def numbers(value: Any, argument: str, layer: str, count: int = 0) -> list[float]:
    """Return one number or several as a list of floats, of ``count`` numbers if that is given."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if count and (items is not value or len(items) != count):
        raise InvalidValue(f"{layer}: {argument} must be a list of {count} numbers, got {value!r}.")
    return [number(item, argument, layer) for item in items]


def _pair(
    op_type: str, inputs: dict[str, Variable], attrs: Any, first: str, name: str | None
) -> tuple[Variable, Variable]:
    """Append an op that makes boxes and their variances; no gradient passes."""
    results = f"{first} Variances"
    boxes, variances = constant_layers(op_type, name, results, **inputs, **attrs)
    return boxes, variances


def anchor_generator(
    input: Variable,
    anchor_sizes: Any = None,
    aspect_ratios: Any = None,
    variance: Any = _VARIANCES,
    stride: Any = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Boxes of each ratio and size around each cell of ``input`` [N, C, H, W], in pixels, and their variances.

    Both are [H, W, ratios x sizes, 4]; cells are ``stride`` (width, height) apart. arXiv 1506.01497.
    """
    layer = "anchor_generator"
    attrs = {
        "anchor_sizes": numbers(anchor_sizes, "anchor_sizes", layer),
        "aspect_ratios": numbers(aspect_ratios, "aspect_ratios", layer),
        "variances": numbers(variance, "variance", layer, 4),
        "stride": numbers(stride, "stride", layer, 2),
        "offset": offset,
    }
    return _pair(layer, {"Input": input}, attrs, "Anchors", name)


def _places(layer: str, variance: Any, clip: bool, steps: Any, offset: float) -> dict[str, Any]:
    step_w, step_h = numbers(steps, "steps", layer, 2)
    return {
        "variances": numbers(variance, "variance", layer, 4),
        "clip": clip,
        "step_w": step_w,
        "step_h": step_h,
        "offset": offset,
    }


def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: Any,
    max_sizes: Any = None,
    aspect_ratios: Any = (1.0,),
    variance: Any = _VARIANCES,
    flip: bool = False,
    clip: bool = False,
    steps: Any = (0.0, 0.0),
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """Boxes around each cell of ``input`` as shares of ``image``, and their variances: [H, W, boxes, 4].

    Each of ``min_sizes`` has a box for every ratio (and its inverse with ``flip``), and one for its largest.
    Liu et al., arXiv 1512.02325.
    """
    layer = "prior_box"
    attrs = {
        "min_sizes": numbers(min_sizes, "min_sizes", layer),
        "aspect_ratios": numbers(aspect_ratios, "aspect_ratios", layer),
        "flip": flip,
        "min_max_aspect_ratios_order": min_max_aspect_ratios_order,
        **_places(layer, variance, clip, steps, offset),
    }
    largest = numbers(max_sizes or (), "max_sizes", layer)
    if largest and largest[0] > 0:
        attrs["max_sizes"] = largest
    return _pair(layer, {"Input": input, "Image": image}, attrs, "Boxes", name)


def density_prior_box(
    input: Variable,
    image: Variable,
    densities: Any = None,
    fixed_sizes: Any = None,
    fixed_ratios: Any = None,
    variance: Any = _VARIANCES,
    clip: bool = False,
    steps: Any = (0.0, 0.0),
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """As :func:`prior_box`; each of ``fixed_sizes`` has boxes at its density squared places in each cell.

    With ``flatten_to_2d`` [boxes of all cells, 4]. Zhang et al., "FaceBoxes", arXiv 1708.05234.
    """
    layer = "density_prior_box"
    lists = {"densities": densities, "fixed_sizes": fixed_sizes, "fixed_ratios": fixed_ratios}
    for argument, value in lists.items():
        require_type(value, list | tuple, f"{layer}: {argument} must be a list or a tuple")
    if len(densities) != len(fixed_sizes):
        raise InvalidValue(f"{layer}: densities and fixed_sizes must have one length.")
    attrs = {
        "densities": [int(n) for n in numbers(densities, "densities", layer)],
        "fixed_sizes": numbers(fixed_sizes, "fixed_sizes", layer),
        "fixed_ratios": numbers(fixed_ratios, "fixed_ratios", layer),
        "flatten_to_2d": flatten_to_2d,
        **_places(layer, variance, clip, steps, offset),
    }
    return _pair(layer, {"Input": input, "Image": image}, attrs, "Boxes", name)


def box_coder(
    prior_box: Variable,
    prior_box_var: Any,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Boxes [N, 4] as offsets [N, M, 4] from priors [M, 4], or ("decode_center_size") boxes of offsets.

    ``prior_box_var`` scales offsets: [M, 4], a list of 4 numbers, or None. Of offsets [N, M, 4] the priors go
    along dimension 1, with ``axis`` 1 along 0.
    """
    op_type = "box_coder"
    inputs = {"PriorBox": prior_box, "TargetBox": target_box}
    attrs = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis}
    if isinstance(prior_box_var, Variable):
        inputs["PriorBoxVar"] = prior_box_var
    elif prior_box_var is not None:
        attrs["variance"] = numbers(prior_box_var, "prior_box_var", op_type, 4)
    return layer(op_type, name, **inputs, **attrs)


def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Boxes [N, 4 classes] of offsets from priors, and [N, 4] those of the best class but the first.

    Args:
        prior_box: [N, 4], in pixels; the last ones belong to boxes.
        prior_box_var: [4], scales offsets.
        target_box: [N, 4 classes], the offsets.
        box_score: [N, classes]; class 0 is the background.
        box_clip: the most that the logarithm of a size may be.

    Raises:
        InvalidType: an argument has another type.
    """
    boxes, best = layers(
        "box_decoder_and_assign",
        name,
        "DecodeBox OutputAssignBox",
        prior_box=prior_box,
        prior_box_var=prior_box_var,
        target_box=target_box,
        box_score=box_score,
        box_clip=box_clip,
    )
    return boxes, best


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Any,
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """Boxes [N, A H W, 4] in pixels and scores [N, A H W, classes] of YOLOv3's output.

    Args:
        x: [N, A (5 + classes), H, W], for A anchors.
        img_size: [N, 2], integers: the heights and widths of the images.
        anchors: A pairs of width and height, of an image that is ``downsample_ratio`` times x.
        conf_thresh: below which confidence boxes and scores are zeros.

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    layer = "yolo_box"
    attrs = {
        "anchors": [int(n) for n in numbers(anchors, "anchors", layer)],
        "class_num": class_num,
        "conf_thresh": conf_thresh,
        "downsample_ratio": downsample_ratio,
        "clip_bbox": clip_bbox,
        "scale_x_y": scale_x_y,
    }
    boxes, scores = layers(layer, name, "Boxes Scores", x=x, img_size=img_size, **attrs)
    return boxes, scores


def _regions(
    op_type: str, x: Variable, rois: Variable, size: Any, scale: float, attrs: Any, **more: Any
) -> Variable:
    """Append a pool over regions."""
    bins = dict(zip(("pooled_height", "pooled_width"), size, strict=True))
    settings = {**bins, "spatial_scale": scale, **attrs}
    results = "Out Argmax" if op_type == "roi_pool" else "Out"
    return layers(op_type, None, results, "Argmax", X=x, ROIs=rois, **more, **settings)[0]


def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
) -> Variable:
    """The largest pixel of each bin of regions of images [N, C, H, W]: [regions, C, height, width].

    ``rois`` [regions, 4] are (x0, y0, x1, y1), of which ``spatial_scale`` makes pixels; those of image n are
    sequence n, or begin where ``rois_lod`` (int64 [N + 1]) says.
    """
    size = (pooled_height, pooled_width)
    return _regions("roi_pool", input, rois, size, spatial_scale, {}, RoisLod=rois_lod)


def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """The mean of ``sampling_ratio`` by as many points in each bin of regions, as for :func:`roi_pool`.

    A ratio up to 0 stands for a point for each pixel that a bin is high and wide.
    """
    size, attrs = (pooled_height, pooled_width), {"sampling_ratio": sampling_ratio}
    return _regions("roi_align", input, rois, size, spatial_scale, attrs, RoisLod=rois_lod)


def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """The mean of the pixels of each bin, of channels of its own: [regions, output_channels, height, width].

    ``input`` has ``output_channels`` x height x width channels; ``rois`` are as for :func:`roi_pool`.
    """
    size, attrs = (pooled_height, pooled_width), {"output_channels": output_channels}
    return _regions("psroi_pool", input, rois, size, spatial_scale, attrs)


def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_roi_nums: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The mean over each bin of what is linear between pixels; regions have a gradient, too.

    ``rois`` are as for :func:`roi_pool`, or ``batch_roi_nums`` (int64 [N]) says how many belong to each image.
    """
    size = (pooled_height, pooled_width)
    return _regions("prroi_pool", input, rois, size, spatial_scale, {}, BatchRoINums=batch_roi_nums)


def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: Any = (1, 1),
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: Any = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
) -> Variable:
    """The mean of points in each bin, bins being moved: [R, channels, pooled_height, pooled_width].

    Args:
        input: [N, C, H, W]; ``rois`` are as for :func:`roi_pool`.
        trans: [R, 2, rows, columns] of ``part_size`` (as many as bins): how far bins move, in ``trans_std`` of
            their region's size. With more classes two for each.
        no_trans: bins do not move.
        group_size: rows and columns of channels, of which each bin reads one.
        sample_per_part: how many points a bin has along each axis.
        position_sensitive: there are as many times the result's channels as bins.

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    layer = "deformable_roi_pooling"
    size = [pooled_height, pooled_width]
    assert input.shape is not None
    channels = input.shape[1] // (size[0] * size[1]) if position_sensitive else input.shape[1]
    attrs = {
        "no_trans": no_trans,
        "spatial_scale": spatial_scale,
        "output_dim": channels,
        "group_size": integers(group_size, "group_size", layer, 2),
        "pooled_height": size[0],
        "pooled_width": size[1],
        "part_size": size if part_size is None else integers(part_size, "part_size", layer, 2),
        "sample_per_part": sample_per_part,
        "trans_std": trans_std,
    }
    slots = {"Input": input, "ROIs": rois, "Trans": trans}
    results = "Output TopCount"
    return layers("deformable_psroi_pooling", name, results, "TopCount", **slots, **attrs)[0]


def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: int,
    transformed_width: int,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Quadrilaterals of images made upright.

    Args:
        input: [N, C, H, W].
        rois: [R, 8], x and y of each corner, clockwise from the top left one; image n has those of sequence n.

    Returns:
        [R, C, transformed_height, transformed_width]; int32 [R, 1, ...], 1 where that is within a region and
        its image; and [R, 9], the matrices that lead back.

    Raises:
        InvalidType: an argument has another type.
    """
    layer = "roi_perspective_transform"
    out, mask, matrix = layers(
        layer,
        name,
        "Out Mask TransformMatrix",
        "Mask TransformMatrix",
        X=input,
        ROIs=rois,
        transformed_height=transformed_height,
        transformed_width=transformed_width,
        spatial_scale=spatial_scale,
    )
    return out, mask, matrix
