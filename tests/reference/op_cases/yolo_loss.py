"""Cases of the loss of YOLOv3, some with boxes that meet in a cell, and some that are no boxes."""

from inputs import SIDE
from tables import FLOATS, case, integers, normal

SIDE["yolov3_loss"] = ("ObjectnessMask", "GTMatchMask")


@case("yolov3_loss", 16)
def yolov3_loss(p):
    dtype, boxes, classes, grid = p.any(*FLOATS), p.any(1, 3, 6), p.any(1, 3, 50), p.any(3, 5)
    mask = p.of([0, 1], [1, 2], [2], [0, 1, 2])
    places = p.rng.uniform(0.02, 0.98, (2, boxes, 2))
    if p.of(False, True) and boxes > 1:
        places[1, 1] = places[1, 0] + 0.001
    sizes = p.rng.uniform(0.05, 0.9, (2, boxes, 2)) * p.rng.randint(0, 5, (2, boxes, 1)).clip(0, 1)
    numbers = [round(v, 3) for pair in zip(places.reshape(-1, 2), sizes.reshape(-1, 2)) for part in pair for v in part]
    inputs = {
        "X": normal([2, len(mask) * (5 + classes), grid, grid], dtype),
        "GTBox": [[2, boxes, 4], dtype, "values", numbers],
        "GTLabel": integers([2, boxes], classes, "int32"),
    }
    if p.of(False, True):
        inputs["GTScore"] = [[2, boxes], dtype, "uniform", 0.2, 1.0]
    return inputs, {
        "class_num": classes,
        "anchors": [10, 13, 16, 30, 33, 23],
        "anchor_mask": mask,
        "downsample_ratio": p.any(8, 32),
        "ignore_thresh": p.any(0.7, 0.3, 0.1),
        "use_label_smooth": p.of(True, False),
        "scale_x_y": p.any(1.0, 1.1),
    }
