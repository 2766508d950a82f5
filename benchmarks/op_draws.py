"""Cases of ``op_sweep.py`` whose shapes are drawn at random: corners that no list of cases has.

A case is named by its seed and number ("7.12"), so that every process draws the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.op_cases import CASES, Case, normal, uniform, whole
from benchmarks.op_programs import PROGRAMS
from benchmarks.op_sizes import ELEMENTS, WORK, Drawn, Rng, about, shape_of


@cache
def case_of(name: str) -> Case:
    """Return the case of a name."""
    seed, number = map(int, name.split("."))
    rng = np.random.default_rng([seed, number])
    family = FAMILIES[number % len(FAMILIES)]
    while True:
        case, sizes, work = family(rng)
        if ELEMENTS[0] <= max(sizes) <= ELEMENTS[1] and work <= WORK:
            return case


def named(name: str) -> Case:
    """Return a case by name, drawn or not."""
    return CASES[name] if name in CASES else case_of(name)


def describe(case: Case) -> str:
    """Return a case's op, shapes and attributes as text."""
    shapes = [list(array.shape) for arrays in case.draw().values() for array in arrays]
    attrs = ", ".join(f"{k}={v}" for k, v in case.attrs.items())
    return f"{case.op} {' '.join('x'.join(map(str, shape)) for shape in shapes)} {attrs}".strip()


def _convolution(rng: Rng) -> Drawn:
    """A convolution as nets have them, with now and then a window as wide as the image."""
    n, c, o = about(rng, 1, 64), about(rng, 1, 256), about(rng, 1, 256)
    h, w = about(rng, 4, 96), about(rng, 4, 96)
    k = [int(rng.choice([1, 1, 2, 3, 3, 3, 5, 7])) for _ in "hw"]
    k = [min(k[0], h), min(k[0] if rng.random() < 0.7 else k[1], w)]
    pads = [int(rng.integers(0, 2)) * (size // 2) for size in k]
    shape = rng.random()
    if shape < 0.12:  # words: windows over whole rows
        c, k, pads = 1, [int(rng.integers(2, 6)), w], [0, 0]
        k[0] = min(k[0], h)
    elif shape < 0.2:  # sequences
        h, k, pads = 1, [1, k[1]], [0, pads[1]]
    stride, gap = (int(rng.choice([1, 1, 1, 2])) for _ in "sd")
    gap = gap if all((size - 1) * gap < full for size, full in zip(k, (h, w), strict=True)) else 1
    return _conv_case("conv2d", n, c, o, (h, w), k, pads, stride, gap, 1)


def _grouped(rng: Rng) -> Drawn:
    """A convolution in groups, most of one channel each."""
    n, size, k = about(rng, 1, 32), about(rng, 5, 96), int(rng.choice([3, 3, 5, 7]))
    k = min(k, size)
    groups = about(rng, 2, 256)
    each = 1 if rng.random() < 0.7 else int(rng.choice([2, 4, 8]))
    op = "depthwise_conv2d" if each == 1 else "conv2d"
    stride = int(rng.choice([1, 1, 2]))
    return _conv_case(
        op, n, groups * each, groups * each, (size, size), [k, k], [k // 2] * 2, stride, 1, groups
    )


def _transposed(rng: Rng) -> Drawn:
    """A transposed convolution, as decoders have them."""
    n, c, o = about(rng, 1, 32), about(rng, 2, 128), about(rng, 1, 128)
    size, k, stride = about(rng, 4, 48), int(rng.choice([2, 3, 4])), int(rng.choice([1, 2]))
    pad = int(rng.integers(0, 2))
    case = Case(
        "conv2d_transpose",
        {"Input": normal(n, c, size, size), "Filter": normal(c, o, k, k)},
        lambda t, x, w: t.conv_transpose2d(x, w, stride=stride, padding=pad),
        {"strides": [stride] * 2, "paddings": [pad] * 2},
        ("Input", "Filter"),
        "Output",
    )
    out = (size - 1) * stride + k
    return case, [n * c * size**2, n * o * out**2], n * c * o * size**2 * k**2


def _conv_case(
    op: str,
    n: int,
    c: int,
    o: int,
    image: tuple[int, int],
    k: list[int],
    pads: list[int],
    stride: int,
    gap: int,
    groups: int,
) -> Drawn:
    case = Case(
        op,
        {"Input": normal(n, c, *image), "Filter": normal(o, c // groups, *k)},
        lambda t, x, w: t.conv2d(
            x, w, stride=stride, padding=tuple(pads), dilation=gap, groups=groups
        ),
        {"strides": [stride] * 2, "paddings": pads, "dilations": [gap] * 2, "groups": groups},
        ("Input", "Filter"),
        "Output",
    )
    out = [
        (s + 2 * p - (m - 1) * gap - 1) // stride + 1
        for s, p, m in zip(image, pads, k, strict=True)
    ]
    work = n * o * math.prod(out) * c // groups * math.prod(k)
    return case, [n * c * math.prod(image), n * o * math.prod(out)], work


def _product(rng: Rng) -> Drawn:
    """A product of matrices: few rows, long sums, odd sizes."""
    m, k, n = about(rng, 1, 2048), about(rng, 1, 2048), about(rng, 1, 2048)
    case = Case(
        "mul", {"X": normal(m, k), "Y": normal(k, n)}, lambda t, x, y: x @ y, {}, ("X", "Y")
    )
    return case, [m * k, k * n, m * n], m * k * n


def _batched(rng: Rng) -> Drawn:
    """Products of stacks of matrices, one of them turned, as attention has them."""
    b, m, k, n = about(rng, 1, 256), about(rng, 2, 256), about(rng, 2, 256), about(rng, 2, 256)
    turned = bool(rng.integers(0, 2))
    y = (b, n, k) if turned else (b, k, n)
    case = Case(
        "matmul",
        {"X": normal(b, m, k), "Y": normal(*y)},
        lambda t, x, y: x @ (y.transpose(1, 2) if turned else y),
        {"transpose_Y": turned},
        ("X", "Y"),
    )
    return case, [b * m * k, b * k * n, b * m * n], b * m * k * n


def _pool(rng: Rng) -> Drawn:
    """A pool: windows that overlap or not, over all of the image now and then."""
    n, c, h, w = (about(rng, *ends) for ends in ((1, 32), (1, 256), (4, 96), (1, 96)))
    kind = str(rng.choice(["max", "avg"]))
    k = [int(rng.choice([2, 3, 5, h])), int(rng.choice([2, 3, 5, w]))]
    k = [min(a, b) for a, b in zip(k, (h, w), strict=True)]
    stride = [int(rng.choice([1, 2, size])) for size in k]
    pool = lambda t, x: getattr(t.nn.functional, f"{kind}_pool2d")(x, k, stride)
    attrs = {"ksize": k, "strides": stride, "pooling_type": kind}
    case = Case("pool2d", {"X": normal(n, c, h, w)}, pool, attrs, ("X",))
    return case, [n * c * h * w], n * c * h * w * math.prod(k) // math.prod(stride)


def _norm(rng: Rng) -> Drawn:
    """A normalization, over rows, channels, groups or batches."""
    kind = rng.integers(0, 4)
    if kind == 0:
        rows, width = about(rng, 1, 20000), about(rng, 2, 4000)
        inputs = {"X": normal(rows, width), "Scale": normal(width), "Bias": normal(width)}
        layers = lambda t, x, s, b: t.nn.functional.layer_norm(x, (width,), s, b)
        case = Case("layer_norm", inputs, layers, {}, ("X", "Scale", "Bias"), "Y")
        return case, [rows * width], 0
    n, groups, size = about(rng, 1, 32), about(rng, 1, 32), about(rng, 1, 64)
    c = groups * about(rng, 1, 16)
    inputs = {"X": normal(n, c, size, size), "Scale": normal(c), "Bias": normal(c)}
    slopes = ("X", "Scale", "Bias")
    f = "group_norm" if kind == 1 else "instance_norm"
    if kind == 3:
        inputs |= {"Mean": normal(c), "Variance": uniform(0.5, 2, c)}
        batch = lambda t, x, s, b, m, v: t.nn.functional.batch_norm(x, m, v, s, b, training=True)
        case = Case("batch_norm", inputs, batch, {}, slopes, "Y")
    elif kind == 1:
        by_group = lambda t, x, s, b: t.nn.functional.group_norm(x, groups, s, b)
        case = Case(f, inputs, by_group, {"groups": groups}, slopes, "Y")
    else:
        each = lambda t, x, s, b: t.nn.functional.instance_norm(x, weight=s, bias=b)
        case = Case(f, inputs, each, {}, slopes, "Y")
    return case, [n * c * size**2 if size > 1 or kind != 2 else ELEMENTS[1] + 1], 0


def _reduction(rng: Rng) -> Drawn:
    """A sum, mean or maximum over some dimensions."""
    shape = shape_of(rng)
    count = int(rng.integers(1, len(shape) + 1))
    dims = sorted(int(d) for d in rng.choice(len(shape), count, replace=False))
    name = str(rng.choice(["sum", "mean", "max"]))
    theirs = {"sum": "sum", "mean": "mean", "max": "amax"}[name]
    call = lambda t, x: getattr(x, theirs)(dims, keepdim=True)
    attrs = {"dim": dims, "keep_dim": True}
    return Case(f"reduce_{name}", {"X": normal(*shape)}, call, attrs, ("X",)), [math.prod(shape)], 0


def _softmax(rng: Rng) -> Drawn:
    """A softmax over some dimension."""
    shape = shape_of(rng)
    axis = int(rng.integers(0, len(shape))) if rng.random() < 0.3 else len(shape) - 1
    call = lambda t, x: t.softmax(x, axis)
    return (
        Case("softmax", {"X": normal(*shape)}, call, {"axis": axis}, ("X",)),
        [math.prod(shape)],
        0,
    )


def _loss(rng: Rng) -> Drawn:
    """A loss of classes, or of numbers."""
    rows, width = about(rng, 1, 20000), about(rng, 2, 30000)
    each = {"reduction": "none"}
    if rng.random() < 0.6:
        cross = lambda t, x, y: t.nn.functional.cross_entropy(x, y[:, 0], **each)[:, None]
        inputs = {"Logits": normal(rows, width), "Label": whole(width, rows, 1)}
        case = Case("softmax_with_cross_entropy", inputs, cross, {}, ("Logits",), "Loss")
    else:
        huber = lambda t, x, y: t.nn.functional.huber_loss(x, y, **each)
        inputs = {"X": normal(rows, width), "Y": normal(rows, width)}
        case = Case("huber_loss", inputs, huber, {"delta": 1.0}, ("X", "Y"))
    return case, [rows * width], 0


def _embedding(rng: Rng) -> Drawn:
    """Rows of a table, by number."""
    words, width, rows = about(rng, 10, 100000), about(rng, 1, 512), about(rng, 1, 10000)
    call = lambda t, w, i: t.nn.functional.embedding(i, w)
    inputs = {"W": normal(words, width), "Ids": whole(words, rows)}
    return Case("lookup_table_v2", inputs, call, {}, ("W",)), [words * width, rows * width], 0


def _transpose(rng: Rng) -> Drawn:
    """Another order of dimensions."""
    shape = shape_of(rng)
    order = [int(d) for d in rng.permutation(len(shape))]
    call = lambda t, x: x.permute(order).contiguous()
    return (
        Case("transpose2", {"X": normal(*shape)}, call, {"axis": order}, ("X",)),
        [math.prod(shape)],
        0,
    )


def _concat(rng: Rng) -> Drawn:
    """Several tensors side by side."""
    shape = shape_of(rng)
    axis, count = int(rng.integers(0, len(shape))), int(rng.integers(2, 9))
    parts = []
    for _ in range(count):
        part = [*shape]
        part[axis] = about(rng, 1, max(shape[axis], 2))
        parts.append(normal(*part))
    call = lambda t, *xs: t.cat(xs, axis)
    return Case("concat", {"X": parts}, call, {"axis": axis}, ("X",)), [math.prod(shape) * count], 0


def _pair(rng: Rng) -> Drawn:
    """An element-wise op, one operand spread over dimensions of the other."""
    shape = shape_of(rng)
    start = int(rng.integers(0, len(shape)))
    stop = int(rng.integers(start + 1, len(shape) + 1))
    name = str(rng.choice(["add", "sub", "mul", "div", "max"]))
    theirs = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "maximum"}[name]
    behind = [1] * (len(shape) - stop)
    call = lambda t, x, y: getattr(t, theirs)(x, y.reshape(*y.shape, *behind))
    inputs = {"X": normal(*shape), "Y": uniform(0.5, 2, *shape[start:stop])}
    case = Case(f"elementwise_{name}", inputs, call, {"axis": start}, ("X", "Y"))
    return case, [math.prod(shape)], 0


def _activation(rng: Rng) -> Drawn:
    """A function of one operand."""
    shape, name = (
        shape_of(rng),
        str(rng.choice(["relu", "tanh", "sigmoid", "gelu", "exp", "square"])),
    )
    call = lambda t, x: getattr(t.nn.functional if name == "gelu" else t, name)(x)
    return Case(name, {"X": normal(*shape)}, call, {}, ("X",)), [math.prod(shape)], 0


FAMILIES: tuple[Callable[[Rng], Any], ...] = (
    *(_convolution, _product, _pool, _norm, _convolution, _batched, _reduction, _grouped),
    *(_softmax, _loss, _convolution, _embedding, _transpose, _transposed, _concat, _pair),
    _activation,
    *PROGRAMS,
)
