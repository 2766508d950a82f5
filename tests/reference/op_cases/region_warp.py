"""Cases of regions read at points that are data."""

from inputs import SIDE
from tables import FLOATS, case, normal, values

SIDE["deformable_psroi_pooling"] = ("TopCount",)
SIDE["roi_perspective_transform"] = ("TransformMatrix", "Out2InWeights")


@case("deformable_psroi_pooling", 12)
def deformable_psroi_pooling(p):
    dtype, classes, each = p.of(*FLOATS), p.any(1, 2), p.any(1, 3)
    bins, groups = (p.any(1, 2, 3), p.any(2, 4)), (p.of(1, 2), p.any(1, 3))
    parts = p.of(bins, (1, 1), (1, 2))
    starts = [[p.rng.uniform(-2.0, 9.0) for _ in range(2)] for _ in range(5)]
    sizes = [[p.rng.uniform(0.5, 9.0) for _ in range(2)] for _ in range(5)]
    rois = [[round(v, 2) for v in s + [a + b for a, b in zip(s, n)]] for s, n in zip(starts, sizes)]
    channels = classes * each * groups[0] * groups[1]
    return {
        "Input": normal([3, channels, 7, 9], dtype),
        "ROIs": [[5, 4], dtype, "values", rois],
        "ROIs@LOD": [values([0, 2, 2, 5], "int64")],
        "Trans": normal([5, 2 * classes, parts[0], parts[1]], dtype),
    }, {
        "no_trans": p.of(False, False, True),
        "spatial_scale": p.any(1.0, 0.5, 1.25),
        "output_dim": classes * each,
        "group_size": list(groups),
        "part_size": list(parts),
        "pooled_height": bins[0],
        "pooled_width": bins[1],
        "sample_per_part": p.any(1, 2, 4),
        "trans_std": p.any(0.125, 0.375),
    }


@case("roi_perspective_transform", 12)
def roi_perspective_transform(p):
    quads = []
    for _ in range(5):
        x, y = p.rng.uniform(-1.0, 6.0), p.rng.uniform(-1.0, 5.0)
        w, h = p.rng.uniform(2.0, 6.0), p.rng.uniform(2.0, 5.0)
        corners = [x, y, x + w, y, x + w, y + h, x, y + h]
        quads.append([round(v + p.rng.uniform(-0.8, 0.8), 3) for v in corners])
    if p.of(False, True):
        quads[0] = [0, 0, 4, 0, 4, 3, 0, 3]
    return {
        "X": normal([3, 2, 7, 9]),
        "ROIs": [[5, 8], "float32", "values", quads],
        "ROIs@LOD": [values([0, 2, 2, 5], "int64")],
    }, {
        "spatial_scale": p.any(1.0, 0.5, 1.3),
        "transformed_height": p.any(1, 3, 5),
        "transformed_width": p.any(2, 4, 9),
    }
