"""Cases of norms, of what normalises, and of positions."""

from tables import *  # noqa: F403

@case("norm", 8)
def norm(p):
    shape = p.of([3, 4], [2, 3, 2], [2, 1, 3, 2])
    return {"X": normal(shape, p.any(*FLOATS))}, {"axis": p.any(0, 1, -1), "epsilon": p.of(1e-10, 0.1, 1e-4)}


@case("cos_sim", 6)
def cos_sim(p):
    rows = p.of(3, 1)
    tail = p.any([4], [2, 3])
    return {"X": normal([3, *tail]), "Y": normal([rows, *tail])}, {}


@case("group_norm", 10)
def group_norm(p):
    layout, dtype, groups = p.of("NCHW", "NHWC"), p.any(*FLOATS), p.any(1, 2, 3, 6)
    shape = [2, 6, 3, 2] if layout == "NCHW" else [2, 3, 2, 6]
    inputs = {"X": normal(shape, dtype), "Scale": normal([6], dtype)}  # without it Paddle's slope is wrong
    if p.of(1, 0, 1):
        inputs["Bias"] = normal([6], dtype)
    return inputs, {"groups": groups, "epsilon": p.any(1e-5, 0.1), "data_layout": layout}


@case("instance_norm", 8)
def instance_norm(p):
    shape, dtype = p.of([2, 3, 4], [3, 2, 3, 2], [2, 3, 2, 1, 3]), p.any(*FLOATS)
    width = shape[1]
    inputs = {"X": normal(shape, dtype), "Scale": normal([width], dtype), "Bias": normal([width], dtype)}
    return inputs, {"epsilon": p.of(1e-5, 1e-3)}


@case("lrn", 8)
def lrn(p):
    attrs = {"n": p.of(5, 3, 1, 7), "k": p.any(1.0, 2.0), "alpha": p.any(1e-4, 0.5), "beta": p.of(0.75, 0.5)}
    attrs["data_format"] = p.any("NCHW", "NHWC")
    return {"X": normal(p.any([2, 6, 3, 2], [1, 3, 2, 4]))}, attrs


@case("data_norm", 8)
def data_norm(p):
    dtype = p.any(*FLOATS)
    inputs = {"X": normal([3, 4], dtype), "BatchSum": normal([4], dtype)}
    for slot in ("BatchSize", "BatchSquareSum"):
        inputs[slot] = positive([4], dtype)
    attrs = {"epsilon": p.of(1e-4, 1e-3), "slot_dim": p.any(-1, 2)}
    if p.of(0, 1):
        inputs.update({"scale_w": normal([4], dtype), "bias": normal([4], dtype)})
        attrs["enable_scale_and_shift"] = True
    return inputs, attrs


@case("spectral_norm", 6)
def spectral_norm(p):
    shape, dim, dtype = p.of([3, 4], [2, 3, 2, 2], [4, 2, 3]), p.any(0, 1), p.any(*FLOATS)
    height = shape[dim]
    width = 1
    for n in shape:
        width *= n
    inputs = {"Weight": normal(shape, dtype), "U": normal([height], dtype), "V": normal([width // height], dtype)}
    return inputs, {"dim": dim, "power_iters": p.of(1, 3, 0), "eps": p.of(1e-12, 0.01)}


@case("p_norm", 8)
def p_norm(p):
    shape, dtype = p.of([3, 4], [2, 3, 2]), p.any(*FLOATS)
    attrs = {"porder": p.of(2.0, 1.0, 3.0, 0.5), "axis": p.any(0, 1, -1), "keepdim": p.any(False, True)}
    return {"X": normal(shape, dtype)}, dict(attrs, epsilon=p.of(1e-12, 0.1))


@case("frobenius_norm", 8)
def frobenius_norm(p):
    attrs = {"keep_dim": p.of(False, True)}
    attrs.update(p.any({"dim": [1]}, {"dim": [0, -1]}, {"reduce_all": True, "dim": [0]}))
    return {"X": normal([2, 3, 4], p.any(*FLOATS))}, attrs


@case("l1_norm", 5)
def l1_norm(p):
    return {"X": normal(p.of(*SHAPES))}, {}


@case("dist", 10)
def dist(p):
    x, y = p.any(([3, 4], [3, 4]), ([2, 3, 4], [3, 1]), ([3, 1], [4]))
    dtype = p.any(*FLOATS)
    return {"X": normal(x, dtype), "Y": normal(y, dtype)}, {"p": p.of(2.0, 0.0, 1.0, 3.0, 0.5)}


@case("squared_l2_distance", 4)
def squared_l2_distance(p):
    tail = p.any([4], [2, 3])
    return {"X": normal([3, *tail]), "Y": normal([p.of(3, 1), *tail])}, {}


@case("add_position_encoding", 4)
def add_position_encoding(p):
    attrs = {"alpha": p.of(1.0, 0.5), "beta": p.any(1.0, 2.0, -1.0)}
    return {"X": normal([2, p.any(3, 5), p.of(4, 2, 6)], p.any(*FLOATS))}, attrs


IN_PLACE["inplace_abn"] = {"Y": "X", "MeanOut": "Mean", "VarianceOut": "Variance"}  # noqa: F405
NO_GRADIENT.add("inplace_abn")  # noqa: F405  # runs in place alone, and so not behind a fed operand


@case("inplace_abn", 8)
def inplace_abn(p):
    layout, act = p.of("NCHW", "NHWC"), p.of("identity", "leaky_relu", "elu")
    x = normal([4, 3, 2, 3] if layout == "NCHW" else [4, 2, 3, 3], p.any(*FLOATS))
    inputs = {"X": x, **{s: normal([3], x[1]) for s in ("Bias", "Mean")}}
    inputs.update({s: positive([3], x[1]) for s in ("Scale", "Variance")})  # noqa: F405
    attrs = {"data_layout": layout, "activation": act, "alpha": p.any(0.1, 0.5), "momentum": p.any(0.9, 0.5)}
    return inputs, {**attrs, "epsilon": p.any(1e-5, 1e-3), "use_global_stats": p.any(True, False, False)}
