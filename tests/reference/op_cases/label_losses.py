"""Cases of losses that read scores, or centres, at labels, and of positions."""

from tables import *  # noqa: F403

SIDE.update({  # noqa: F405
    "nll_loss": ("Total_weight",),
    "center_loss": ("CentersOut", "SampleCenterDiff"),
})  # fmt: skip
IN_PLACE["center_loss"] = {"CentersOut": "Centers"}


@case("nll_loss", 8)
def nll_loss(p):
    dtype = p.any(*FLOATS)
    x, label = p.any(([4, 3], [4]), ([2, 3, 2, 2], [2, 2, 2]))
    inputs = {"X": normal(x, dtype), "Label": integers(label, 3)}
    if p.any(0, 1):
        inputs["Weight"] = positive([3], dtype)
    return inputs, {"reduction": p.of("mean", "sum", "none"), "ignore_index": p.any(-100, 1)}


@case("bpr_loss", 3)
def bpr_loss(p):
    return {"X": normal([4, p.of(3, 5)], p.any(*FLOATS)), "Label": integers([4, 1], 3)}, {}


@case("center_loss", 5)
def center_loss(p):
    dtype = p.any(*FLOATS)
    inputs = {"X": normal([4, 3], dtype), "Label": integers([4, 1], 5), "Centers": normal([5, 3], dtype)}
    inputs["CenterUpdateRate"] = positive([1], dtype)
    return inputs, {"cluster_num": 5, "need_update": p.of(True, False)}


@case("add_position_encoding", 4)
def add_position_encoding(p):
    attrs = {"alpha": p.of(1.0, 0.5), "beta": p.any(1.0, 2.0, -1.0)}
    return {"X": normal([2, p.any(3, 5), p.of(4, 2, 6)], p.any(*FLOATS))}, attrs
