"""Cases of regions that may hold an object, and of what is learnt from them."""

from tables import NO_GRADIENT, OUTPUT_COUNT, case, normal, offsets

NO_GRADIENT |= {
    *("generate_proposals", "collect_fpn_proposals", "distribute_fpn_proposals"),
    *("rpn_target_assign", "generate_proposal_labels", "generate_mask_labels"),
    *("retinanet_target_assign", "retinanet_detection_output"),
}
OUTPUT_COUNT["distribute_fpn_proposals"] = lambda attrs, arrays: attrs["max_level"] - attrs["min_level"] + 1
INFO = [[2, 3], "float32", "values", [90.0, 80.0, 1.0, 60.0, 100.0, 2.0]]


def boxes(p, count, most=60.0):
    places = p.rng.uniform(0, 60, (count, 2))
    ends = places + p.rng.uniform(4.0, most, places.shape)
    return [round(v, 2) for low, high in zip(places, ends) for v in [*low, *high]]


@case("generate_proposals", 10)
def generate_proposals(p):
    anchors, height, width = p.any(1, 3), p.any(2, 4), p.any(3, 5)
    count = anchors * height * width
    shape = [height, width, anchors, 4]
    return {
        "Scores": [[2, anchors, height, width], "float32", "uniform", 0.0, 1.0],
        "BboxDeltas": normal([2, 4 * anchors, height, width]),
        "ImInfo": INFO,
        "Anchors": [shape, "float32", "values", boxes(p, count)],
        "Variances": [shape, "float32", "uniform", 0.1, 1.0],
    }, {
        "pre_nms_topN": p.any(5, 6000),
        "post_nms_topN": p.any(3, 1000),
        "nms_thresh": p.of(0.5, 0.7),
        "min_size": p.any(0.0, 20.0, 20.0, 900.0),
        "eta": p.any(1.0, 0.9),
    }


@case("collect_fpn_proposals", 5)
def collect_fpn_proposals(p):
    counts = p.any([2, 1], [0, 4]), p.any([1, 3], [2, 0])
    return {
        "MultiLevelRois": [normal([sum(own), 4]) for own in counts],
        "MultiLevelRois@LOD": [offsets(own) for own in counts],
        "MultiLevelScores": [[[sum(own), 1], "float32", "uniform", 0.0, 1.0] for own in counts],
        "MultiLevelScores@LOD": [offsets(own) for own in counts],
    }, {"post_nms_topN": p.any(3, 50)}


@case("distribute_fpn_proposals", 5)
def distribute_fpn_proposals(p):
    return {
        "FpnRois": [[6, 4], "float32", "values", boxes(p, 6, 300.0)],
        "FpnRois@LOD": offsets(p.any([2, 4], [0, 6], [1, 5])),
    }, {
        "min_level": 2,
        "max_level": p.any(4, 5),
        "refer_level": p.any(3, 4),
        "refer_scale": p.any(60, 224),
    }


def objects(p, counts):
    count = sum(counts)
    crowd = [int(v) for v in p.rng.randint(0, 4, count) == 0]
    crowd[0] = crowd[counts[0]] = 0
    return {
        "GtBoxes": [[count, 4], "float32", "values", boxes(p, count)],
        "GtBoxes@LOD": offsets(counts),
        "IsCrowd": [[count, 1], "int32", "values", crowd],
        "IsCrowd@LOD": offsets(counts),
        "ImInfo": INFO,
    }


@case("rpn_target_assign", 10)
def rpn_target_assign(p):
    inputs = dict(objects(p, p.any([2, 3], [1, 1])), Anchor=[[40, 4], "float32", "values", boxes(p, 40)])
    return inputs, {
        "rpn_batch_size_per_im": p.any(256, 12, 6),
        "rpn_straddle_thresh": p.any(0.0, -1.0, 5.0),
        "rpn_positive_overlap": p.any(0.7, 0.4),
        "rpn_negative_overlap": p.any(0.3, 0.2),
        "rpn_fg_fraction": p.any(0.5, 0.25),
        "use_random": False,
    }


@case("generate_proposal_labels", 10)
def generate_proposal_labels(p):
    counts = p.any([2, 3], [1, 1])
    inputs = objects(p, counts)
    inputs["GtClasses"] = [[sum(counts), 1], "int32", "integers", 1, 4]
    inputs["GtClasses@LOD"] = offsets(counts)
    inputs["RpnRois"] = [[30, 4], "float32", "values", boxes(p, 30)]
    inputs["RpnRois@LOD"] = offsets(p.any([12, 18], [1, 29]))
    cascade = p.of(False, True)
    if cascade:  # Paddle scales some region twice
        inputs["ImInfo"] = INFO[:3] + [[90.0, 80.0, 1.0, 60.0, 100.0, 1.0]]
    return inputs, {
        "batch_size_per_im": p.any(256, 8),
        "fg_fraction": p.any(0.25, 0.5),
        "fg_thresh": p.any(0.25, 0.5),
        "bg_thresh_hi": 0.5,
        "bg_thresh_lo": p.any(0.0, 0.1),
        "bbox_reg_weights": p.any([0.1, 0.1, 0.2, 0.2], [1.0, 1.0, 1.0, 1.0]),
        "class_nums": 4,
        "use_random": False,
        "is_cascade_rcnn": cascade,
        "is_cls_agnostic": p.any(False, True),
    }


@case("generate_mask_labels", 10)
def generate_mask_labels(p):
    counts, polygons = [2, 1], p.any([1, 2, 1], [1, 1, 1])
    corners = [int(n) for n in p.rng.randint(3, 8, sum(polygons))]
    inputs = objects(p, counts)
    del inputs["GtBoxes"], inputs["GtBoxes@LOD"]
    inputs["GtClasses"] = [[3, 1], "int32", "integers", 1, 4]
    inputs["IsCrowd"] = [[3, 1], "int32", "values", [0, p.any(0, 1), 0]]
    inputs["GtClasses@LOD"] = inputs["IsCrowd@LOD"] = offsets(counts)
    inputs["GtSegms"] = [[sum(corners), 2], "float32", "uniform", 0.0, 60.0]
    inputs["GtSegms@LOD"] = [offsets(level) for level in (counts, polygons, corners)]
    inputs["Rois"] = [[9, 4], "float32", "values", boxes(p, 9)]
    inputs["LabelsInt32"] = [[9, 1], "int32", "values", p.any([0, 1, 2, 3, 0, 0, 0, 0, 0], [1, 1, 0, 0, 2, 3, 3, 3, 0])]
    inputs["Rois@LOD"] = inputs["LabelsInt32@LOD"] = offsets([5, 4])
    return inputs, {"num_classes": 4, "resolution": p.any(7, 14)}


@case("retinanet_target_assign", 10)
def retinanet_target_assign(p):
    counts = p.any([2, 3], [1, 1])
    inputs = dict(objects(p, counts), Anchor=[[40, 4], "float32", "values", boxes(p, 40)])
    inputs["GtLabels"] = [[sum(counts), 1], "int32", "integers", 1, 4]
    inputs["GtLabels@LOD"] = offsets(counts)
    return inputs, {
        "positive_overlap": p.any(0.5, 0.3),
        "negative_overlap": p.any(0.4, 0.2),
    }


@case("retinanet_detection_output", 10)
def retinanet_detection_output(p):
    counts, classes = (8, p.any(2, 5)), p.any(1, 3)
    return {
        "BBoxes": [normal([2, count, 4]) for count in counts],
        "Scores": [[[2, count, classes], "float32", "uniform", 0.0, 1.0] for count in counts],
        "Anchors": [[[count, 4], "float32", "values", boxes(p, count)] for count in counts],
        "ImInfo": INFO,
    }, {
        "score_threshold": p.any(0.05, 0.6, 2.0),
        "nms_top_k": p.any(3, 1000),
        "nms_threshold": p.any(0.3, 0.6),
        "keep_top_k": p.any(4, 100),
        "nms_eta": p.any(1.0, 0.9),
    }
