"""Cases of the ops that were declared first."""

from tables import *  # noqa: F403


# Element by element.
@case(
    "relu sigmoid tanh exp square abs sin cos floor ceil round logsigmoid softsign sign softplus"
    " mean isfinite isnan isinf fill_zeros_like assign shape squared_l2_norm gelu",
    6,
)
def one(p):
    return {"X": normal(p.any(*SHAPES), p.of(*ALL))}, {}


CASES["shape"] = (6, lambda p: ({"Input": normal(p.of(*SHAPES), p.any(*ALL))}, {}))
CASES["assign"] = (6, lambda p: ({"X": normal(p.of(*SHAPES), p.of(*ALL, "bool"))}, {}))
CASES["gelu"] = (
    6,
    lambda p: ({"X": normal(p.any(*SHAPES), p.any(*FLOATS))}, {"approximate": p.of(False, True)}),
)


@case("log sqrt rsqrt reciprocal", 6)
def of_positive(p):
    return {"X": positive(p.any(*SHAPES), p.of(*FLOATS))}, {}


def activation(name, count=8, **options):
    def function(p):
        attrs = {key: p.of(*many) for key, many in options.items()}
        return {"X": normal(p.any(*SHAPES), p.any(*FLOATS))}, attrs

    CASES[name] = (count, function)


activation("leaky_relu", alpha=(0.02, 0.5, 0.3))  # above 1 Paddle has no slope of it
activation("relu6", threshold=(6.0, 0.5, 1.0))
activation("elu", alpha=(1.0, 0.3, 2.0))
activation("swish", beta=(1.0, 0.5, 2.0))
activation("hard_sigmoid", slope=(0.2, 0.4, 0.1), offset=(0.5, 0.3, 0.7))
# 1 beyond threshold, as if scale
activation("hard_swish", threshold=(6.0,), scale=(6.0,), offset=(3.0, 1.0, 2.0))
activation("clip_by_norm", max_norm=(1.0, 0.5, 100.0))


@case("scale", 14)
def scale(p):
    inputs = {"X": normal(p.any(*SHAPES), p.of(*ALL))}
    attrs = {
        "scale": p.any(1.0, 2.0, -3.0),
        "bias": p.of(0.0, 2.0, -1.0),
        "bias_after_scale": p.of(True, False),
    }
    if p.any(0, 0, 1):
        inputs["ScaleTensor"] = [[1], inputs["X"][1], "values", [2]]
    return inputs, attrs


@case("pow", 10)
def power(p):
    inputs = {"X": positive(p.any(*SHAPES), p.of(*ALL))}
    if p.of(0, 0, 1):
        inputs["FactorTensor"] = [[1], "float32", "values", [3]]
    return inputs, {"factor": p.any(1.0, 2.0, 3.0, 0.5)}


@case("clip", 10)
def clip(p):
    dtype = p.any(*FLOATS)
    inputs = {"X": normal(p.any(*SHAPES), dtype)}
    for slot, number in (("Min", -0.5), ("Max", 0.25)):
        if p.of(0, 0, 1):
            inputs[slot] = [[1], dtype, "values", [number]]
    return inputs, {"min": p.any(-1.0, -0.3), "max": p.any(0.5, 0.2)}


@case("increment", 6)
def increment(p):
    return {"X": normal([1], p.of(*ALL))}, {"step": p.any(1.0, 3.0, -2.0)}


# Two operands. Y is one of X's runs of dimensions.
BINARY = (
    ([3, 4], [3, 4], -1), ([2, 3, 4], [3, 4], -1), ([2, 3, 4], [3], 1), ([2, 3, 4], [2, 3], 0),
    ([2, 3, 4, 2], [3, 4], 1), ([3, 4], [1], -1), ([2, 3, 4], [2], 0), ([2, 3, 4], [3, 1], 1),
    ([2, 3, 4], [1, 4], -1), ([2, 3, 4], [2, 1, 4], -1), ([2, 3], [2, 3], 0), ([3], [1], 0),
    ([2, 3, 4], [2, 3, 1], 0), ([5, 1], [5, 3], -1), ([4], [2, 4], -1), ([2, 1, 4], [2, 3, 1], -1),
)  # fmt: skip


@case(
    "elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max elementwise_min",
    20,
)
def binary(p):
    (x, y, axis), dtype = p.of(*BINARY), p.any(*ALL)
    return {"X": normal(x, dtype), "Y": positive(y, dtype)}, {"axis": axis}


# Paddle exchanges the operands, or cuts the result, where Y is the larger one.
LARGER_X = BINARY[:-3]


@case("elementwise_pow", 16)
def integral(p):
    (x, y, axis), dtype = p.of(*LARGER_X), p.any(*ALL)
    return {"X": positive(x, dtype), "Y": positive(y, dtype)}, {"axis": axis}


@case("elementwise_mod elementwise_floordiv", 20)
def divided(p):
    (x, y, axis), dtype = p.of(*LARGER_X), p.any("int32", "int64", "float32", "float64")
    return {"X": normal(x, dtype), "Y": positive(y, dtype)}, {"axis": axis}


@case("less_than less_equal greater_than greater_equal equal not_equal", 14)
def compared(p):
    (x, y, axis), dtype = p.of(*LARGER_X), p.any(*ALL)
    return {"X": integers(x, 3, dtype), "Y": integers(y, 3, dtype)}, {
        "axis": axis,
        "force_cpu": p.any(False, True),
    }


@case("logical_and logical_or logical_xor logical_not", 4)
def logical(p):
    shape = p.any(*SHAPES)
    return {"X": integers(shape, 2, "bool"), "Y": integers(shape, 2, "bool")}, {}


CASES["logical_not"] = (4, lambda p: ({"X": integers(p.of(*SHAPES), 2, "bool")}, {}))


@case("fused_elemwise_activation", 24)
def fused(p):
    functors = p.of(
        ["relu", "elementwise_add"], ["elementwise_add", "relu"], ["tanh", "elementwise_add"],
        ["elementwise_add", "scale"], ["scale", "elementwise_add"], ["elementwise_mul", "scale"],
        ["elementwise_mul", "tanh"], ["elementwise_mul", "sigmoid"],
    )  # fmt: skip
    x, y, axis = p.any(*BINARY[:4])
    attrs = {
        "axis": axis,
        "functor_list": functors,
        "scale": p.any(0.5, 2.0),
        "save_intermediate_out": p.of(False, True),
    }
    return {"X": normal(x), "Y": normal(y)}, attrs


# Convolutions and pooling.
@case("conv2d depthwise_conv2d", 44)
def conv(p):
    layout = p.of("NCHW", "NHWC")
    algorithm = p.any("EXPLICIT", "EXPLICIT", "EXPLICIT", "SAME", "VALID")
    groups, wide, high = p.any(1, 1, 2, 3), p.any(5, 6, 7), p.any(5, 6, 8)
    channels, filters = groups * p.any(1, 2), groups * p.any(1, 2)
    kernel = [p.any(1, 2, 3), p.any(1, 2, 3)]
    image = [2, channels, high, wide] if layout == "NCHW" else [2, high, wide, channels]
    dtype = p.any("float32", "float32", "float64")
    attrs = {
        "strides": p.any([1, 1], [2, 2], [1, 2]),
        "paddings": p.of([0, 0], [1, 1], [1, 2], [1, 0, 2, 1], [0, 1, 1, 0]),
        "padding_algorithm": algorithm,
        "dilations": p.any([1, 1], [1, 1], [2, 2], [1, 2]),
        "groups": groups,
        "data_format": layout,
    }
    return {
        "Input": normal(image, dtype),
        "Filter": normal([filters, channels // groups] + kernel, dtype),
    }, attrs


def depthwise(p):
    inputs, attrs = conv(p)
    channels = inputs["Input"][0][1 if attrs["data_format"] == "NCHW" else 3]
    shape = inputs["Filter"][0]
    inputs["Filter"][0] = [channels * p.any(1, 2), 1] + shape[2:]
    return inputs, dict(attrs, groups=channels)


CASES["depthwise_conv2d"] = (30, depthwise)


@case("pool2d", 60)
def pool(p):
    layout = p.of("NCHW", "NHWC")
    high, wide = p.any(5, 6, 7), p.any(4, 6, 8)
    image = [2, 2, high, wide] if layout == "NCHW" else [2, high, wide, 2]
    attrs = {
        "pooling_type": p.of("max", "avg"),
        "ksize": p.any([2, 2], [3, 2], [3, 3]),
        "strides": p.any([1, 1], [2, 2], [3, 2]),
        "paddings": p.any([0, 0], [1, 1], [0, 1], [1, 0, 1, 1], [0, 1, 1, 0]),
        "padding_algorithm": p.any("EXPLICIT", "EXPLICIT", "EXPLICIT", "SAME", "VALID"),
        "exclusive": p.any(True, False),
        "ceil_mode": p.any(False, False, True),
        "global_pooling": p.any(False, False, False, False, True),
        "adaptive": p.any(False, False, False, True),
        "data_format": layout,
    }
    if attrs["pooling_type"] == "max":
        attrs["adaptive"] = False  # Paddle leaves that to max_pool2d_with_index
    return {"X": distinct(image, p.any("float32", "float32", "float64"))}, attrs


@case("batch_norm", 20)
def batch_norm(p):
    layout = p.of("NCHW", "NHWC")
    shape = p.any([4, 3, 2, 3], [4, 3], [4, 3, 5], [2, 3, 2, 2, 2])
    if layout == "NHWC" and len(shape) > 2:
        shape = [shape[0]] + shape[2:] + [3]
    attrs = {
        "data_layout": layout,
        "is_test": p.of(False, False, True),
        "use_global_stats": p.any(False, False, True),
        "trainable_statistics": p.any(False, False, True),
        "momentum": p.any(0.9, 0.5, 0.99),
        "epsilon": p.any(1e-5, 1e-3),
    }
    inputs = {
        "X": normal(shape),
        "Scale": positive([3]),
        "Bias": normal([3]),
        "Mean": normal([3]),
        "Variance": positive([3]),
    }
    if p.any(0, 0, 1):
        inputs["MomentumTensor"] = [[1], "float32", "values", [0.25]]
    return inputs, attrs


@case("layer_norm", 12)
def layer_norm(p):
    dtype = p.any(*FLOATS)
    axis = p.of(1, 2)
    inputs = {"X": normal([2, 3, 4], dtype)}
    width = [12] if axis == 1 else [4]
    if p.any(0, 1):
        inputs["Scale"] = positive(width, dtype)
    if p.any(0, 1):
        inputs["Bias"] = normal(width, dtype)
    return inputs, {"begin_norm_axis": axis, "epsilon": p.any(1e-5, 1e-3)}


# Products.
MATRICES = (
    ([3, 4], [4, 5]), ([4], [4]), ([4], [4, 3]), ([2, 3, 4], [4]), ([3, 4], [4]), ([4], [2, 4, 3]),
    ([2, 3, 4], [4, 5]), ([3, 4], [2, 4, 5]), ([2, 3, 4], [2, 4, 5]), ([2, 2, 3, 4], [2, 2, 4, 5]),
    ([2, 2, 3, 4], [2, 4, 5]), ([2, 3, 4], [2, 2, 4, 5]), ([1, 3, 4], [2, 4, 5]), ([2, 1, 3, 4], [2, 3, 4, 5]),
    ([2, 2, 3, 4], [4, 5]), ([2, 2, 3, 4], [4]), ([3], [4]), ([4, 1], [1, 5]),
)  # fmt: skip


@case("matmul", 60)
def matmul(p):
    x, y = p.of(*MATRICES)
    turned = [p.any(False, True), p.any(False, True)]
    if turned[0] and len(x) > 1:
        x = x[:-2] + [x[-1], x[-2]]
    if turned[1] and len(y) > 1:
        y = y[:-2] + [y[-1], y[-2]]
    dtype = p.any(*FLOATS)
    attrs = {
        "transpose_X": turned[0],
        "transpose_Y": turned[1],
        "alpha": p.any(1.0, 1.0, 0.5, -2.0),
    }
    return {"X": normal(x, dtype), "Y": normal(y, dtype)}, attrs


@case("mul", 12)
def mul(p):
    x, m = p.of(([2, 3, 4], 1), ([2, 3, 4], 2), ([3, 4], 1), ([2, 2, 3], 2), ([2, 2, 3], 1))
    width = 1
    for size in x[m:]:
        width *= size
    y, k = p.any(([width, 3], 1), ([width, 2, 2], 1), ([1, width, 3], 2), ([width, 1, 2], 2))
    dtype = p.any(*FLOATS)
    return {"X": normal(x, dtype), "Y": normal(y, dtype)}, {
        "x_num_col_dims": m,
        "y_num_col_dims": k,
    }


# Losses.
@case("softmax", 10)
def softmax(p):
    shape = p.any([3, 4], [2, 3, 4], [2, 3, 2, 2], [5])
    axis = p.of(-1, 0, 1, -2)
    return {"X": normal(shape, p.any(*FLOATS))}, {"axis": axis}


def labels(p, shape, ignore):
    kind = p.of("last 1", "short")
    return integers(shape + [1] if kind == "last 1" else shape, 4, p.any("int64", "int64", "int32"))


@case("cross_entropy cross_entropy2", 16)
def cross_entropy(p):
    lead = p.any([3], [2, 3], [2, 2, 3])
    dtype, soft = p.any(*FLOATS), p.any(False, False, True)
    attrs = {"ignore_index": p.any(-100, 1, 2)}
    label = positive(lead + [4], dtype) if soft else labels(p, lead, attrs)
    return {"X": positive(lead + [4], dtype), "Label": label}, dict(attrs, soft_label=soft)


def cross_entropy2(p):
    lead = p.any([3], [2, 3], [2, 2, 3])
    inputs = {"X": positive(lead + [4], p.any(*FLOATS)), "Label": labels(p, lead, None)}
    return inputs, {"ignore_index": p.any(-100, 1, 2)}


CASES["cross_entropy2"] = (16, cross_entropy2)


@case("softmax_with_cross_entropy", 24)
def fused_loss(p):
    shape, axis = p.of(
        ([3, 4], -1),
        ([2, 3, 4], -1),
        ([2, 4, 3], 1),
        ([4, 3], 0),
        ([2, 4, 2, 3], 1),
        ([2, 4, 3], -2),
    )
    dtype, soft = p.any(*FLOATS), p.any(False, False, True)
    rows = list(shape)
    rows[axis] = 1
    short = list(shape)
    del short[axis]
    attrs = {
        "soft_label": soft,
        "axis": axis,
        "ignore_index": p.any(-100, 1, 2),
        "numeric_stable_mode": p.any(True, False),
    }
    label = positive(shape, dtype) if soft else integers(p.any(rows, rows, short), 4)
    return {"Logits": normal(shape, dtype), "Label": label}, attrs


@case("sigmoid_cross_entropy_with_logits", 10)
def sigmoid_loss(p):
    shape, dtype = p.any([3, 4], [5, 1], [2, 3, 2]), p.any(*FLOATS)
    label = integers(shape, 3, dtype, -1) if p.any(0, 1) else positive(shape, dtype)
    return {"X": normal(shape, dtype), "Label": label}, {
        "normalize": p.of(False, True),
        "ignore_index": p.of(-100, -1, 1),
    }


CASES["log_loss"] = (
    6, lambda p: ({"Predicted": positive([4, 1], "float32"), "Labels": positive([4, 1], "float32")}, {"epsilon": p.of(1e-4, 1e-2, 0.1)})
)  # fmt: skip
CASES["huber_loss"] = (
    8, lambda p: ({"X": normal([4, 1], p.any("float32", "float64")), "Y": normal([4, 1], "float32")}, {"delta": p.of(1.0, 0.3, 2.0)})
)  # fmt: skip


@case("huber_loss", 8)
def huber(p):
    dtype = p.any(*FLOATS)
    shape = p.any([4, 1], [3])
    return {"X": normal(shape, dtype), "Y": normal(shape, dtype)}, {"delta": p.of(1.0, 0.3, 2.0)}


# Reductions.
def reduction(p, draw, dtypes):
    shape = p.any([3, 4], [2, 3, 4], [2, 3, 2, 2], [5])
    rank = len(shape)
    dims = p.of(
        [0],
        [-1],
        [0, rank - 1] if rank > 1 else [0],
        list(range(rank)),
        [rank - 2] if rank > 1 else [0],
    )
    # Paddle makes nothing of all dimensions that are named one by one, unless it is told reduce_all.
    every = rank > 1 and len({d % rank for d in dims}) == rank
    attrs = {
        "dim": dims,
        "keep_dim": p.any(False, True),
        "reduce_all": every or p.any(False, False, True),
    }
    dtype = p.any(*dtypes)
    if p.any(0, 0, 0, 1) and dtype != "bool":
        attrs.update(in_dtype=NUMBERS[dtype], out_dtype=p.any(FP32, FP64, INT64))
    return {"X": draw(shape, dtype)}, attrs


for _name in ("reduce_sum", "reduce_mean"):
    CASES[_name] = (18, lambda p: reduction(p, normal, ALL))
for _name in ("reduce_max", "reduce_min"):
    CASES[_name] = (18, lambda p: reduction(p, distinct, ("float32", "float64")))
CASES["reduce_prod"] = (14, lambda p: reduction(p, positive, ALL))
for _name in ("reduce_all", "reduce_any"):
    CASES[_name] = (
        10,
        lambda p: reduction(p, lambda shape, dtype: integers(shape, 2, dtype), ("bool",)),
    )


@case("sum", 8)
def add_all(p):
    shape, dtype = p.any(*SHAPES), p.of(*ALL)
    return {"X": [normal(shape, dtype) for _ in range(p.any(1, 2, 3, 4))]}, {}


@case("cumsum", 16)
def cumsum(p):
    attrs = {
        "axis": p.of(-1, 0, 1, -2),
        "exclusive": p.any(False, True),
        "reverse": p.any(False, True),
    }
    return {"X": normal(p.any([3, 4], [2, 3, 2]), p.any(*ALL))}, attrs


@case("arg_max arg_min", 12)
def arg(p):
    attrs = {"axis": p.of(-1, 0, 1, -2), "keepdims": p.any(False, True)}
    if p.any(0, 1):
        attrs["dtype"] = p.any(INT32, INT64)
    return {"X": [p.any([3, 4], [2, 3, 4]), p.any(*ALL), "distinct"]}, attrs


@case("top_k", 12)
def top_k(p):
    shape = p.of([3, 4], [6], [2, 3, 4])
    inputs = {"X": distinct(shape, p.any("float32", "float64", "int32", "int64"))}
    if p.any(0, 0, 1):
        inputs["K"] = [[1], "int32", "values", [2]]
    return inputs, {"k": p.any(1, 2, 3)}


@case("argsort", 12)
def argsort(p):
    shape = p.any([3, 4], [2, 3, 4], [5])
    return {"X": distinct(shape, p.any("float32", "float64"))}, {
        "axis": p.of(-1, 0, -1, 1),
        "descending": p.any(False, True),
    }


CASES["accuracy"] = (
    6,
    lambda p: (
        {
            "Out": normal([4, p.number % 2 + 1]),
            "Indices": integers([4, p.number % 2 + 1], 3),
            "Label": integers([4, 1], 3, p.of("int64", "int32")),
        },
        {},
    ),
)


@case("mean_iou", 8)
def mean_iou(p):
    classes, dtype, shape = p.of(3, 5), p.of("int64", "int32"), p.any([6], [2, 4], [2, 3, 2])
    inputs = {slot: integers(shape, classes - 1, dtype) for slot in ("Predictions", "Labels")}
    if p.of(False, True):
        for slot in ("InWrongs", "InCorrects"):
            inputs[slot] = [integers([classes], 9, "int32") for _ in range(p.any(1, 2))]
        inputs["InMeanIou"] = [[[1], "float32", "uniform", 0.0, 1.0] for _ in range(p.any(1, 2))]
    return inputs, {"num_classes": classes}


@case("precision_recall", 10)
def precision_recall(p):
    classes, rows, dtype = p.of(2, 4), p.any(1, 6, 9), p.of("float32", "float32", "float64")
    inputs = {slot: integers([rows, 1], classes, "int32") for slot in ("Indices", "Labels")}
    inputs["MaxProbs"] = [[rows, 1], dtype, "uniform", 0.0, 1.0]
    if p.of(False, True):
        inputs["Weights"] = [[rows, 1], dtype, "uniform", 0.0, 1.0]
    if p.of(False, False, True):
        inputs["StatesInfo"] = [[classes, 4], dtype, "uniform", 0.0, 5.0]
    return inputs, {"class_number": classes}


@case("positive_negative_pair", 12)
def positive_negative_pair(p):
    rows, columns, dtype = p.any(1, 7, 12), p.of(1, 3), p.of("float32", "float32", "float64")
    inputs = {
        "Score": [[rows, columns], dtype, "integers", 0, 6],  # some are equal
        "Label": [[rows, 1], dtype, "integers", 0, 3],
        "QueryID": integers([rows, 1], 3),
    }
    if p.of(False, True):
        inputs["Weight"] = [[rows, 1], dtype, "uniform", 0.1, 2.0]
    if p.of(False, False, True):
        for slot in ("AccumulatePositivePair", "AccumulateNegativePair", "AccumulateNeutralPair"):
            inputs[slot] = [[1], dtype, "uniform", 0.0, 9.0]
    return inputs, {"column": p.any(-1, 0, -1, columns - 1)}


@case("auc", 9)
def auc(p):
    steps, rows, bins = p.of(0, 1, 3), p.any(5, 9), p.any(7, 15)
    size = [(1 + steps) * (bins + 1) + 1] if steps else [1, bins + 1]
    inputs = {
        "Predict": [[rows, 2], "float32", "uniform", 0.0, 1.0],
        "Label": integers([rows, 1], 2),
    }
    for slot in ("StatPos", "StatNeg"):
        inputs[slot] = integers(size, 1 if steps else 4)
    return inputs, {"num_thresholds": bins, "slide_steps": steps, "curve": p.any("ROC", "PR")}


NO_GRADIENT.update(("auc", "mean_iou", "precision_recall", "positive_negative_pair"))


@case("strided_slice", 16)
def strided_slice(p):
    shape, axes = p.of(([4, 5], [0]), ([4, 5], [1]), ([3, 4, 5], [0, 2]), ([7], [0]))
    at = [
        p.any((0, 3, 1), (-1, -4, -1), (1, 100, 2), (-100, 2, 1), (2, 0, -1), (-3, 3, 2))
        for _ in axes
    ]
    starts, ends, strides = ([one[k] for one in at] for k in range(3))
    inputs = {"Input": normal(shape, p.any(*ALL))}
    attrs = {
        "axes": axes,
        "starts": starts,
        "ends": ends,
        "strides": strides,
        "infer_flags": [1] * len(axes),
    }
    if len(axes) == 1 and p.any(0, 0, 1):
        starts, ends, strides = [2], [3], [1]
        attrs.update(starts=starts, ends=ends, strides=strides, decrease_axis=axes)
    how = p.of("attrs", "tensor", "list")
    for slot, numbers in (("Starts", starts), ("Ends", ends), ("Strides", strides)):
        if how == "tensor":
            inputs[slot + "Tensor"] = values(numbers)
        elif how == "list":
            inputs[slot + "TensorList"] = scalars(numbers)
    return inputs, attrs


# Views.
@case("reshape reshape2", 20)
def reshape(p):
    shape, new = p.of(
        ([2, 3, 4], [0, -1]),
        ([4, 3], [2, 6]),
        ([2, 3, 4], [-1]),
        ([2, 3, 4], [0, 0, 2, 2]),
        ([6], [2, 1, -1]),
        ([2, 6], [3, 4]),
    )
    inputs, how = {"X": normal(shape, p.any(*ALL))}, p.of("attrs", "Shape", "list", "attrs")
    if how == "Shape":
        inputs["Shape"] = values(new)
        return inputs, {"shape": p.any([], [1, 12])}
    if how == "list":
        inputs["ShapeTensor"] = scalars(new)
    return inputs, {"shape": new}


@case("squeeze squeeze2", 14)
def squeeze(p):
    shape, axes = p.of(
        ([3, 1, 4, 1], [1]),
        ([3, 1, 4, 1], [1, 3]),
        ([3, 1, 4, 1], [-1]),
        ([3, 1, 4, 1], [-3, -1]),
        ([1, 3, 1], []),
        ([1, 3, 1], [0]),
        ([3, 4, 1], [1]),
    )
    return {"X": normal(shape, p.any(*ALL))}, {"axes": axes}


@case("unsqueeze unsqueeze2", 20)
def unsqueeze(p):
    axes = p.of([1], [0, 2], [-1], [0, -1], [2, 0], [-2], [0, 1, 2], [1, -1], [0])
    inputs, how = (
        {"X": normal(p.any([3, 4], [5], [2, 3, 2]), p.any(*ALL))},
        p.any("attrs", "tensor", "list"),
    )
    if how == "tensor":
        inputs["AxesTensor"] = values(axes)
    if how == "list":
        inputs["AxesTensorList"] = scalars(axes)
    return inputs, {"axes": axes if how == "attrs" else []}


@case("flatten flatten2", 8)
def flatten(p):
    return {"X": normal(p.any([2, 3, 4], [2, 2, 3, 2], [4]), p.any(*ALL))}, {
        "axis": p.of(1, 0, 2, 3)
    }


@case("transpose transpose2", 8)
def transpose(p):
    axis = p.of([2, 0, 1], [0, 2, 1], [1, 0], [0, 2, 3, 1], [3, 1, 0, 2])
    return {"X": normal([2, 3, 4, 2][: len(axis)], p.any(*ALL))}, {"axis": axis}


# Cut and join.
@case("concat", 14)
def concat(p):
    axis, dtype = p.of(0, 1, -1, -2), p.any(*ALL)
    shapes = [[2, 3, 2] for _ in range(p.any(1, 2, 3))]
    for i, shape in enumerate(shapes):
        shape[axis] += i
    inputs = {"X": [normal(shape, dtype) for shape in shapes]}
    if p.any(0, 0, 1):
        inputs["AxisTensor"] = values([axis])
        axis = 0
    return inputs, {"axis": axis}


@case("split", 18)
def split(p):
    axis = p.of(0, 1, -1)
    inputs = {"X": normal([4, 6, 4][: p.any(2, 3)], p.any(*ALL))}
    size = inputs["X"][0][axis]
    attrs = {"axis": axis}
    if p.any(0, 1):
        attrs["num"] = 2
    else:
        attrs["sections"] = p.any([1, size - 1], [2, -1], [1, 1, size - 2])
        if p.any(0, 1):
            inputs["SectionsTensorList"] = scalars(attrs["sections"])
    if p.any(0, 0, 1):
        inputs["AxisTensor"] = values([axis])
        attrs["axis"] = 0
    return inputs, attrs


@case("stack", 8)
def stack(p):
    dtype, shape = p.any(*ALL), p.any([2, 3], [4], [2, 1, 2])
    return {"X": [normal(shape, dtype) for _ in range(p.any(1, 2, 3))]}, {"axis": p.of(0, -1, 1)}


@case("unstack", 8)
def unstack(p):
    axis = p.of(0, 1, -1, -2)
    shape = [2, 3, 2]
    return {"X": normal(shape, p.any(*FLOATS))}, {"axis": axis, "num": shape[axis]}


@case("expand", 14)
def expand(p):
    shape, times = p.of(([2, 3], [2, 3]), ([2, 3], [1, 2]), ([3], [4]), ([2, 1, 2], [1, 3, 2]))
    inputs, how = {"X": normal(shape, p.any(*ALL))}, p.any("attrs", "tensor", "list")
    if how == "tensor":
        inputs["ExpandTimes"] = values(times)
    if how == "list":
        inputs["expand_times_tensor"] = scalars(times)
    return inputs, {"expand_times": times}


@case("slice", 30)
def cut(p):
    axes, starts, ends, decrease = p.of(
        ([0], [1], [3], []), ([0, 1], [1, -3], [3, 1000], []), ([1], [2], [3], [1]), ([0, 2], [0, -2], [2, -1], []),
        ([0], [-1], [1000000], []), ([0, 1], [1, 1], [2, 2], [0, 1]), ([2], [-2], [-1], [2]), ([1, 2], [0, 1], [-1, 2], [2]),
    )  # fmt: skip
    inputs = {"Input": normal([4, 5, 3], p.any(*ALL))}
    attrs = {
        "axes": axes,
        "starts": starts,
        "ends": ends,
        "decrease_axis": decrease,
        "infer_flags": [1] * len(axes),
    }
    for slot, numbers, how in (
        ("Starts", starts, p.any("", "one", "list")),
        ("Ends", ends, p.any("", "one", "list")),
    ):
        if how:
            attrs["infer_flags"] = [-1] * len(axes)
        if how == "one":
            inputs[slot + "Tensor"] = values(numbers)
        if how == "list":
            inputs[slot + "TensorList"] = scalars(numbers)
    return inputs, attrs


@case("gather", 10)
def gather(p):
    index = integers(p.any([4], [4, 1], [1]), 5, p.any("int32", "int64"))
    if p.of(0, 1):
        index = [[4], index[1], "unique", 5]
    return {"X": normal([5, 3][: p.any(1, 2)], p.any(*ALL)), "Index": index}, {
        "overwrite": p.any(True, False)
    }


@case("gather_nd", 12)
def gather_nd(p):
    shape = p.of([4, 2], [4, 1], [2, 2, 1], [3, 3], [1, 2], [2, 0])
    return {
        "X": normal([3, 4, 3], p.any(*ALL)),
        "Index": integers(shape, 3, p.any("int32", "int64")),
    }, {}


@case("scatter", 10)
def scatter(p):
    overwrite, dtype = p.of(True, False), p.any(*ALL)
    ids = (
        [[3], p.any("int32", "int64"), "unique", 5]
        if overwrite
        else integers([3], 5, p.any("int32", "int64"))
    )
    return {"X": normal([5, 2], dtype), "Ids": ids, "Updates": normal([3, 2], dtype)}, {
        "overwrite": overwrite
    }


@case("where", 6)
def where(p):
    shape, dtype = p.any(*SHAPES), p.of(*ALL)
    return {
        "Condition": integers(shape, 2, "bool"),
        "X": normal(shape, dtype),
        "Y": normal(shape, dtype),
    }, {}


@case("pad", 8)
def pad(p):
    attrs = {
        "paddings": p.of([0, 1, 2, 0], [1, 1, 0, 0], [0, 0, 0, 0]),
        "pad_value": p.of(0.0, 2.5, -1.0),
    }
    return {"X": normal([2, 3], p.any(*FLOATS))}, attrs


@case("pad2d", 24)
def pad2d(p):
    layout = p.of("NCHW", "NHWC")
    paddings = p.any([1, 0, 1, 2], [2, 2, 1, 1], [0, 0, 0, 1])
    attrs = {
        "mode": p.any("constant", "reflect", "edge"),
        "pad_value": p.any(0.0, 2.5),
        "data_format": layout,
    }
    inputs = {"X": normal([2, 2, 3, 4] if layout == "NCHW" else [2, 3, 4, 2], p.any(*FLOATS))}
    if p.any(0, 0, 1):
        inputs["Paddings"] = values(paddings)
    attrs["paddings"] = p.any([0, 1, 1, 0], paddings) if "Paddings" in inputs else paddings
    return inputs, attrs


# Lookups and constants.
@case("lookup_table lookup_table_v2", 10)
def lookup(p):
    shape = p.any([4], [2, 3], [3, 2])
    attrs = {"padding_idx": p.of(-1, 2, 0), "is_sparse": False}
    return {"W": normal([5, 3], p.any(*FLOATS)), "Ids": integers(shape + [1], 5)}, attrs


def lookup_v2(p):
    inputs, attrs = lookup(p)
    if p.any(0, 1):
        inputs["Ids"][0] = inputs["Ids"][0][:-1]
    return inputs, attrs


CASES["lookup_table_v2"] = (10, lookup_v2)


@case("lookup_table_dequant", 6)
def lookup_table_dequant(p):
    ids = integers(p.any([4, 1], [2, 3, 1]), 5)
    return {"W": normal([5, p.any(3, 4, 6)]), "Ids": ids}, {"padding_idx": p.of(-1, 2, 0)}


@case("one_hot one_hot_v2", 16)
def one_hot(p):
    loose = p.of(False, True)
    ids = integers(
        p.any([4], [2, 3]), 9 if loose else 5, p.any("int64", "int32"), -2 if loose else 0
    )
    attrs = {
        "depth": 5,
        "allow_out_of_range": loose,
        "dtype": p.any(FP32, FP32, FP64, INT32, INT64),
    }
    inputs = {"X": ids}
    if p.any(0, 0, 1):
        inputs["depth_tensor"] = values([5])
        attrs["depth"] = p.any(1, 7)
    return inputs, attrs


def one_hot_first(p):
    inputs, attrs = one_hot(p)
    inputs["X"][0] = inputs["X"][0] + [1]
    return inputs, attrs


CASES["one_hot"] = (16, one_hot_first)


@case("cast", 16)
def cast(p):
    source, target = p.of(*ALL), p.any("float32", "float64", "int32", "int64", "bool")
    return {"X": normal([3, 4], source)}, {
        "in_dtype": NUMBERS[source],
        "out_dtype": NUMBERS[target],
    }


@case("fill_constant", 20)
def fill(p):
    dtype = p.of("float32", "float64", "int32", "int64", "bool")
    shape = p.any([2, 3], [1], [2, 1, 2])
    attrs = {
        "dtype": NUMBERS[dtype],
        "value": p.any(0.0, 1.0, 3.0),
        "force_cpu": p.any(False, True),
    }
    if p.any(0, 0, 1):
        attrs["str_value"] = p.any("2", "7", "1")
    inputs, how = {}, p.any("attrs", "tensor", "list")
    attrs["shape"] = shape
    if how == "tensor":
        inputs["ShapeTensor"] = values(shape, p.any("int32", "int64"))
        attrs["shape"] = []
    if how == "list":
        inputs["ShapeTensorList"] = scalars(shape, p.any("int32", "int64"))
    if p.any(0, 0, 1):
        inputs["ValueTensor"] = [[1], dtype, "values", [1]]
    return inputs, attrs


@case("fill_constant_batch_size_like", 12)
def fill_like_batch(p):
    dtype = p.of("float32", "float64", "int32", "int64")
    attrs = {
        "shape": p.any([-1, 3], [2, 5], [3, -1]),
        "dtype": NUMBERS[dtype],
        "value": p.any(0.0, 2.0),
        "input_dim_idx": p.any(0, 1),
        "output_dim_idx": p.any(0, 0, 1),
    }
    attrs["output_dim_idx"] = (
        attrs["shape"].index(-1) if -1 in attrs["shape"] else attrs["output_dim_idx"]
    )
    if p.any(0, 1):
        attrs["str_value"] = p.any("2", "7")
    return {"Input": normal([4, 2])}, attrs


@case("fill_any_like", 12)
def fill_any(p):
    attrs = {"value": p.any(0.0, 2.0, 3.0)}
    if p.any(0, 1):
        attrs["dtype"] = p.any(FP32, FP64, INT32, INT64)
    return {"X": normal(p.any(*SHAPES), p.of(*ALL))}, attrs


@case("assign_value", 8)
def assign_value(p):
    dtype = p.of("float32", "int32", "int64", "bool")
    shape = p.any([4], [2, 2])
    slot = {"float32": "fp32_values"}.get(dtype, dtype + "_values")
    numbers = {"float32": [0.5, -1.0, 2.0, 3.0], "bool": [True, False, True, True]}.get(
        dtype, [1, -2, 3, 4]
    )
    return {}, {"shape": shape, "dtype": NUMBERS[dtype], slot: numbers}


# Draws: held to shape and type, and to values where there is one only.
@case("uniform_random gaussian_random truncated_gaussian_random", 8)
def random(p):
    dtype = p.of("float32", "float64")
    attrs = {"shape": p.any([2, 3], [4]), "dtype": NUMBERS[dtype], "seed": p.any(0, 7)}
    inputs, how = {}, p.any("attrs", "tensor", "list")
    if how == "tensor":
        inputs["ShapeTensor"] = values([3, 2])
    if how == "list":
        inputs["ShapeTensorList"] = scalars([3, 2])
    return inputs, attrs


def uniform(p):
    inputs, attrs = random(p)
    attrs.update(min=p.any(-1.0, 2.0), max=p.any(2.0, 3.0))
    if p.any(0, 1) and not inputs:
        attrs.update(shape=[3, 3], diag_num=p.any(2, 3), diag_step=p.any(2, 3), diag_val=1.5)
    return inputs, attrs


CASES["uniform_random"] = (12, uniform)
CASES["truncated_gaussian_random"] = (
    8,
    lambda p: ({}, dict(random(p)[1], mean=p.any(0.0, 2.0), std=p.any(1.0, 0.5))),
)


@case("dropout", 14)
def dropout(p):
    attrs = {
        "dropout_prob": p.of(0.0, 1.0, 0.3),
        "dropout_implementation": p.of("downgrade_in_infer", "upscale_in_train"),
        "fix_seed": p.any(False, True),
        "seed": p.any(0, 5),
    }
    attrs["is_test"] = attrs["dropout_prob"] == 0.3
    inputs = {"X": normal(p.any(*SHAPES), p.any(*FLOATS))}
    if p.any(0, 0, 1):
        inputs["Seed"] = values([3])
    return inputs, attrs


# Updates.
update("sgd", "LearningRate")
update("momentum", "LearningRate Velocity", mu=RATES, use_nesterov=(False, True))
update(
    "adam",
    "LearningRate Moment1 Moment2 Beta1Pow Beta2Pow",
    beta1=RATES,
    beta2=(0.999, 0.9),
    epsilon=SMALL,
)
update("adagrad", "LearningRate Moment", epsilon=SMALL)
update("decayed_adagrad", "LearningRate Moment", decay=RATES, epsilon=SMALL)
update(
    "adamax", "LearningRate Moment InfNorm Beta1Pow", beta1=RATES, beta2=(0.999, 0.9), epsilon=SMALL
)
update(
    "rmsprop",
    "LearningRate MeanSquare MeanGrad Moment",
    centered=(False, True),
    momentum=(0.0, 0.9),
    decay=RATES,
    epsilon=SMALL,
)
update("adadelta", "AvgSquaredGrad AvgSquaredUpdate", rho=RATES, epsilon=SMALL)
