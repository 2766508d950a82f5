"""Cases of pools over regions of images."""

from inputs import SIDE
from tables import FLOATS, case, normal, values

SIDE["roi_pool"] = ("Argmax",)


def regions(p, channels, slot=""):
    """Images, regions some of which reach outside, and how many belong to each image."""
    dtype = p.of(*FLOATS)
    starts = [[p.rng.uniform(-2.0, 9.0) for _ in range(2)] for _ in range(5)]
    sizes = [[p.rng.uniform(0.5, 9.0) for _ in range(2)] for _ in range(5)]
    rois = [[round(v, 2) for v in s + [a + b for a, b in zip(s, n)]] for s, n in zip(starts, sizes)]
    inputs = {"X": normal([3, channels, 7, 9], dtype), "ROIs": [[5, 4], dtype, "values", rois]}
    if slot == "RoisLod":
        inputs[slot] = values([0, 2, 2, 5], "int64")
    elif slot:
        inputs[slot] = values([2, 0, 3], "int64")
    else:
        inputs["ROIs@LOD"] = [values([0, 2, 2, 5], "int64")]
    attrs = {"pooled_height": p.any(1, 2, 3), "pooled_width": p.any(1, 2, 4), "spatial_scale": p.any(1.0, 0.5, 1.3)}
    return inputs, attrs


@case("roi_pool", 8)
def roi_pool(p):
    return regions(p, 2, p.of("", "RoisLod"))


@case("roi_align", 10)
def roi_align(p):
    inputs, attrs = regions(p, 2, p.of("", "RoisLod"))
    attrs["sampling_ratio"] = p.of(-1, 0, 1, 3)
    return inputs, attrs


@case("psroi_pool", 8)
def psroi_pool(p):
    inputs, attrs = regions(p, 24)
    attrs.update(pooled_height=p.any(2, 3), pooled_width=p.any(2, 4))
    attrs["output_channels"] = 24 // attrs["pooled_height"] // attrs["pooled_width"]
    inputs["X"][0][1] = attrs["output_channels"] * attrs["pooled_height"] * attrs["pooled_width"]
    return inputs, attrs


@case("prroi_pool", 10)
def prroi_pool(p):
    return regions(p, 2, p.of("", "BatchRoINums"))
