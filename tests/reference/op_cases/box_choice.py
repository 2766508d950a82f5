"""Cases of choosing boxes by their scores."""

from tables import FLOATS, NO_GRADIENT, case, offsets

NO_GRADIENT |= {"multiclass_nms", "multiclass_nms2", "matrix_nms"}


@case("multiclass_nms multiclass_nms2", 14)
def multiclass_nms(p):
    dtype, lists = p.any(*FLOATS), p.of(False, False, True)
    boxes, classes = p.any(4, 9), p.any(2, 3)
    count = boxes if lists else 2 * boxes
    places = p.rng.uniform(0, 0.6, (count * (classes if lists else 1), 2))
    ends = places + p.rng.uniform(0.1, 0.5, places.shape)
    numbers = [round(v, 3) for low, high in zip(places, ends) for v in [*low, *high]]
    inputs = {
        "BBoxes": [[boxes, classes, 4] if lists else [2, boxes, 4], dtype, "values", numbers],
        "Scores": [[boxes, classes] if lists else [2, classes, boxes], dtype, "uniform", 0.0, 1.0],
    }
    if lists:
        inputs["BBoxes@LOD"] = offsets([boxes - 3, 3])
        inputs["Scores@LOD"] = offsets([boxes - 3, 3])
    return inputs, {
        "background_label": p.of(0, -1),
        "score_threshold": p.any(0.1, 0.5, 2.0),
        "nms_top_k": p.any(-1, 3, 100),
        "nms_threshold": p.any(0.3, 0.7),
        "nms_eta": p.any(1.0, 0.9),
        "keep_top_k": p.any(-1, 3, 100),
        "normalized": p.of(True, False),
    }


@case("matrix_nms", 12)
def matrix_nms(p):
    dtype, boxes, classes = p.any(*FLOATS), p.any(4, 9), p.any(2, 3)
    places = p.rng.uniform(0, 0.6, (2 * boxes, 2))
    ends = places + p.rng.uniform(0.1, 0.5, places.shape)
    numbers = [round(v, 3) for low, high in zip(places, ends) for v in [*low, *high]]
    return {
        "BBoxes": [[2, boxes, 4], dtype, "values", numbers],
        "Scores": [[2, classes, boxes], dtype, "uniform", 0.0, 1.0],
    }, {
        "background_label": p.of(0, -1),
        "score_threshold": p.any(0.1, 0.5),
        "post_threshold": p.any(0.0, 0.3),
        "nms_top_k": p.any(-1, 3, 100),
        "keep_top_k": p.any(-1, 3, 100),
        "normalized": p.of(True, False),
        "use_gaussian": p.any(False, True),
        "gaussian_sigma": p.any(2.0, 0.5),
    }
