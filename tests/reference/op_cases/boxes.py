"""Cases of boxes that detectors begin with."""

from tables import FLOATS, NO_GRADIENT, case, normal

NO_GRADIENT |= {"iou_similarity", "polygon_box_transform", "anchor_generator", "prior_box", "density_prior_box"}


@case("iou_similarity", 6)
def iou_similarity(p):
    boxes = ([n, 4] for n in (3, 4))
    x, y = ([shape, p.any(*FLOATS[:1]), "uniform", 0.0, p.any(1.0, 9.0)] for shape in boxes)
    return {"X": x, "Y": y}, {"box_normalized": p.of(True, False)}


@case("polygon_box_transform", 5)
def polygon_box_transform(p):
    return {"Input": normal([2, p.of(2, 8), 3, 4], p.any(*FLOATS))}, {}


@case("anchor_generator", 6)
def anchor_generator(p):
    return {"Input": normal([1, 2, 3, 4])}, {
        "anchor_sizes": p.of([32.0], [16.0, 64.0]),
        "aspect_ratios": p.any([1.0], [0.5, 1.0, 2.0], [0.7, 3.0]),
        "variances": p.any([0.1, 0.1, 0.2, 0.2], [1.0, 2.0, 3.0, 4.0]),
        "stride": p.any([16.0, 16.0], [8.0, 12.0]),
        "offset": p.any(0.5, 0.0),
    }


def images(p):
    return {"Input": normal([2, 3, 4, 5]), "Image": normal([2, 3] + p.any([32, 50], [40, 40]))}


@case("prior_box", 10)
def prior_box(p):
    apart = p.any((0.0, 0.0), (7.0, 9.0), (7.0, 0.0))
    return images(p), {
        "min_sizes": [4.0, 10.0],
        "max_sizes": p.of([], [9.0, 15.0]),
        "aspect_ratios": p.any([1.0], [2.0, 3.0], [1.0, 2.0, 0.5]),
        "variances": p.any([0.1, 0.1, 0.2, 0.2], [1.0, 2.0, 3.0, 4.0]),
        "flip": p.of(True, False),
        "clip": p.any(True, False),
        "step_w": apart[0],
        "step_h": apart[1],
        "offset": p.any(0.5, 0.0),
        "min_max_aspect_ratios_order": p.any(True, False),
    }


@case("density_prior_box", 8)
def density_prior_box(p):
    apart = p.any((0.0, 0.0), (7.0, 9.0), (7.0, 0.0))
    return images(p), {
        "fixed_sizes": [4.0, 10.0],
        "fixed_ratios": p.of([1.0], [1.0, 2.0]),
        "densities": p.any([1, 1], [3, 2]),
        "clip": p.any(True, False),
        "variances": p.any([0.1, 0.1, 0.2, 0.2], [1.0, 2.0, 3.0, 4.0]),
        "flatten_to_2d": p.of(False, True),
        "step_w": apart[0],
        "step_h": apart[1],
        "offset": p.any(0.5, 0.0),
    }


NO_GRADIENT |= {"box_coder", "yolo_box"}


@case("box_coder", 12)
def box_coder(p):
    kind, axis = p.of("encode_center_size", "decode_center_size"), p.any(0, 1)
    low, high = [0.0, 1.0], [1.5, 3.0]
    shape = [3, 2, 4] if axis else [2, 3, 4]
    target = normal(shape) if kind[0] == "d" else [[2, 4], "float32", "values", [low + high, high + [4.0, 7.5]]]
    inputs = {"PriorBox": [[3, 4], "float32", "values", [[0.0, 0.5, 2.0, 3.0], [1.0, 1.0, 1.5, 4.0], low + high]]}
    attrs = {"code_type": kind, "box_normalized": p.any(True, False)}
    if kind[0] == "d":
        attrs["axis"] = axis
    scales = p.of("no", "variable", "list")
    if scales == "variable":
        inputs["PriorBoxVar"] = [[3, 4], "float32", "uniform", 0.1, 0.9]
    elif scales == "list":
        attrs["variance"] = [0.1, 0.1, 0.2, 0.2]
    return {**inputs, "TargetBox": target}, attrs


NO_GRADIENT |= {"box_decoder_and_assign"}


@case("box_decoder_and_assign", 6)
def box_decoder_and_assign(p):
    classes = p.any(2, 4)
    return {
        "PriorBox": [[3, 4], "float32", "values", [[0.0, 0.5, 20.0, 30.0], [1.0, 1.0, 1.5, 4.0], [5.0, 5.0, 9.0, 8.0]]],
        "PriorBoxVar": [[4], "float32", "uniform", 0.1, 0.9],
        "TargetBox": normal([3, 4 * classes]),
        "BoxScore": [[3, classes], "float32", "uniform", 0.0, 1.0],
    }, {"box_clip": p.of(4.135, 0.3)}


@case("yolo_box", 6)
def yolo_box(p):
    classes, anchors = p.any(1, 3), p.of([10, 13], [10, 13, 16, 30])
    x = normal([2, len(anchors) // 2 * (5 + classes), 3, 3], p.any(*FLOATS))
    return {"X": x, "ImgSize": [[2, 2], "int32", "values", [[96, 80], [64, 128]]]}, {
        "class_num": classes,
        "anchors": anchors,
        "downsample_ratio": p.any(8, 32),
        "conf_thresh": p.any(0.01, 0.5),
        "clip_bbox": p.of(True, False),
        "scale_x_y": p.any(1.0, 1.2),
    }
