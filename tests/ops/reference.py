"""Plain float64 NumPy for every op, written apart from the declarations.

A reference takes operands by slot and attributes, and returns the outputs it vouches for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Reference = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
REFERENCE: dict[str, Reference] = {}


def reference(*op_types: str) -> Callable[[Reference], Reference]:
    def register(function: Reference) -> Reference:
        for op_type in op_types:
            REFERENCE[op_type] = function
        return function

    return register


def unary(op_type: str, function: Callable[..., Any]) -> None:
    REFERENCE[op_type] = lambda ins, attrs: {"Out": function(ins["X"], attrs)}


phi = np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))), otypes=[float])
sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731

unary("relu", lambda x, a: np.maximum(x, 0))
unary("sigmoid", lambda x, a: sigmoid(x))
unary("tanh", lambda x, a: np.tanh(x))
unary("exp", lambda x, a: np.exp(x))
unary("square", lambda x, a: x**2)
unary("log", lambda x, a: np.log(x))
unary("sqrt", lambda x, a: np.sqrt(x))
unary("rsqrt", lambda x, a: 1 / np.sqrt(x))
unary("reciprocal", lambda x, a: 1 / x)
unary("abs", lambda x, a: np.abs(x))
unary("sin", lambda x, a: np.sin(x))
unary("cos", lambda x, a: np.cos(x))
unary("floor", lambda x, a: np.floor(x))
unary("ceil", lambda x, a: np.ceil(x))
unary("round", lambda x, a: np.sign(x) * np.floor(np.abs(x) + 0.5))
unary("softplus", lambda x, a: np.log(1 + np.exp(x)))
unary("logsigmoid", lambda x, a: -np.log(1 + np.exp(-x)))
unary("softsign", lambda x, a: x / (1 + np.abs(x)))
unary("leaky_relu", lambda x, a: np.maximum(x, a["alpha"] * x))
unary("relu6", lambda x, a: np.clip(x, 0, a["threshold"]))
unary("elu", lambda x, a: np.where(x > 0, x, a["alpha"] * (np.exp(x) - 1)))
unary("swish", lambda x, a: x * sigmoid(a["beta"] * x))
unary("hard_sigmoid", lambda x, a: np.clip(a["slope"] * x + a["offset"], 0, 1))
unary("hard_swish", lambda x, a: x * np.clip(x + a["offset"], 0, a["threshold"]) / a["scale"])
unary("sign", lambda x, a: np.sign(x))
unary("pow", lambda x, a: x ** a["factor"])
unary("clip", lambda x, a: np.clip(x, a["min"], a["max"]))
unary("logical_not", lambda x, a: ~x)
unary("mean", lambda x, a: np.array([x.mean()]))
unary("squared_l2_norm", lambda x, a: np.array([(x**2).sum()]))
unary("clip_by_norm", lambda x, a: x * min(1.0, a["max_norm"] / np.sqrt((x**2).sum())))
unary("fill_zeros_like", lambda x, a: np.zeros_like(x))
unary("fill_any_like", lambda x, a: np.full_like(x, a["value"]))
unary("assign", lambda x, a: x)
unary("increment", lambda x, a: x + a["step"])
unary("expand", lambda x, a: np.tile(x, a["expand_times"]))
unary("one_hot", lambda x, a: np.eye(a["depth"])[x[..., 0]])
unary("one_hot_v2", lambda x, a: np.eye(a["depth"])[x])
unary("cast", lambda x, a: np.trunc(x) if a["out_dtype"] == 3 else x)


@reference("gelu")
def gelu(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    if attrs["approximate"]:
        return {"Out": 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))}
    return {"Out": x * phi(x)}


@reference("scale")
def scale(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    if attrs["bias_after_scale"]:
        return {"Out": ins["X"] * attrs["scale"] + attrs["bias"]}
    return {"Out": (ins["X"] + attrs["bias"]) * attrs["scale"]}


def binary(op_type: str, function: Callable[..., Any]) -> None:
    def run(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        x, y = ins["X"], ins["Y"]
        if attrs.get("axis", -1) != -1:
            y = y.reshape(y.shape + (1,) * (x.ndim - attrs["axis"] - y.ndim))
        return {"Out": function(x, y)}

    REFERENCE[op_type] = run


binary("elementwise_add", lambda x, y: x + y)
binary("elementwise_sub", lambda x, y: x - y)
binary("elementwise_mul", lambda x, y: x * y)
binary("elementwise_div", lambda x, y: x / y)
binary("elementwise_max", np.maximum)
binary("elementwise_min", np.minimum)
binary("elementwise_pow", lambda x, y: x**y)
binary("less_than", lambda x, y: x < y)
binary("less_equal", lambda x, y: x <= y)
binary("greater_than", lambda x, y: x > y)
binary("greater_equal", lambda x, y: x >= y)
binary("equal", lambda x, y: x == y)
binary("not_equal", lambda x, y: x != y)
binary("logical_and", lambda x, y: x & y)
binary("logical_or", lambda x, y: x | y)
binary("logical_xor", lambda x, y: x ^ y)


@reference("mul")
def mul(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, y, m, n = ins["X"], ins["Y"], attrs["x_num_col_dims"], attrs["y_num_col_dims"]
    flat = x.reshape(math.prod(x.shape[:m]), -1) @ y.reshape(math.prod(y.shape[:n]), -1)
    return {"Out": flat.reshape(x.shape[:m] + y.shape[n:])}


@reference("matmul")
def matmul(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = np.swapaxes(ins["X"], -1, -2) if attrs["transpose_X"] else ins["X"]
    y = np.swapaxes(ins["Y"], -1, -2) if attrs["transpose_Y"] else ins["Y"]
    return {"Out": np.atleast_1d(x @ y) * attrs["alpha"]}


def reduction(op_type: str, function: Callable[..., Any]) -> None:
    def run(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        axis = None if attrs["reduce_all"] else tuple(attrs["dim"])
        return {"Out": np.atleast_1d(function(ins["X"], axis=axis, keepdims=attrs["keep_dim"]))}

    REFERENCE[op_type] = run


reduction("reduce_sum", np.sum)
reduction("reduce_mean", np.mean)
reduction("reduce_max", np.max)
reduction("reduce_min", np.min)
reduction("reduce_prod", np.prod)

REFERENCE["sum"] = lambda ins, attrs: {"Out": sum(ins["X"])}
REFERENCE["concat"] = lambda ins, attrs: {"Out": np.concatenate(ins["X"], attrs["axis"])}
REFERENCE["stack"] = lambda ins, attrs: {"Y": np.stack(ins["X"], attrs["axis"])}
REFERENCE["gather"] = lambda ins, attrs: {"Out": ins["X"][ins["Index"]]}
REFERENCE["where"] = lambda ins, attrs: {"Out": np.where(ins["Condition"], ins["X"], ins["Y"])}
REFERENCE["shape"] = lambda ins, attrs: {"Out": np.array(ins["Input"].shape)}
REFERENCE["transpose2"] = lambda ins, attrs: {"Out": np.transpose(ins["X"], attrs["axis"])}


@reference("reshape2")
def reshape2(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    sizes = [ins["X"].shape[i] if size == 0 else size for i, size in enumerate(attrs["shape"])]
    return {"Out": ins["X"].reshape(sizes)}


@reference("squeeze2")
def squeeze2(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.squeeze(ins["X"], tuple(attrs["axes"]) or None)}


@reference("unsqueeze2")
def unsqueeze2(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out = ins["X"]
    for axis in attrs["axes"]:
        out = np.expand_dims(out, axis)
    return {"Out": out}


@reference("flatten2")
def flatten2(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": ins["X"].reshape(math.prod(ins["X"].shape[: attrs["axis"]]), -1)}


@reference("split")
def split(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    sections = list(attrs["sections"])
    if sections:
        size = ins["X"].shape[attrs["axis"]]
        sections = [size - sum(s for s in sections if s >= 0) if s < 0 else s for s in sections]
        at = list(itertools.accumulate(sections))[:-1]
        return {"Out": np.split(ins["X"], at, attrs["axis"])}
    return {"Out": np.split(ins["X"], attrs["num"], attrs["axis"])}


@reference("slice")
def slice_(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    index: list[Any] = [slice(None)] * ins["Input"].ndim
    for axis, start, end in zip(attrs["axes"], attrs["starts"], attrs["ends"], strict=True):
        index[axis] = slice(start, end)
    return {"Out": np.squeeze(ins["Input"][tuple(index)], tuple(attrs["decrease_axis"]))}


@reference("fill_constant")
def fill_constant(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.full(attrs["shape"], attrs["value"])}


@reference("assign_value")
def assign_value(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.reshape(attrs["fp32_values"] or attrs["int64_values"], attrs["shape"])}


@reference("fill_constant_batch_size_like")
def fill_batch(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.full([len(ins["Input"]), *attrs["shape"][1:]], attrs["value"])}


@reference("top_k")
def top_k(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    order = np.argsort(-ins["X"], axis=-1, kind="stable")[..., : attrs["k"]]
    return {"Out": np.take_along_axis(ins["X"], order, -1), "Indices": order}


REFERENCE["arg_max"] = lambda ins, attrs: {
    "Out": np.argmax(ins["X"], attrs["axis"], keepdims=attrs["keepdims"])
}
REFERENCE["arg_min"] = lambda ins, attrs: {
    "Out": np.argmin(ins["X"], attrs["axis"], keepdims=attrs["keepdims"])
}


def image_pads(
    attrs: dict[str, Any], size: tuple[int, ...], kernel: list[int]
) -> list[tuple[int, int]]:
    p = attrs["paddings"]
    if attrs["padding_algorithm"] == "SAME":
        totals = [
            max((math.ceil(n / s) - 1) * s + k - n, 0)
            for n, s, k in zip(size, attrs["strides"], kernel, strict=True)
        ]
        return [(t // 2, t - t // 2) for t in totals]
    return [(p[0], p[0]), (p[1], p[1])] if len(p) == 2 else [(p[0], p[1]), (p[2], p[3])]


@reference("conv2d", "depthwise_conv2d")
def conv2d(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, w = ins["Input"], ins["Filter"]
    (sh, sw), (dh, dw), groups = attrs["strides"], attrs["dilations"], attrs["groups"]
    kh, kw = (w.shape[2] - 1) * dh + 1, (w.shape[3] - 1) * dw + 1
    pads = image_pads(attrs, x.shape[2:], [kh, kw])
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    oh, ow = (x.shape[2] - kh) // sh + 1, (x.shape[3] - kw) // sw + 1
    out = np.zeros((len(x), len(w), oh, ow))
    per_group, filters = w.shape[1], len(w) // groups
    for o, i, j in itertools.product(range(len(w)), range(oh), range(ow)):
        channels = slice(o // filters * per_group, (o // filters + 1) * per_group)
        window = x[:, channels, i * sh : i * sh + kh : dh, j * sw : j * sw + kw : dw]
        out[:, o, i, j] = (window * w[o]).sum((1, 2, 3))
    return {"Output": out}


@reference("pool2d")
def pool2d(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    height, width = x.shape[2:]
    average = attrs["pooling_type"] == "avg"
    reduce = np.mean if average else np.max
    if attrs["global_pooling"]:
        return {"Out": reduce(x, axis=(2, 3), keepdims=True)}
    (kh, kw), (sh, sw) = attrs["ksize"], attrs["strides"]
    pads = image_pads(attrs, x.shape[2:], attrs["ksize"])
    if attrs["adaptive"]:
        (oh, ow), (kh, kw), pads = (kh, kw), (height // kh, width // kw), [(0, 0), (0, 0)]
        sh, sw = kh, kw
    else:
        rounded = math.ceil if attrs["ceil_mode"] else math.floor
        oh = rounded((height + sum(pads[0]) - kh) / sh) + 1
        ow = rounded((width + sum(pads[1]) - kw) / sw) + 1
    out = np.zeros((*x.shape[:2], oh, ow))
    for i, j in itertools.product(range(oh), range(ow)):
        top, left = i * sh - pads[0][0], j * sw - pads[1][0]
        window = x[:, :, max(top, 0) : top + kh, max(left, 0) : left + kw]
        out[:, :, i, j] = reduce(window, axis=(2, 3))
        if average and not attrs["exclusive"]:
            out[:, :, i, j] *= window.shape[2] * window.shape[3] / (kh * kw)
    return {"Out": out}


@reference("batch_norm")
def batch_norm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = np.moveaxis(ins["X"], -1, 1) if attrs["data_layout"] == "NHWC" else ins["X"]
    axes = tuple(i for i in range(x.ndim) if i != 1)
    spread = (1, -1) + (1,) * (x.ndim - 2)
    fixed = attrs["is_test"] or attrs["use_global_stats"]
    mean = ins["Mean"] if fixed else x.mean(axes)
    variance = ins["Variance"] if fixed else x.var(axes)
    inverse = 1 / np.sqrt(variance + attrs["epsilon"])
    y = (x - mean.reshape(spread)) * (inverse * ins["Scale"]).reshape(spread) + ins["Bias"].reshape(
        spread
    )
    m = 1.0 if fixed else attrs["momentum"]
    return {
        "Y": np.moveaxis(y, 1, -1) if attrs["data_layout"] == "NHWC" else y,
        "MeanOut": ins["Mean"] * m + mean * (1 - m),
        "VarianceOut": ins["Variance"] * m + variance * (1 - m),
    }


@reference("layer_norm")
def layer_norm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    rows = x.reshape(math.prod(x.shape[: attrs["begin_norm_axis"]]), -1)
    y = (rows - rows.mean(1, keepdims=True)) / np.sqrt(
        rows.var(1, keepdims=True) + attrs["epsilon"]
    )
    y = y * ins["Scale"] if "Scale" in ins else y
    y = y + ins["Bias"] if "Bias" in ins else y
    return {"Y": y.reshape(x.shape), "Mean": rows.mean(1), "Variance": rows.var(1)}


def softmax_of(x: np.ndarray, axis: int) -> np.ndarray:
    shifted = np.exp(x - x.max(axis, keepdims=True))
    return shifted / shifted.sum(axis, keepdims=True)


unary("softmax", lambda x, a: softmax_of(x, a["axis"]))


def negative_log(p: np.ndarray, label: np.ndarray, attrs: dict[str, Any], axis: int) -> np.ndarray:
    if attrs.get("soft_label"):
        return -(label * np.log(p)).sum(axis, keepdims=True)
    ignored = label == attrs["ignore_index"]
    picked = np.take_along_axis(p, np.where(ignored, 0, label), axis)
    return np.where(ignored, 0.0, -np.log(picked))


@reference("cross_entropy", "cross_entropy2")
def cross_entropy(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Y": negative_log(ins["X"], ins["Label"], attrs, -1)}


@reference("softmax_with_cross_entropy")
def softmax_with_cross_entropy(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    p = softmax_of(ins["Logits"], attrs["axis"])
    return {"Softmax": p, "Loss": negative_log(p, ins["Label"], attrs, attrs["axis"])}


@reference("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, t = ins["X"], ins["Label"]
    loss = -t * np.log(sigmoid(x)) - (1 - t) * np.log(1 - sigmoid(x))
    return {"Out": loss / loss.size if attrs["normalize"] else loss}


@reference("log_loss")
def log_loss(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    p, t, e = ins["Predicted"], ins["Labels"], attrs["epsilon"]
    return {"Loss": -t * np.log(p + e) - (1 - t) * np.log(1 - p + e)}


@reference("huber_loss")
def huber_loss(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    r, d = ins["Y"] - ins["X"], attrs["delta"]
    return {"Residual": r, "Out": np.where(np.abs(r) <= d, r**2 / 2, d * (np.abs(r) - d / 2))}


@reference("lookup_table", "lookup_table_v2")
def lookup(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    ids = ins["Ids"]
    if "grad_inplace" in attrs:  # the first form of the op: ids end in a dimension of size 1
        ids = ids[..., 0]
    rows = ins["W"][ids]
    if attrs["padding_idx"] != -1:
        rows = np.where((ids == attrs["padding_idx"])[..., None], 0, rows)
    return {"Out": rows}


@reference("accuracy")
def accuracy(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    hits = sum(label in row for row, (label,) in zip(ins["Indices"], ins["Label"], strict=True))
    total = len(ins["Label"])
    return {"Accuracy": [hits / total], "Correct": [hits], "Total": [total]}


# -- optimizers -----------------------------------------------------------------------------------


@reference("sgd")
def sgd(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"ParamOut": ins["Param"] - ins["LearningRate"] * ins["Grad"]}


@reference("momentum")
def momentum(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    v = attrs["mu"] * ins["Velocity"] + ins["Grad"]
    step = ins["Grad"] + attrs["mu"] * v if attrs["use_nesterov"] else v
    return {"VelocityOut": v, "ParamOut": ins["Param"] - ins["LearningRate"] * step}


@reference("adam")
def adam(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    b1, b2, g = attrs["beta1"], attrs["beta2"], ins["Grad"]
    m = b1 * ins["Moment1"] + (1 - b1) * g
    v = b2 * ins["Moment2"] + (1 - b2) * g**2
    rate = ins["LearningRate"] * np.sqrt(1 - ins["Beta2Pow"]) / (1 - ins["Beta1Pow"])
    return {
        "Moment1Out": m,
        "Moment2Out": v,
        "ParamOut": ins["Param"] - rate * m / (np.sqrt(v) + attrs["epsilon"]),
        "Beta1PowOut": ins["Beta1Pow"] * b1,
        "Beta2PowOut": ins["Beta2Pow"] * b2,
    }


def root_step(ins: dict[str, Any], m: np.ndarray, epsilon: float) -> dict[str, Any]:
    step = ins["LearningRate"] * ins["Grad"] / (np.sqrt(m) + epsilon)
    return {"MomentOut": m, "ParamOut": ins["Param"] - step}


@reference("adagrad")
def adagrad(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return root_step(ins, ins["Moment"] + ins["Grad"] ** 2, attrs["epsilon"])


@reference("decayed_adagrad")
def decayed_adagrad(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    d = attrs["decay"]
    return root_step(ins, d * ins["Moment"] + (1 - d) * ins["Grad"] ** 2, attrs["epsilon"])


@reference("adamax")
def adamax(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    m = attrs["beta1"] * ins["Moment"] + (1 - attrs["beta1"]) * ins["Grad"]
    u = np.maximum(np.abs(ins["Grad"]), attrs["beta2"] * ins["InfNorm"] + attrs["epsilon"])
    rate = ins["LearningRate"] / (1 - ins["Beta1Pow"])
    return {"MomentOut": m, "InfNormOut": u, "ParamOut": ins["Param"] - rate * m / u}


@reference("adadelta")
def adadelta(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rho, e, g = attrs["rho"], attrs["epsilon"], ins["Grad"]
    a = rho * ins["AvgSquaredGrad"] + (1 - rho) * g**2
    step = np.sqrt((ins["AvgSquaredUpdate"] + e) / (a + e)) * g
    u = rho * ins["AvgSquaredUpdate"] + (1 - rho) * step**2
    return {"AvgSquaredGradOut": a, "AvgSquaredUpdateOut": u, "ParamOut": ins["Param"] - step}
