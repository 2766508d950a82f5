"""One case per op that PyTorch has, too: operands of some million elements, ours and its call.

Needs NumPy alone. A case's ``call`` gets torch and the operands in the order of ``inputs``; whatever of them is
in ``slopes`` takes a gradient.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLAT = (1000, 1000)
IMAGES = (16, 64, 32, 32)
SMALL_IMAGES = (16, 16, 32, 32)
VOLUMES = (4, 16, 16, 32, 32)

Draw = Callable[[np.random.Generator], Any]


def normal(*shape: int) -> Draw:
    """Draw from the normal distribution."""
    return lambda rng: rng.standard_normal(shape, np.float32)


def uniform(low: float, high: float, *shape: int) -> Draw:
    """Draw from [low, high)."""
    return lambda rng: rng.uniform(low, high, shape).astype(np.float32)


def whole(high: int, *shape: int) -> Draw:
    """Draw int64 numbers below ``high``."""
    return lambda rng: rng.integers(0, high, shape)


def either(*shape: int) -> Draw:
    """Draw 0 or 1, as float32."""
    return lambda rng: rng.integers(0, 2, shape).astype(np.float32)


def pooled(rank: int, *shape: int) -> Draw:
    """Draw for each of the elements a place in its own window of 2 by 2 (by 2), as max pooling gives it."""

    def drawn(rng: np.random.Generator) -> Any:
        sizes = shape[-rank:]
        corners = np.meshgrid(*(2 * np.arange(n) for n in sizes), indexing="ij")
        corners = [c + rng.integers(0, 2, shape) for c in corners]
        place = np.zeros(shape, np.int64)
        for corner, size in zip(corners, sizes, strict=True):
            place = place * 2 * size + corner
        return place.astype(np.int32)

    return drawn


@dataclass(frozen=True)
class Case:
    """An op of ours, its operands by slot (a list: several in one slot) and what PyTorch does with them.

    ``chance``: what comes out is random, so the libraries' numbers are not compared.
    """

    op: str
    inputs: dict[str, Any]
    call: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    slopes: tuple[str, ...] = ()
    out: str = "Out"
    chance: bool = False

    def draw(self) -> dict[str, list[Any]]:
        """Return the operands, the same in every process."""
        rng = np.random.default_rng(7)
        many = {s: d if isinstance(d, list) else [d] for s, d in self.inputs.items()}
        return {slot: [one(rng) for one in draws] for slot, draws in many.items()}


CASES: dict[str, Case] = {}


def add(
    name: str,
    inputs: dict[str, Any],
    call: Callable[..., Any],
    slopes: str = "X",
    out: str = "Out",
    op: str = "",
    **attrs: Any,
) -> None:
    """Add a case; ``name`` is the op's, perhaps with a word behind it."""
    CASES[name] = Case(op or name.split()[0], inputs, call, attrs, tuple(slopes.split()), out)


def _functions() -> None:
    """Functions of one operand."""
    wide = normal(*FLAT)
    positive, inside = uniform(0.1, 4, *FLAT), uniform(-0.9, 0.9, *FLAT)
    over = uniform(1.1, 4, *FLAT)
    plain = {
        wide: "abs atan asinh ceil cos cosh erf exp expm1 floor relu sigmoid sign sin sinh square tanh trunc",
        positive: "log log10 log1p log2 reciprocal rsqrt sqrt",
        inside: "acos asin atanh tan",
        over: "acosh",
    }
    for draw, names in plain.items():
        for name in names.split():
            flat = name in ("ceil", "floor", "sign", "trunc")
            add(name, {"X": draw}, lambda t, x, n=name: getattr(t, n)(x), "" if flat else "X")
    activations: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "softplus": ("softplus", {}, {}),
        "logsigmoid": ("logsigmoid", {}, {}),
        "softsign": ("softsign", {}, {}),
        "leaky_relu": ("leaky_relu", {"negative_slope": 0.1}, {"alpha": 0.1}),
        "relu6": ("relu6", {}, {}),
        "elu": ("elu", {}, {}),
        "celu": ("celu", {"alpha": 1.5}, {"alpha": 1.5}),
        "selu": ("selu", {}, {}),
        "silu": ("silu", {}, {}),
        "swish": ("silu", {}, {}),
        "hard_sigmoid": ("hardsigmoid", {}, {"slope": 1 / 6}),
        "hard_swish": ("hardswish", {}, {}),
        "gelu": ("gelu", {}, {}),
        "gelu tanh": ("gelu", {"approximate": "tanh"}, {"approximate": True}),
        "mish": ("mish", {}, {}),
        "hard_shrink": ("hardshrink", {}, {}),
        "softshrink": ("softshrink", {}, {}),
        "tanh_shrink": ("tanhshrink", {}, {}),
        "brelu": ("hardtanh", {"min_val": -1.0, "max_val": 1.0}, {"t_min": -1.0, "t_max": 1.0}),
        "softmax": ("softmax", {"dim": -1}, {}),
    }
    for name, (theirs, options, attrs) in activations.items():

        def call(t: Any, x: Any, n: str = theirs, o: dict[str, Any] = options) -> Any:
            return getattr(t.nn.functional, n)(x, **o)

        add(name, {"X": wide}, call, **attrs)
    add("thresholded_relu", {"X": wide}, lambda t, x: t.nn.functional.threshold(x, 1.0, 0.0))
    add("clip", {"X": wide}, lambda t, x: x.clamp(-1, 1), min=-1.0, max=1.0)
    add("pow", {"X": positive}, lambda t, x: x**2.5, factor=2.5)
    channels = {"X": normal(*IMAGES), "Alpha": uniform(0.1, 0.4, 1, 64, 1, 1)}
    prelu = lambda t, x, a: t.nn.functional.prelu(x, a.reshape(-1))
    add("prelu channel", channels, prelu, "X Alpha", mode="channel")
    one = {"X": normal(*IMAGES), "Alpha": uniform(0.1, 0.4, 1)}
    add("prelu all", one, prelu, "X Alpha", mode="all")
    maxout = lambda t, x: x.reshape(16, 32, 2, 32, 32).amax(2)
    add("maxout", {"X": normal(*IMAGES)}, maxout, groups=2, axis=1)


def _pairs() -> None:
    """Functions of two operands."""
    pair = {"X": normal(*FLAT), "Y": uniform(0.5, 2, *FLAT)}
    for ours, theirs in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "div"),
                         ("max", "maximum"), ("min", "minimum")):  # fmt: skip
        add(f"elementwise_{ours}", pair, lambda t, x, y, n=theirs: getattr(t, n)(x, y), "X Y")
    powers = {"X": uniform(0.5, 2, *FLAT), "Y": normal(*FLAT)}
    add("elementwise_pow", powers, lambda t, x, y: x**y, "X Y")
    add("minus", pair, lambda t, x, y: x - y, "X Y")
    choice = {"Condition": lambda rng: rng.random(FLAT) < 0.5, **pair}
    add("where", choice, lambda t, c, x, y: t.where(c, x, y), "X Y")


def _losses() -> None:
    mean, each = {"reduction": "mean"}, {"reduction": "none"}
    chance = {"X": uniform(0.05, 0.95, *FLAT), "Label": either(*FLAT)}
    add("bce_loss", chance, lambda t, x, y: t.nn.functional.binary_cross_entropy(x, y, **each))
    scores = {"X": normal(*FLAT), "Label": either(*FLAT)}
    logistic = lambda t, x, y: t.nn.functional.binary_cross_entropy_with_logits(x, y, **each)
    add("sigmoid_cross_entropy_with_logits", scores, logistic)
    logs = {"X": uniform(-4, 0, *FLAT), "Target": uniform(0.1, 1, *FLAT)}
    divergence = lambda t, x, y: t.nn.functional.kl_div(x, y, **mean)
    add("kldiv_loss", logs, divergence, out="Loss", **mean)
    pair = {"X": normal(*FLAT), "Y": normal(*FLAT)}
    huber = lambda t, x, y: t.nn.functional.huber_loss(x, y, **each)
    add("huber_loss", pair, huber, delta=1.0)
    rows = lambda t, x, y: t.nn.functional.smooth_l1_loss(x, y, **each).sum(1, True)
    add("smooth_l1_loss", pair, rows)
    classes = {"X": uniform(-8, 0, *FLAT), "Label": whole(1000, 1000)}
    add("nll_loss", classes, lambda t, x, y: t.nn.functional.nll_loss(x, y), **mean)
    logits = {"Logits": normal(*FLAT), "Label": whole(1000, 1000, 1)}
    cross = lambda t, x, y: t.nn.functional.cross_entropy(x, y[:, 0], **each)[:, None]
    add("softmax_with_cross_entropy", logits, cross, "Logits", "Loss")
    ranks = {"X1": normal(*FLAT), "X2": normal(*FLAT), "Label": lambda r: 2 * either(*FLAT)(r) - 1}
    margin = lambda t, a, b, y: t.nn.functional.margin_ranking_loss(a, b, y, margin=0.1, **each)
    add("margin_rank_loss", ranks, margin, "X1 X2", margin=0.1)


def _convolutions() -> None:
    f, apart = "Input Filter", {"Input": normal(*IMAGES), "Filter": normal(64, 1, 3, 3)}
    images = {"Input": normal(*SMALL_IMAGES), "Filter": normal(16, 16, 3, 3)}
    volumes = {"Input": normal(2, 8, 16, 32, 32), "Filter": normal(8, 8, 3, 3, 3)}
    for rank, x in ((2, images), (3, volumes)):
        pads, strides = [1] * rank, [2] * rank
        conv = lambda t, x, w, n=f"conv{rank}d": getattr(t, n)(x, w, padding=1)
        add(f"conv{rank}d", x, conv, f, "Output", paddings=pads)
        back = lambda t, x, w, n=f"conv_transpose{rank}d": getattr(t, n)(x, w, stride=2, padding=1)
        add(f"conv{rank}d_transpose", x, back, f, "Output", strides=strides, paddings=pads)
    each: dict[str, Any] = {"paddings": [1, 1], "groups": 64}
    conv = lambda t, x, w: t.conv2d(x, w, padding=1, groups=64)
    add("depthwise_conv2d", apart, conv, f, "Output", **each)
    back = lambda t, x, w: t.conv_transpose2d(x, w, padding=1, groups=64)
    add("depthwise_conv2d_transpose", apart, back, f, "Output", **each)


def _windows() -> None:
    """Pools, and what spreads or gathers windows."""
    flat, deep = {"X": normal(*IMAGES)}, {"X": normal(*VOLUMES)}
    for rank, x in ((2, flat), (3, deep)):
        two = {"ksize": [2] * rank, "strides": [2] * rank}
        for kind in ("max", "avg"):
            pool = lambda t, x, n=f"{kind}_pool{rank}d": getattr(t.nn.functional, n)(x, 2)
            add(f"pool{rank}d {kind}", x, pool, pooling_type=kind, **two)
        adaptive = lambda t, x, n=f"adaptive_avg_pool{rank}d": getattr(t.nn.functional, n)(x, 7)
        seven = [7] * rank
        add(f"pool{rank}d adaptive", x, adaptive, ksize=seven, adaptive=True, pooling_type="avg")
        index = lambda t, x, n=f"max_pool{rank}d": getattr(t.nn.functional, n)(
            x, 2, return_indices=True
        )[0]
        add(f"max_pool{rank}d_with_index", x, index, **two)
    places = {"X": normal(16, 64, 16, 16), "Indices": pooled(2, 16, 64, 16, 16)}
    unpool = lambda t, x, i: t.nn.functional.max_unpool2d(x, i.long(), 2)
    add("unpool", places, unpool, ksize=[2, 2], strides=[2, 2])
    deeper = {"X": normal(4, 16, 8, 16, 16), "Indices": pooled(3, 4, 16, 8, 16, 16)}
    unpool3 = lambda t, x, i: t.nn.functional.max_unpool3d(x, i.long(), 2)
    add("unpool3d", deeper, unpool3, ksize=[2] * 3, strides=[2] * 3, output_size=[16, 32, 32])
    unfold = lambda t, x: t.nn.functional.unfold(x, 3, padding=1)
    windows = {"kernel_sizes": [3, 3], "strides": [1, 1], "paddings": [1] * 4, "dilations": [1, 1]}
    add("unfold", {"X": normal(16, 8, 32, 32)}, unfold, out="Y", **windows)


def _sampling() -> None:
    small, sizes = {"X": normal(16, 16, 32, 32)}, {"out_h": 64, "out_w": 64}
    for mode, aligned in itertools.product(("bilinear", "bicubic", "nearest"), (False, True)):
        if aligned and mode == "nearest":
            continue

        def call(t: Any, x: Any, mode: str = mode, aligned: bool = aligned) -> Any:
            options = {} if mode == "nearest" else {"align_corners": aligned}
            return t.nn.functional.interpolate(x, size=(64, 64), mode=mode, **options)

        attrs = {"interp_method": mode, "align_corners": aligned, "align_mode": 0, **sizes}
        add(f"{mode}_interp{' aligned' if aligned else ''}", small, call, **attrs)
    attrs = {"interp_method": "trilinear", "align_corners": False, "align_mode": 0}
    deep = lambda t, x: t.nn.functional.interpolate(x, size=(16, 64, 32), mode="trilinear")
    volumes = {"X": normal(4, 8, 8, 32, 16)}
    add("trilinear_interp", volumes, deep, **attrs, out_d=16, out_h=64, out_w=32)
    grid = {"X": normal(*SMALL_IMAGES), "Grid": uniform(-1, 1, 16, 64, 64, 2)}
    for mode, padding in itertools.product(
        ("bilinear", "nearest"), ("zeros", "border", "reflection")
    ):
        attrs = {"mode": mode, "padding_mode": padding}
        read = lambda t, x, g, a=attrs: t.nn.functional.grid_sample(x, g, **a, align_corners=True)
        add(f"grid_sampler {mode} {padding}", grid, read, "X Grid", "Output", **attrs)
    shape = [32, 1, 128, 128]
    places = lambda t, x: t.nn.functional.affine_grid(x, shape, align_corners=True)
    add("affine_grid", {"Theta": normal(32, 2, 3)}, places, "Theta", "Output", output_shape=shape)


def _norms() -> None:
    scale, bias = uniform(0.5, 2, 64), normal(64)
    x = {"X": normal(*IMAGES), "Scale": scale, "Bias": bias}
    f = "X Scale Bias"
    instances = lambda t, x, s, b: t.nn.functional.instance_norm(x, weight=s, bias=b)
    add("instance_norm", x, instances, f, "Y")
    groups = lambda t, x, s, b: t.nn.functional.group_norm(x, 8, s, b)
    add("group_norm", x, groups, f, "Y", groups=8)
    rows = {"X": normal(*FLAT), "Scale": uniform(0.5, 2, 1000), "Bias": normal(1000)}
    layers = lambda t, x, s, b: t.nn.functional.layer_norm(x, (1000,), s, b)
    add("layer_norm", rows, layers, f, "Y")
    channel = lambda t, x, s, b: x * s.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)
    add("affine_channel", x, channel, f, data_layout="NCHW")
    add("lrn", {"X": normal(*IMAGES)}, _response, n=5, k=1.0, alpha=2e-5, beta=0.75)


def _response(t: Any, x: Any) -> Any:
    return t.nn.functional.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)


def _moves() -> None:
    flat, images = {"X": normal(*FLAT)}, {"X": normal(*IMAGES)}
    add("flip", flat, lambda t, x: x.flip(0, 1), dims=[0, 1])
    add("reverse", flat, lambda t, x: x.flip(1), axis=[1])
    add("roll", flat, lambda t, x: x.roll((3, 7), (0, 1)), shifts=[3, 7], dims=[0, 1])
    index = {"X": normal(*FLAT), "Index": whole(1000, 1000)}
    add("index_select rows", index, lambda t, x, i: x.index_select(0, i), dim=0)
    add("index_select columns", index, lambda t, x, i: x.index_select(1, i), dim=1)
    add("gather", index, lambda t, x, i: x.index_select(0, i))
    sample = {"X": normal(*FLAT), "Index": whole(1000, *FLAT)}
    add("index_sample", sample, lambda t, x, i: x.gather(1, i))
    points = {"X": normal(*FLAT), "Index": whole(1000, 1000000, 2)}
    add("gather_nd", points, lambda t, x, i: x[i[:, 0], i[:, 1]])
    updates = {"X": normal(*FLAT), "Index": whole(1000, 1000, 1), "Updates": normal(*FLAT)}
    nd = lambda t, x, i, u: x.index_add(0, i[:, 0], u)
    add("scatter_nd_add", updates, nd, "X Updates")
    add("tril_triu", flat, lambda t, x: x.tril(), lower=True)
    add("cumsum rows", flat, lambda t, x: x.cumsum(1), axis=1)
    add("cumsum columns", flat, lambda t, x: x.cumsum(0), axis=0)
    add("pixel_shuffle", images, lambda t, x: t.pixel_shuffle(x, 2), upscale_factor=2)
    channels = lambda t, x: t.nn.functional.channel_shuffle(x, 8)
    add("shuffle_channel", images, channels, group=8)
    add("trace", {"Input": normal(1000, 32, 32)}, _trace, "Input", dim1=1, dim2=2)
    diagonal = lambda t, x: t.diagonal(x, 0, 1, 2)
    add("diagonal", {"Input": normal(1000, 32, 32)}, diagonal, "Input", axis1=1, axis2=2)
    add("diag_embed", {"Input": normal(1000, 32)}, lambda t, x: t.diag_embed(x), "Input")
    add("unbind", {"X": normal(10, 100, 1000)}, lambda t, x: x.unbind(0))
    steps = {"axes": [0, 1], "starts": [0, 1], "ends": [1000, 1000], "strides": [2, 2]}
    add("strided_slice", {"Input": normal(*FLAT)}, lambda t, x: x[::2, 1::2] + 0, "Input", **steps)
    many = {"X": [normal(*FLAT), normal(*FLAT)]}
    add("stack", many, lambda t, x, y: t.stack((x, y), 1), out="Y", axis=1)
    add("concat", many, lambda t, x, y: t.cat((x, y), 1), axis=1)
    add("transpose2", images, lambda t, x: x.permute(0, 2, 3, 1).contiguous(), axis=[0, 2, 3, 1])
    add("expand", {"X": normal(1000, 100)}, lambda t, x: x.repeat(2, 5), expand_times=[2, 5])
    like = {"X": normal(1000, 1), "target_tensor": normal(*FLAT)}
    add("expand_as", like, lambda t, x, y: x.expand_as(y).contiguous())
    edges = lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1))
    add("pad2d", images, edges, paddings=[1, 1, 1, 1])
    mirror = lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect")
    add("pad2d reflect", images, mirror, paddings=[1, 1, 1, 1], mode="reflect")
    crop = lambda t, x: x[100:900, 50:950].contiguous()
    add("crop", flat, crop, offsets=[100, 50], shape=[800, 900])
    grids = {"X": [normal(1000), normal(1000)]}
    mesh = lambda t, x, y: tuple(a.contiguous() for a in t.meshgrid(x, y, indexing="ij"))
    add("meshgrid", grids, mesh)
    add("argsort", {"X": normal(100000, 10)}, lambda t, x: t.sort(x, 1)[0])
    add("top_k", flat, lambda t, x: t.topk(x, 5)[0], k=5)
    add("arg_max", flat, lambda t, x: x.argmax(1), "", axis=1)


def _trace(t: Any, x: Any) -> Any:
    return t.diagonal(x, 0, 1, 2).sum(-1)


def _sums() -> None:
    flat = {"X": normal(*FLAT)}
    for name in ("sum", "mean"):
        sums = lambda t, x, n=name: getattr(t, n)(x, 1)
        add(f"reduce_{name}", flat, sums, dim=[1])
    add("reduce_max", flat, lambda t, x: x.amax(1), dim=[1])
    add("reduce_prod", {"X": uniform(0.98, 1.02, *FLAT)}, lambda t, x: x.prod(1), dim=[1])
    add("p_norm", flat, lambda t, x: x.norm(3, 1), porder=3.0, axis=1)
    add("frobenius_norm", flat, lambda t, x: x.norm(2, 1), dim=[1])
    add("logsumexp", flat, lambda t, x: x.logsumexp(1), dim=[1], axis=[1])
    unit = lambda t, x: t.nn.functional.normalize(x, dim=1)
    add("norm", flat, unit, axis=1)
    pair = {"X": normal(*FLAT), "Y": normal(*FLAT)}
    cosine = lambda t, x, y: t.cosine_similarity(x, y)[:, None]
    add("cos_sim", pair, cosine, "X Y")
    add("dot", pair, lambda t, x, y: (x * y).sum(1, True), "X Y")
    add("dist", pair, lambda t, x, y: t.dist(x, y), "X Y", p=2.0)
    turns = {"X": normal(350000, 3), "Y": normal(350000, 3)}
    add("cross", turns, lambda t, x, y: t.linalg.cross(x, y, dim=1), "X Y", dim=1)
    blocks = {"X": normal(32, 32), "Y": normal(32, 32)}
    add("kron", blocks, lambda t, x, y: t.kron(x, y), "X Y")
    batches = {"X": normal(64, 128, 128), "Y": normal(64, 128, 128)}
    add("bmm", batches, lambda t, x, y: t.bmm(x, y), "X Y")
    wide = {"Input": normal(512, 512), "X": normal(512, 512), "Y": normal(512, 512)}
    add("addmm", wide, lambda t, z, x, y: t.addmm(z, x, y), "Input X Y")
    spread = {"Input": uniform(-1, 1, 200, 64, 64)}
    well = lambda r: spread["Input"](r) + 16 * np.eye(64, dtype="float32")
    add("inverse", {"Input": well}, lambda t, x: t.inverse(x), "Input", "Output")


_FAMILIES = (_functions, _pairs, _losses, _convolutions, _windows, _sampling, _norms, _moves, _sums)
for _family in _FAMILIES:
    _family()
