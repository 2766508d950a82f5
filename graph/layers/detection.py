"""Layers of detectors: what they learn from, and which of their boxes stay.

SSD: Liu et al., arXiv 1512.02325. YOLOv3: Redmon and Farhadi, arXiv 1804.02767.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, Unsupported
from ..program.variable import Variable
from .boxes import box_coder, iou_similarity, prior_box
from .conv import conv2d
from .helper import LayerHelper, constant_layer, constant_layers, layer, layers
from .label_loss import smooth_l1
from .loss import softmax_with_cross_entropy
from .shape import cast, concat, flatten, reduce_sum, reshape, shape, slice, transpose
from .unary import softmax

_VARIANCES = (0.1, 0.1, 0.2, 0.2)


def yolov3_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """The loss [N] of one map of YOLOv3, [N, M (5 + class_num), H, H].

    Args:
        x: for each of M anchors: place, size, how sure it is, and classes, before their sigmoids.
        gt_box: [N, B, 4], middles and sizes as shares of the image; of no size where there is no box.
        gt_label: [N, B], int32.
        anchors: widths and heights of the anchors of all maps, in pixels.
        anchor_mask: the numbers of those of this map.
        ignore_thresh: cells whose box overlaps a real one by more need not be sure of none.
        downsample_ratio: how many pixels a cell is wide.
        gt_score: [N, B], how much boxes count in mixed images.

    Raises:
        InvalidType: an argument has another type.
        ShapeError: the operands do not fit together.
    """
    op_type = "yolov3_loss"
    inputs = {"X": x, "GTBox": gt_box, "GTLabel": gt_label, "GTScore": gt_score}
    if not isinstance(use_label_smooth, bool):
        raise InvalidType(f"{op_type}: use_label_smooth must be a bool, got {use_label_smooth!r}.")
    attrs = {
        "anchors": list(anchors),
        "anchor_mask": list(anchor_mask),
        "class_num": class_num,
        "ignore_thresh": ignore_thresh,
        "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
        "scale_x_y": scale_x_y,
    }
    masks = "ObjectnessMask GTMatchMask"
    return layers(op_type, name, f"Loss {masks}", masks, **inputs, **attrs)[0]


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Boxes [K, ..., 4] cut to their images, a sequence for each.

    ``im_info`` [N, 3] has heights, widths, and the factor of images since; boxes are of images before it.
    """
    return layer("box_clip", name, Input=input, ImInfo=im_info)


_NMS = (
    *("score_threshold", "nms_top_k", "keep_top_k", "nms_threshold"),
    *("normalized", "nms_eta", "background_label"),
)


def _suppress(
    op_type: str, bboxes: Variable, scores: Variable, settings: Sequence[Any], helper: LayerHelper
) -> Any:
    """Append a choice of boxes; return them and, if it has them, their numbers."""
    results = "Out Index" if op_type == "multiclass_nms2" else "Out"
    attrs = dict(zip(_NMS, settings, strict=True))
    return helper.constant_layers(op_type, results, BBoxes=bboxes, Scores=scores, **attrs)


def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """Suppress all but the best of overlapping boxes of a class: [K, 6], a sequence for each image.

    Rows are class, score and box. If none stays in any image, there is one row [-1].

    Args:
        bboxes: [N, M, 4]; or [M, classes, 4], a sequence for each image.
        scores: [N, classes, M]; or [M, classes].
        score_threshold: boxes with lower scores are left out.
        nms_top_k: how many of each class are looked at, -1: all.
        keep_top_k: how many of each image stay, -1: all.
        nms_threshold: of which overlap on the lower one goes.
        nms_eta: what the threshold is multiplied by when a box stays, while above 0.5.
        background_label: the class that is none, -1: there is no such class.

    Raises:
        InvalidType: an argument has another type.
    """
    limits = score_threshold, nms_top_k, keep_top_k, nms_threshold
    settings = (*limits, normalized, nms_eta, background_label)
    helper = LayerHelper("multiclass_nms", name)
    out: Variable = _suppress("multiclass_nms", bboxes, scores, settings, helper)[0]
    return out


def multiclass_nms2(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """As :func:`multiclass_nms`; with ``return_index`` also the numbers of those that stay: int32 [K, 1].

    If none stays, both have no row.
    """
    limits = score_threshold, nms_top_k, keep_top_k, nms_threshold
    settings = (*limits, normalized, nms_eta, background_label)
    helper = LayerHelper("multiclass_nms2", name)
    out, index = _suppress("multiclass_nms2", bboxes, scores, settings, helper)
    return (out, index) if return_index else out


def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """Boxes whose scores are lowered by what better ones cover, best first: [K, 6], a sequence for each image.

    Rows are class, score and box; with ``return_index`` also the numbers of those that stay: int32 [K, 1].

    Args:
        post_threshold: boxes whose scores are then lower are left out.
        use_gaussian: scores are lowered by a Gaussian of the share, ``gaussian_sigma`` wide; else linearly.
        bboxes: [N, M, 4]; ``scores`` [N, classes, M]. Other arguments are those of :func:`multiclass_nms`.
    """
    out, index = constant_layers(
        "matrix_nms",
        name,
        "Out Index",
        BBoxes=bboxes,
        Scores=scores,
        background_label=background_label,
        score_threshold=score_threshold,
        post_threshold=post_threshold,
        nms_top_k=nms_top_k,
        keep_top_k=keep_top_k,
        normalized=normalized,
        use_gaussian=use_gaussian,
        gaussian_sigma=gaussian_sigma,
    )
    return (out, index) if return_index else out


def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Variable:
    """Merge boxes with the one before where they overlap, then suppress: [K, D + 2], a sequence for each image.

    Args:
        bboxes: [N, M, D], D being 4, or 8, 16, 24 or 32 for polygons of so many x and y.
        scores: [N, 1, M]; a merged box has the sum of its parts', and is their mean by score.

    Other arguments are those of :func:`multiclass_nms`.

    Raises:
        InvalidArgument: there are several classes.
    """
    if scores.shape is None or len(scores.shape) != 3 or scores.shape[1] != 1:
        raise InvalidArgument(
            f"locality_aware_nms: scores must be [N, 1, M], of one class, not {scores.shape}."
        )
    limits = score_threshold, nms_top_k, keep_top_k, nms_threshold
    settings = (*limits, normalized, nms_eta, background_label)
    helper = LayerHelper("locality_aware_nms", name)
    out: Variable = _suppress("locality_aware_nms", bboxes, scores, settings, helper)[0]
    return out


def retinanet_detection_output(
    bboxes: list[Variable],
    scores: list[Variable],
    anchors: list[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Variable:
    """Return the boxes that RetinaNet detects: [K, 6], a sequence for each image, best first.

    Rows are class (from 1), score and box.

    Args:
        bboxes: of each map offsets [N, M, 4] from ``anchors`` [M, 4]; ``scores`` [N, M, classes].
        im_info: [N, 3] heights, widths, and the factor of images since; boxes are of images before it.
        score_threshold: boxes with lower scores are left out, but of the last map.
        nms_top_k: how many scores of each map are looked at, ``keep_top_k``: how many boxes of an image stay.
        nms_threshold: of which overlap on the lower one of a class goes.
        nms_eta: as in Paddle 1, whatever is asked for.

    Raises:
        InvalidType: an argument has another type.
    """
    for name, maps in (("bboxes", bboxes), ("scores", scores), ("anchors", anchors)):
        if not isinstance(maps, list):
            raise InvalidType(
                f"retinanet_detection_output: {name} must be a list of variables, one a map, got "
                f"{type(maps).__name__}."
            )
    return constant_layer(
        "retinanet_detection_output",
        BBoxes=bboxes,
        Scores=scores,
        Anchors=anchors,
        ImInfo=im_info,
        score_threshold=score_threshold,
        nms_top_k=nms_top_k,
        nms_threshold=nms_threshold,
        keep_top_k=keep_top_k,
        nms_eta=1.0,
    )


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Any:
    """Return the boxes that SSD detects, in the form of :func:`multiclass_nms`.

    ``loc`` are offsets [N, P, 4] from prior boxes, ``scores`` [N, P, classes].

    As in Paddle class 0 is the background, and the threshold stays, whatever is asked for.
    """
    boxes = box_coder(prior_box, prior_box_var, loc, code_type="decode_center_size")
    scores = transpose(softmax(scores), perm=[0, 2, 1])
    scores.stop_gradient = True
    settings = score_threshold, nms_top_k, keep_top_k, nms_threshold, True, 1.0, 0
    op_type = "multiclass_nms2" if return_index else "multiclass_nms"
    results = _suppress(op_type, boxes, scores, settings, LayerHelper("detection_output"))
    return results if return_index else results[0]


def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Sequence[Variable] | None = None,
    out_states: Sequence[Variable] | None = None,
    ap_version: str = "integral",
) -> Variable:
    """Return the mean average precision of a batch of detected boxes, over classes: [1].

    Args:
        detect_res: [K, 6], a sequence for each image: class, score and box, in shares of the image.
        label: [K, 6], a sequence for each image: class, 1 for an object that is hard to find, and box; or
            [K, 5] without the second.
        class_num: how many classes, with the background.
        background_label: as in Paddle 1, classes that have as many objects do not count.
        overlap_threshold: above which overlap an object is found.
        evaluate_difficult: count objects that are hard to find, too.
        has_state: int32 [1], whether earlier batches count, too: those that this op has measured in this scope,
            on this place, since it was 0.
        ap_version: "integral", or "11point": of the best precision from each tenth of the recall on.

    Raises:
        Unsupported: variables for the judgements of a pass, which grow by each step.
    """
    if input_states is not None or out_states is not None:
        raise Unsupported(
            "detection_map keeps the judgements of a pass itself: they grow by each step, and what lasts in a "
            "program keeps its shape. Leave input_states and out_states out; has_state has a pass go on."
        )
    return constant_layers(
        "detection_map",
        None,
        "AccumPosCount AccumTruePos AccumFalsePos MAP",
        DetectRes=detect_res,
        Label=label,
        HasState=has_state,
        class_num=class_num,
        background_label=background_label,
        overlap_threshold=overlap_threshold,
        evaluate_difficult=evaluate_difficult,
        ap_type=ap_version,
    )[-1]


def bipartite_match(
    dist_matrix: Variable,
    match_type: str | None = None,
    dist_threshold: float | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Match columns with rows: the largest element first, each row and column once.

    Args:
        dist_matrix: [G, P], sequences of rows for N images, or all for one.
        match_type: "bipartite", or "per_prediction": columns that are left take the row whose element is the
            largest, if it is ``dist_threshold`` or more.

    Returns:
        numbers of rows, int32 [N, P] (-1: none), and the elements, [N, P].
    """
    indices, shares = constant_layers(
        "bipartite_match",
        name,
        "ColToRowMatchIndices ColToRowMatchDist",
        DistMat=dist_matrix,
        match_type=match_type or "bipartite",
        dist_threshold=0.5 if dist_threshold is None else dist_threshold,
    )
    return indices, shares


def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: int | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return the target of each box, [N, P, K], and its weight, [N, P, 1].

    Args:
        input: [G, P or 1, K], a sequence of objects for each image.
        matched_indices: int32 [N, P], numbers of objects; where it is -1, ``mismatch_value`` is expected, which
            does not count.
        negative_indices: int32 [boxes, 1], a sequence for each image: boxes where ``mismatch_value`` counts.
    """
    out, weight = constant_layers(
        "target_assign",
        name,
        "Out OutWeight",
        X=input,
        MatchIndices=matched_indices,
        NegIndices=negative_indices,
        mismatch_value=mismatch_value or 0,
    )
    return out, weight


def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Variable | None = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """The loss [N, 1] of SSD: of places where boxes match objects, of classes there and where these are worst.

    Args:
        location: offsets [N, P, 4] of boxes from priors.
        confidence: scores [N, P, classes].
        gt_box: [G, 4], a sequence of objects for each image; ``gt_label`` [G, 1] are their classes.
        prior_box: [P, 4]; ``prior_box_var`` [P, 4] scales offsets.
        overlap_threshold: with how much in common boxes match.
        neg_pos_ratio: how many boxes without an object count for each with one.
        neg_overlap: those have less than this in common with any object.
        normalize: divide by the number of boxes that match.

    Raises:
        InvalidValue: ``mining_type`` is another than "max_negative".
    """
    if mining_type != "max_negative":
        raise InvalidValue(f"ssd_loss: mining_type must be 'max_negative', got {mining_type!r}.")
    helper = LayerHelper("ssd_loss")
    sizes = slice(shape(confidence), axes=[0], starts=[0], ends=[2])
    sizes.stop_gradient = True
    matched, shares = bipartite_match(
        iou_similarity(gt_box, prior_box), match_type, overlap_threshold
    )
    gt_label = reshape(gt_label, [0] * (len(gt_label.shape or ()) - 1) + [-1, 1])
    gt_label.stop_gradient = True
    scores = flatten(confidence, axis=2)

    def class_loss(labels: Variable) -> Variable:
        labels = flatten(cast(labels, "int64"), axis=2)
        labels.stop_gradient = True
        return softmax_with_cross_entropy(scores, labels)

    labels, _ = target_assign(gt_label, matched, mismatch_value=background_label)
    first = reshape(class_loss(labels), shape=[-1, 0], actual_shape=sizes)
    first.stop_gradient = True
    negatives, updated = helper.constant_layers(
        "mine_hard_examples",
        "NegIndices UpdatedMatchIndices",
        cls_loss=first,
        match_indices=matched,
        match_dist=shares,
        neg_pos_ratio=neg_pos_ratio,
        neg_dist_threshold=neg_overlap,
        mining_type=mining_type,
        sample_size=sample_size or 0,
    )
    offsets = box_coder(prior_box, prior_box_var, gt_box, code_type="encode_center_size")
    places, place_weight = target_assign(offsets, updated, mismatch_value=background_label)
    labels, class_weight = target_assign(gt_label, updated, negatives, background_label)
    of_classes = class_loss(labels) * flatten(class_weight, axis=2)
    of_places = smooth_l1(flatten(location, axis=2), flatten(places, axis=2))
    of_places = of_places * flatten(place_weight, axis=2)
    loss = conf_loss_weight * of_classes + loc_loss_weight * of_places
    loss = reduce_sum(reshape(loss, shape=[-1, 0], actual_shape=sizes), dim=1, keep_dim=True)
    return loss / reduce_sum(place_weight) if normalize else loss


def multi_box_head(
    inputs: Sequence[Variable],
    image: Variable,
    base_size: int,
    num_classes: int,
    aspect_ratios: Any,
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Any = None,
    max_sizes: Any = None,
    steps: Any = None,
    step_w: Any = None,
    step_h: Any = None,
    offset: float = 0.5,
    variance: Any = _VARIANCES,
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """Offsets [N, P, 4] and scores [N, P, classes] from several maps, and priors and variances [P, 4].

    Sizes of a map's priors are ``min_sizes`` and ``max_sizes``; for more than two maps they may follow from
    ``min_ratio`` to ``max_ratio`` percent of ``base_size``. Other arguments are those of ``prior_box`` and of
    convolutions, in lists an element for each map.

    Raises:
        InvalidType, InvalidValue: an argument is no list, or not as long as ``inputs``.
    """
    op_type = "multi_box_head"
    if not isinstance(inputs, (list, tuple)):
        raise InvalidType(f"{op_type}: inputs must be a list or a tuple, got {inputs!r}.")
    if len(inputs) > 2 and min_sizes is None and max_sizes is None:
        min_sizes, max_sizes = _sizes_by_ratio(len(inputs), base_size, min_ratio, max_ratio)
    step_w, step_h = (steps, steps) if steps is not None else (step_w, step_h)
    lists = {"aspect_ratios": aspect_ratios, "step_w": step_w, "step_h": step_h}
    for argument, value in {**lists, "min_sizes": min_sizes, "max_sizes": max_sizes}.items():
        optional = value is None and argument in lists
        if not optional and (not isinstance(value, (list, tuple)) or len(value) < len(inputs)):
            raise InvalidValue(
                f"{op_type}: {argument} must have an element for each of {len(inputs)} inputs, got {value!r}."
            )
    heads: list[tuple[Variable, ...]] = []
    for i, x in enumerate(inputs):
        sizes = (_listed(min_sizes[i]), _listed(max_sizes[i]), _listed((aspect_ratios or [[]])[i]))
        apart = (step_w[i] if step_w else 0.0, step_h[i] if step_h else 0.0)
        order = min_max_aspect_ratios_order
        box, var = prior_box(x, image, *sizes, variance, flip, clip, apart, offset, None, order)
        parts = []
        for width in (4, num_classes):
            filters = (box.shape or ())[2] * width
            part = conv2d(x, filters, kernel_size, padding=pad, stride=stride)
            parts.append(flatten(transpose(part, perm=[0, 2, 3, 1]), axis=1))
        heads.append((*parts, box, var))
    places, scores, box, var = heads[0] if len(heads) == 1 else _joined(heads, num_classes)
    box.stop_gradient = var.stop_gradient = True
    return places, scores, box, var


def _joined(heads: Sequence[Sequence[Variable]], classes: int) -> list[Variable]:
    """Return offsets, scores, priors and variances of all maps, as those of one."""
    *maps, boxes, variances = (list(side) for side in zip(*heads, strict=True))
    predicted = [
        reshape(concat(side, axis=1), shape=[0, -1, width])
        for side, width in zip(maps, (4, classes), strict=True)
    ]
    priors = [concat([flatten(part, axis=3) for part in side]) for side in (boxes, variances)]
    return [*predicted, *priors]


def _sizes_by_ratio(
    maps: int, base_size: int, min_ratio: int | None, max_ratio: int | None
) -> tuple[list[float], list[float]]:
    """Return the least and the largest size of each map's priors: a tenth of the base, then even steps.

    Raises:
        InvalidValue: a ratio is missing.
    """
    if min_ratio is None or max_ratio is None:
        raise InvalidValue(
            "multi_box_head needs min_ratio and max_ratio, or min_sizes and max_sizes."
        )
    step = math.floor((max_ratio - min_ratio) / (maps - 2))
    ratios = list(range(min_ratio, max_ratio + 1, step))
    least = [base_size * 0.1, *(base_size * ratio / 100 for ratio in ratios)]
    return least, [base_size * 0.2, *(base_size * (ratio + step) / 100 for ratio in ratios)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
