"""Cases of merging and choosing boxes and polygons."""

from tables import FLOATS, NO_GRADIENT, case

NO_GRADIENT.add("locality_aware_nms")


@case("locality_aware_nms", 18)
def locality_aware_nms(p):
    dtype, size, boxes, classes = p.of(*FLOATS), p.of(4, 8, 16), p.any(4, 9), p.any(1, 1, 2)
    images, numbers = p.any(1, 2), []
    for k in range(images * boxes):
        if k % 3 == 0:
            x, y = p.rng.uniform(0, 6, 2)
            w, h = p.rng.uniform(2, 6, 2)
        low = p.rng.uniform(-0.3, 0.3, 4)
        left, top, right, bottom = x + low[0], y + low[1], x + w + low[2], y + h + low[3]
        if size == 4:
            numbers += [left, top, right, bottom]
            continue
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        for j, (a, b) in enumerate(corners):
            for share in range(size // 8):
                c, d = corners[(j + 1) % 4]
                part = share / (size // 8)
                bend = p.rng.uniform(-0.4, 0.4, 2)
                numbers += [a + (c - a) * part + bend[0], b + (d - b) * part + bend[1]]
    return {
        "BBoxes": [[images, boxes, size], dtype, "values", [round(v, 3) for v in numbers]],
        "Scores": [[images, classes, boxes], dtype, "uniform", 0.0, 1.0],
    }, {
        "background_label": p.any(-1, -1, 1),
        "score_threshold": p.any(0.1, 0.5, 0.9, 9.0),
        "nms_top_k": p.any(-1, 3, 100),
        "nms_threshold": p.any(0.3, 0.7),
        "nms_eta": p.any(1.0, 0.9),
        "keep_top_k": p.any(-1, 3, 100),
        "normalized": p.of(True, False),
    }
