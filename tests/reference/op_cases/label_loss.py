"""Losses of labels and of pairs, and of rows and their classes."""

from tables import FLOATS, IN_PLACE, case, integers, normal, positive, values

IN_PLACE["center_loss"] = {"CentersOut": "Centers"}
COLUMNS = ([4, 1], [7, 1], [1, 1])


def share(shape, dtype="float32"):
    return [shape, dtype, "uniform", 0.0, 1.0]


@case("bce_loss", 6)
def bce(p):
    shape, dtype = p.any([4, 1], [3, 4], [2, 3, 2]), p.any(*FLOATS)
    return {"X": positive(shape, dtype), "Label": share(shape, dtype)}, {}


@case("hinge_loss", 4)
def hinge(p):
    shape = p.any(*COLUMNS)
    return {"Logits": normal(shape), "Labels": integers(shape, 2, "float32")}, {}


@case("modified_huber_loss", 6)
def modified_huber(p):
    shape = p.any(*COLUMNS)
    return {"X": [shape, "float32", "uniform", -3.0, 3.0], "Y": integers(shape, 2, "float32")}, {}


@case("kldiv_loss", 12)
def kldiv(p):
    shape, dtype = p.any([4, 3], [2, 3, 2], [5]), p.any(*FLOATS)
    target = p.any(share(shape, dtype), [shape, dtype, "uniform", -0.5, 1.0])
    return {"X": normal(shape, dtype), "Target": target}, {
        "reduction": p.of("mean", "sum", "batchmean", "none")
    }


@case("margin_rank_loss", 6)
def margin_rank(p):
    shape = p.any(*COLUMNS)
    attrs = {"margin": p.of(0.0, 0.1, 0.5)}
    return {"X1": normal(shape), "X2": normal(shape), "Label": integers(shape, 2, "float32")}, attrs


@case("rank_loss", 4)
def rank(p):
    shape = p.any(*COLUMNS)
    return {"Left": normal(shape), "Right": normal(shape), "Label": share(shape)}, {}


@case("smooth_l1_loss", 12)
def smooth_l1(p):
    shape, sigma = p.any([3, 4], [2, 3, 2], [4, 1]), p.of(1.0, 0.5, 2.0)
    operands = {"X": normal(shape), "Y": normal(shape)}
    if p.of(0, 1):
        operands.update(InsideWeight=share(shape), OutsideWeight=share(shape))
    return operands, {"sigma": sigma}


@case("teacher_student_sigmoid_loss", 8)
def teacher_student(p):
    shape, dtype = p.any(*COLUMNS[:2]), p.any(*FLOATS)
    label = [shape, dtype, "uniform", -2.0, 2.0]
    attrs = {"soft_max_up_bound": p.of(15.0, 1.0), "soft_max_lower_bound": p.any(-15.0, -0.5)}
    return {"X": normal(shape, dtype), "Label": label}, attrs


@case("label_smooth", 6)
def label_smooth(p):
    shape, dtype = p.any([4, 3], [2, 3, 4]), p.any(*FLOATS)
    operands = {"X": share(shape, dtype)}
    if p.of(0, 1):
        operands["PriorDist"] = share([1, shape[-1]], dtype)
    return operands, {"epsilon": p.any(0.0, 0.1, 0.5)}


@case("sigmoid_focal_loss", 10)
def focal(p):
    rows, classes = p.any(3, 5), p.any(1, 4)
    operands = {
        "X": normal([rows, classes], p.any(*FLOATS)),
        "Label": integers([rows, 1], classes + 1, "int32", -1),
        "FgNum": values([p.of(0, 1, 3)]),
    }
    return operands, {"gamma": p.any(2.0, 1.0, 0.5), "alpha": p.any(0.25, 0.6)}


@case("nll_loss", 16)
def nll(p):
    image, classes = p.of(False, True), p.any(3, 5)
    dtype = p.any(*FLOATS)
    operands = {
        "X": normal([2, classes, 3, 2] if image else [4, classes], dtype),
        "Label": integers([2, 3, 2] if image else [4], classes),
    }
    if p.any(0, 1):
        operands["Weight"] = positive([classes], dtype)
    return operands, {"reduction": p.of("mean", "sum", "none"), "ignore_index": p.any(-100, 1)}


@case("bpr_loss", 6)
def bpr(p):
    rows, classes = p.any([3], [2, 3]), p.any(2, 5)
    return {
        "X": normal(rows + [classes], p.any(*FLOATS)),
        "Label": integers(rows + [1], classes),
    }, {}


@case("center_loss", 6)
def center(p):
    dtype = p.any(*FLOATS)
    operands = {
        "X": normal([6, 3], dtype),
        "Label": integers([6, 1], 4),
        "Centers": normal([4, 3], dtype),
        "CenterUpdateRate": [[1], dtype, "values", [0.3]],
    }
    return operands, {"cluster_num": 4, "need_update": p.of(True, False)}
