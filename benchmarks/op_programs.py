"""More cases whose shapes are drawn: ops around the layers of a program, in one-sided shapes like theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.op_cases import Case, Draw, either, normal, uniform, whole
from benchmarks.op_sizes import Drawn, Rng, about, shape_of

ONE_OR_MANY = 1, 256  # images: a server's, a trainer's


def _channels_apart(rng: Rng) -> Drawn:
    """A depthwise convolution of one image, or of 256."""
    n, c = int(rng.choice(ONE_OR_MANY)), about(rng, 3, 512)
    size, k, stride = about(rng, 4, 112), int(rng.choice([3, 3, 5])), int(rng.choice([1, 2]))
    call = lambda t, x, w: t.conv2d(x, w, stride=stride, padding=k // 2, groups=c)
    inputs = {"Input": normal(n, c, size, size), "Filter": normal(c, 1, k, k)}
    attrs = {"strides": [stride] * 2, "paddings": [k // 2] * 2, "groups": c}
    case = Case("depthwise_conv2d", inputs, call, attrs, ("Input", "Filter"), "Output")
    return case, [n * c * size**2], n * c * (size * k / stride) ** 2


def _transposed_apart(rng: Rng) -> Drawn:
    """A transposed convolution in groups."""
    n, groups, each = about(rng, 1, 32), about(rng, 2, 128), int(rng.choice([1, 1, 2]))
    size, k, c = about(rng, 4, 48), int(rng.choice([2, 3, 4])), groups * each
    call = lambda t, x, w: t.conv_transpose2d(x, w, stride=2, padding=1, groups=groups)
    inputs = {"Input": normal(n, c, size, size), "Filter": normal(c, each, k, k)}
    attrs = {"strides": [2, 2], "paddings": [1, 1], "groups": groups}
    op = "conv2d_transpose" if each > 1 else "depthwise_conv2d_transpose"
    case = Case(op, inputs, call, attrs, ("Input", "Filter"), "Output")
    return case, [4 * n * c * size**2], n * c * each * (size * k) ** 2


def _volumes(rng: Rng) -> Drawn:
    """A convolution over three dimensions, transposed now and then."""
    n, c, o = about(rng, 1, 8), about(rng, 1, 64), about(rng, 1, 64)
    sizes = [about(rng, 3, 24), *(about(rng, 4, 48) for _ in "hw")]
    k, turned = int(rng.choice([1, 3, 3])), rng.random() < 0.3
    stride, pads = int(rng.choice([1, 2])), [k // 2] * 3
    name = "conv_transpose3d" if turned else "conv3d"
    call = lambda t, x, w: getattr(t, name)(x, w, stride=stride, padding=pads)
    filters = (c, o, k, k, k) if turned else (o, c, k, k, k)
    inputs = {"Input": normal(n, c, *sizes), "Filter": normal(*filters)}
    attrs = {"strides": [stride] * 3, "paddings": pads}
    op = "conv3d_transpose" if turned else "conv3d"
    case = Case(op, inputs, call, attrs, ("Input", "Filter"), "Output")
    places = math.prod(sizes) * (stride**3 if turned else 1)
    taps = math.prod(sizes) / (1 if turned else stride**3) * k**3
    return case, [n * max(c, o) * places], n * c * o * taps


def _deep_pool(rng: Rng) -> Drawn:
    """A pool over three dimensions."""
    n, c, k, stride = about(rng, 1, 8), about(rng, 1, 64), int(rng.choice([2, 3])), 2
    sizes = [about(rng, 4, 24), *(about(rng, 4, 48) for _ in "hw")]
    kind = str(rng.choice(["max", "avg"]))
    pool = lambda t, x: getattr(t.nn.functional, f"{kind}_pool3d")(x, k, stride)
    attrs = {"ksize": [k] * 3, "strides": [stride] * 3, "pooling_type": kind}
    return (
        Case("pool3d", {"X": normal(n, c, *sizes)}, pool, attrs, ("X",)),
        [n * c * math.prod(sizes)],
        0,
    )


def _adaptive_pool(rng: Rng) -> Drawn:
    """A pool to a given size, most often to one element."""
    n, c, h, w = (about(rng, *ends) for ends in ((1, 64), (1, 512), (2, 64), (2, 64)))
    size = [1, 1] if rng.random() < 0.5 else [about(rng, 1, min(h, 9)), about(rng, 1, min(w, 9))]
    kind = str(rng.choice(["max", "avg"]))
    pool = lambda t, x: getattr(t.nn.functional, f"adaptive_{kind}_pool2d")(x, size)
    attrs = {"ksize": size, "adaptive": True, "pooling_type": kind}
    return Case("pool2d", {"X": normal(n, c, h, w)}, pool, attrs, ("X",)), [n * c * h * w], 0


def _line_pool(rng: Rng) -> Drawn:
    """A pool with windows along one dimension, as sequences have them."""
    n, c, w, k = about(rng, 1, 64), about(rng, 1, 256), about(rng, 8, 2000), about(rng, 2, 9)
    kind, down = str(rng.choice(["max", "avg"])), bool(rng.integers(0, 2))
    window = [k, 1] if down else [1, k]
    stride = [int(rng.choice([1, s])) for s in window]
    pool = lambda t, x: getattr(t.nn.functional, f"{kind}_pool2d")(x, window, stride)
    attrs = {"ksize": window, "strides": stride, "pooling_type": kind}
    shape = (n, c, w, 1) if down else (n, c, 1, w)
    return Case("pool2d", {"X": normal(*shape)}, pool, attrs, ("X",)), [n * c * w], n * c * w * k


def _long_norm(rng: Rng) -> Drawn:
    """A layer norm of very short rows, or of very long ones."""
    short = rng.random() < 0.5
    rows, width = (
        (about(rng, 5000, 400000), about(rng, 2, 9))
        if short
        else (about(rng, 1, 9), about(rng, 5000, 400000))
    )
    inputs = {"X": normal(rows, width), "Scale": normal(width), "Bias": normal(width)}
    layers = lambda t, x, s, b: t.nn.functional.layer_norm(x, (width,), s, b)
    case = Case("layer_norm", inputs, layers, {}, ("X", "Scale", "Bias"), "Y")
    return case, [rows * width], 0


def _group_norm(rng: Rng) -> Drawn:
    """A group or instance norm of few images, or many."""
    n, groups = int(rng.choice(ONE_OR_MANY)), about(rng, 1, 64)
    h, w = about(rng, 1, 128), about(rng, 2, 128)
    inputs = {"X": normal(n, c := groups * about(rng, 1, 8), h, w)}
    inputs |= {"Scale": normal(c), "Bias": normal(c)}
    slopes = ("X", "Scale", "Bias")
    if rng.random() < 0.5:
        each = lambda t, x, s, b: t.nn.functional.instance_norm(x, weight=s, bias=b)
        return Case("instance_norm", inputs, each, {}, slopes, "Y"), [n * c * h * w], 0
    by_group = lambda t, x, s, b: t.nn.functional.group_norm(x, groups, s, b)
    return Case("group_norm", inputs, by_group, {"groups": groups}, slopes, "Y"), [n * c * h * w], 0


def _trained_norm(rng: Rng) -> Drawn:
    """A batch norm with the averages of training."""
    n, c, size = int(rng.choice([1, 8, 256])), about(rng, 1, 512), about(rng, 1, 64)
    inputs = {"X": normal(n, c, size, size), "Scale": normal(c), "Bias": normal(c)}
    inputs |= {"Mean": normal(c), "Variance": uniform(0.5, 2, c)}
    batch = lambda t, x, s, b, m, v: t.nn.functional.batch_norm(x, m, v, s, b)
    return Case("batch_norm", inputs, batch, {"is_test": True}, (), "Y"), [n * c * size**2], 0


def _largest(rng: Rng) -> Drawn:
    """Where the largest are, or the largest themselves."""
    shape = shape_of(rng)
    if rng.random() < 0.5:
        axis = int(rng.integers(0, len(shape)))
        name, theirs = ("arg_max", "argmax") if rng.random() < 0.7 else ("arg_min", "argmin")
        call = lambda t, x: getattr(x, theirs)(axis)
        return Case(name, {"X": normal(*shape)}, call, {"axis": axis}), [math.prod(shape)], 0
    k = min(int(rng.choice([1, 1, 2, 5, 10])), shape[-1])
    best = lambda t, x: t.topk(x, k)[0]
    return Case("top_k", {"X": normal(*shape)}, best, {"k": k}, ("X",)), [math.prod(shape)], 0


def _picked_rows(rng: Rng) -> Drawn:
    """Rows picked by number, or written: from one to 100,000."""
    rows, width = about(rng, 10, 100000), about(rng, 1, 512)
    count, what = about(rng, 1, 100000), int(rng.integers(0, 4))
    table, size = normal(rows, width), [rows * width, count * width]
    if what == 0:
        pick = lambda t, x, i: x.index_select(0, i)
        inputs, attrs = {"X": table, "Index": whole(rows, count)}, {"overwrite": False}
        return Case("gather", inputs, pick, attrs, ("X",)), size, 0
    if what == 1:
        ids = {"X": table, "Index": whole(rows, count, 1)}
        return Case("gather_nd", ids, lambda t, x, i: x[i[:, 0]], {}, ("X",)), size, 0
    if what == 2:
        inputs = {"X": table, "Index": whole(rows, count, 1), "Updates": normal(count, width)}
        call = lambda t, x, i, u: x.index_add(0, i[:, 0], u)
        return Case("scatter_nd_add", inputs, call, {}, ("X", "Updates")), size, 0
    count = min(count, rows)
    apart = lambda r: r.permutation(rows)[:count].astype(np.int64)
    inputs = {"X": table, "Ids": apart, "Updates": normal(count, width)}
    over = lambda t, x, i, u: x.index_copy(0, i, u)
    return Case("scatter", inputs, over, {}, ("X", "Updates")), [rows * width], 0


def _running_sum(rng: Rng) -> Drawn:
    """Sums so far along a dimension."""
    shape = shape_of(rng)
    axis = int(rng.integers(0, len(shape)))
    call = lambda t, x: x.cumsum(axis)
    return (
        Case("cumsum", {"X": normal(*shape)}, call, {"axis": axis}, ("X",)),
        [math.prod(shape)],
        0,
    )


def _marks(rng: Rng) -> Drawn:
    """Numbers as rows with a one."""
    rows, depth = about(rng, 1, 100000), about(rng, 2, 30000)
    call = lambda t, x: t.nn.functional.one_hot(x, depth).float()
    return Case("one_hot_v2", {"X": whole(depth, rows)}, call, {"depth": depth}), [rows * depth], 0


def _sequences(rng: Rng) -> Drawn:
    """What comes of each sequence's rows."""
    count, width, longest = about(rng, 1, 2000), about(rng, 1, 512), about(rng, 2, 200)
    lengths = rng.integers(1, longest + 1, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    kind = str(rng.choice(["sum", "mean", "max"]))
    ours = {"sum": "SUM", "mean": "AVERAGE", "max": "MAX"}[kind]
    pooled = lambda t, x, o: t.segment_reduce(x, kind, offsets=o)
    inputs: dict[str, Draw] = {"X": normal(int(offsets[-1]), width), "X@LOD": lambda r: offsets}
    case = Case("sequence_pool", inputs, pooled, {"pooltype": ours}, ("X",))
    return case, [int(offsets[-1]) * width], 0


def _cut_out(rng: Rng) -> Drawn:
    """A part of an array, each element of it or some."""
    shape = shape_of(rng)
    steps = [int(rng.choice([1, 1, 2, 3])) for _ in shape]
    starts = [int(rng.integers(0, max(size // 3, 1))) for size in shape]
    ends = [int(rng.integers(s + 1, size + 1)) for s, size in zip(starts, shape, strict=True)]
    part = tuple(slice(*ends) for ends in zip(starts, ends, steps, strict=True))
    axes = list(range(len(shape)))
    attrs: dict[str, Any] = {"axes": axes, "starts": starts, "ends": ends}
    op = "slice"
    if max(steps) > 1:
        op, attrs = "strided_slice", {**attrs, "strides": steps}
    call = lambda t, x: x[part].clone()
    return Case(op, {"Input": normal(*shape)}, call, attrs, ("Input",)), [math.prod(shape)], 0


def _edges(rng: Rng) -> Drawn:
    """An array with something around it."""
    if rng.random() < 0.5:
        shape = shape_of(rng)
        ends = [int(rng.integers(0, 5)) for _ in range(2 * len(shape))]
        theirs = [ends[2 * d + side] for d in reversed(range(len(shape))) for side in (0, 1)]
        call = lambda t, x: t.nn.functional.pad(x, theirs)
        return (
            Case("pad", {"X": normal(*shape)}, call, {"paddings": ends}, ("X",)),
            [math.prod(shape)],
            0,
        )
    n, c, h, w = (about(rng, *ends) for ends in ((1, 32), (1, 128), (4, 96), (4, 96)))
    top, bottom, left, right = (int(rng.integers(0, 4)) for _ in range(4))
    mode = str(rng.choice(["constant", "reflect", "edge"]))
    theirs = {"edge": "replicate"}.get(mode, mode)
    around = lambda t, x: t.nn.functional.pad(x, (left, right, top, bottom), mode=theirs)
    attrs = {"paddings": [top, bottom, left, right], "mode": mode}
    return Case("pad2d", {"X": normal(n, c, h, w)}, around, attrs, ("X",)), [n * c * h * w], 0


def _repeated(rng: Rng) -> Drawn:
    """An array several times over."""
    shape = shape_of(rng)
    times = [int(rng.choice([1, 1, 2, about(rng, 2, 64)])) for _ in shape]
    call = lambda t, x: x.repeat(times)
    size = math.prod(shape) * math.prod(times)
    return Case("expand", {"X": normal(*shape)}, call, {"expand_times": times}, ("X",)), [size], 0


def _in_parts(rng: Rng) -> Drawn:
    """An array cut into many, or many made one."""
    shape, count = shape_of(rng), about(rng, 2, 32)
    axis = int(rng.integers(0, len(shape)))
    size = [math.prod(shape) * count]
    if rng.random() < 0.5:
        many = lambda t, *xs: t.stack(xs, axis)
        inputs = {"X": [normal(*shape)] * count}
        return Case("stack", inputs, many, {"axis": axis}, ("X",), "Y"), size, 0
    shape[axis] *= count
    apart = lambda t, x: tuple(p.clone() for p in x.chunk(count, axis))
    attrs = {"num": count, "axis": axis}
    return Case("split", {"X": normal(*shape)}, apart, attrs, ("X",)), size, 0


def _choice(rng: Rng) -> Drawn:
    """A comparison, a choice, or numbers of another type."""
    shape, what = shape_of(rng), int(rng.integers(0, 3))
    pair: dict[str, Draw] = {"X": normal(*shape), "Y": normal(*shape)}
    if what == 0:
        name = str(rng.choice(["less_than", "greater_equal", "equal"]))
        theirs = {"less_than": "lt", "greater_equal": "ge", "equal": "eq"}[name]
        return Case(name, pair, lambda t, x, y: getattr(t, theirs)(x, y)), [math.prod(shape)], 0
    if what == 1:
        inputs = {"Condition": lambda r: r.random(shape) < 0.5, **pair}
        pick = lambda t, c, x, y: t.where(c, x, y)
        return Case("where", inputs, pick, {}, ("X", "Y")), [math.prod(shape)], 0
    source, target = ((5, 3), (3, 5), (2, 5), (5, 0))[int(rng.integers(0, 4))]
    types = {5: "float32", 3: "int64", 2: "int32", 0: "bool"}
    values = lambda r: (9 * r.standard_normal(shape)).astype(types[source])
    cast = lambda t, x: x.to(getattr(t, types[target]))
    attrs = {"in_dtype": source, "out_dtype": target}
    return Case("cast", {"X": values}, cast, attrs), [math.prod(shape)], 0


def _dropped(rng: Rng) -> Drawn:
    """Elements dropped at random."""
    shape, chance = shape_of(rng), float(rng.choice([0.1, 0.5]))
    call = lambda t, x: t.nn.functional.dropout(x, chance)
    attrs = {"dropout_prob": chance, "dropout_implementation": "upscale_in_train"}
    case = Case("dropout", {"X": normal(*shape)}, call, attrs, ("X",), chance=True)
    return case, [math.prod(shape)], 0


def _shares(rows: int, width: int) -> Draw:
    """Draw rows of positive numbers whose sum is one."""

    def drawn(rng: Rng) -> Any:
        numbers = uniform(0, 1, rows, width)(rng)
        return numbers / numbers.sum(1, keepdims=True)

    return drawn


def _soft_loss(rng: Rng) -> Drawn:
    """A loss of classes whose labels are shares, or of yes and no."""
    rows, width = about(rng, 1, 20000), about(rng, 2, 30000)
    each, what = {"reduction": "none"}, int(rng.integers(0, 3))
    if what == 0:
        cross = lambda t, x, y: t.nn.functional.cross_entropy(x, y, **each)[:, None]
        inputs = {"Logits": normal(rows, width), "Label": _shares(rows, width)}
        op, attrs = "softmax_with_cross_entropy", {"soft_label": True}
        return Case(op, inputs, cross, attrs, ("Logits",), "Loss"), [rows * width], 0
    first = normal(rows, width) if what == 1 else uniform(0.05, 0.95, rows, width)
    inputs = {"X": first, "Label": either(rows, width)}
    op, theirs = (
        ("sigmoid_cross_entropy_with_logits", "binary_cross_entropy_with_logits"),
        ("bce_loss", "binary_cross_entropy"),
    )[what - 1]
    loss = lambda t, x, y: getattr(t.nn.functional, theirs)(x, y, **each)
    return Case(op, inputs, loss, {}, ("X",)), [rows * width], 0


def _resized(rng: Rng) -> Drawn:
    """Images in another size."""
    n, c, h, w = (about(rng, *ends) for ends in ((1, 32), (1, 128), (4, 64), (4, 64)))
    size = [about(rng, 4, 96), about(rng, 4, 96)]
    mode, aligned = str(rng.choice(["nearest", "bilinear", "bilinear"])), bool(rng.integers(0, 2))
    options = {} if mode == "nearest" else {"align_corners": aligned}
    call = lambda t, x: t.nn.functional.interpolate(x, size=size, mode=mode, **options)
    attrs = {"interp_method": mode, "align_corners": bool(options) and aligned, "align_mode": 0}
    attrs |= {"out_h": size[0], "out_w": size[1]}
    case = Case(f"{mode}_interp", {"X": normal(n, c, h, w)}, call, attrs, ("X",))
    return case, [n * c * h * w, n * c * math.prod(size)], 0


def _slopes(rng: Rng) -> Drawn:
    """A rectifier whose slope is trained."""
    n, c, size = about(rng, 1, 256), about(rng, 1, 512), about(rng, 1, 64)
    mode = str(rng.choice(["channel", "all"]))
    alpha = uniform(0.1, 0.4, 1, c, 1, 1) if mode == "channel" else uniform(0.1, 0.4, 1)
    call = lambda t, x, a: t.nn.functional.prelu(x, a.reshape(-1))
    inputs = {"X": normal(n, c, size, size), "Alpha": alpha}
    return Case("prelu", inputs, call, {"mode": mode}, ("X", "Alpha")), [n * c * size**2], 0


def _total(rng: Rng) -> Drawn:
    """Several arrays added, a mean of all, or a number times an array."""
    shape, what = shape_of(rng), int(rng.integers(0, 3))
    size = [math.prod(shape)]
    if what == 0:
        count = about(rng, 2, 9)
        many = lambda t, *xs: sum(xs[1:], xs[0])
        return Case("sum", {"X": [normal(*shape)] * count}, many), [size[0] * count], 0
    if what == 1:
        return Case("mean", {"X": normal(*shape)}, lambda t, x: x.mean(), {}, ("X",)), size, 0
    scaled = lambda t, x: x * 0.5 + 2
    return Case("scale", {"X": normal(*shape)}, scaled, {"scale": 0.5, "bias": 2.0}), size, 0


PROGRAMS: tuple[Callable[[Rng], Drawn], ...] = (
    *(_channels_apart, _transposed_apart, _volumes, _deep_pool, _adaptive_pool, _line_pool),
    *(_long_norm, _group_norm, _trained_norm, _largest, _picked_rows, _running_sum, _marks),
    *(_sequences, _cut_out, _edges, _repeated, _in_parts, _choice, _dropped, _soft_loss),
    *(_resized, _slopes, _total),
)
