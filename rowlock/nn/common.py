"""Dropout, products and norms of ``paddle.nn.functional``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from ..functions import math as functions
from ..graph.layers import binary, moves, tensors, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats
from ..graph.layers.conv import image_format
from ..graph.layers.helper import LayerHelper
from ..graph.ops.rules import product
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue, Unsupported
from ..strategies.types import VarType
from .activations import SELU_FLOOR, alpha_factors, softmax


def _probability(p: float, layer: str) -> float:
    if not 0 <= p <= 1:
        raise InvalidValue(f"{layer}: p is in [0, 1], got {p!r}.")
    return float(p)


def _ones(x: Variable, dims: Sequence[int]) -> Variable:
    """Return ones with x's sizes in ``dims``, and 1 elsewhere."""
    assert x.dtype is not None
    sizes = [size if i in dims else 1 for i, size in enumerate(x.shape or ())]
    if -1 not in sizes:
        return layers.fill_constant(sizes, x.dtype, 1.0)
    if sizes.index(-1) != 0 or sizes.count(-1) > 1:
        raise InvalidValue(f"dropout: of {x.name!r} only the number of rows may be unknown.")
    return layers.fill_constant_batch_size_like(x, sizes, x.dtype, 1.0)


def pairwise_distance(
    x: Variable,
    y: Variable,
    p: float = 2.0,
    epsilon: float = 1e-6,
    keepdim: bool = False,
    name: str | None = None,
) -> Variable:
    """The p-norm of x - y + epsilon over the last dimension."""
    difference = x - y + epsilon if epsilon else x - y
    return functions.norm(difference, float(p), -1, keepdim, name)


def dropout(
    x: Variable,
    p: float = 0.5,
    axis: Any = None,
    training: bool = True,
    inplace: bool = False,
    mode: Literal["upscale_in_train", "downscale_in_infer"] = "upscale_in_train",
    name: str | None = None,
) -> Variable:
    """Zero elements with probability ``p`` while training; with ``axis`` one draw serves the other dimensions.

    Raises:
        InvalidValue: ``mode`` is neither "upscale_in_train" nor "downscale_in_infer".
    """
    p = _probability(p, "dropout")
    if p == 0:
        return x
    if p == 1 and (training or mode == "downscale_in_infer"):
        return layers.zeros_like(x)
    words = {"upscale_in_train": "upscale_in_train", "downscale_in_infer": "downgrade_in_infer"}
    attrs = {"is_test": not training, "name": name, "dropout_implementation": words[mode]}
    if axis is None:
        return unary.dropout(x, p, **attrs)  # type: ignore[arg-type]
    dims = [axis] if isinstance(axis, int) else list(axis)
    rank = x.ndim
    if any(not 0 <= dim < rank for dim in dims):
        raise InvalidValue(f"dropout: axis {axis!r} is outside the {rank} dimensions.")
    return x * unary.dropout(_ones(x, dims), p, **attrs)  # type: ignore[arg-type]


def dropout1d(
    input: Variable, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Variable:
    """Zero whole channels: of [N, C, L] the same in all of a batch, as in Paddle; of [C, L] each by itself.

    Raises:
        InvalidValue: the input has other dimensions.
    """
    if input.ndim not in (2, 3):
        raise InvalidValue(f"dropout1d: input must be [N, C, L] or [C, L], not {input!r}.")
    return dropout(input, p, input.ndim - 2, training)


def dropout2d(
    x: Variable,
    p: float = 0.5,
    training: bool = True,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Zero whole channels of images."""
    return dropout(x, p, [0, 1] if data_format == "NCHW" else [0, 3], training, name=name)


def dropout3d(
    x: Variable,
    p: float = 0.5,
    training: bool = True,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Variable:
    """Zero whole channels of volumes."""
    return dropout(x, p, [0, 1] if data_format == "NCDHW" else [0, 4], training, name=name)


def alpha_dropout(
    x: Variable, p: float = 0.5, training: bool = True, name: str | None = None
) -> Variable:
    """Set elements to selu's limit towards -infinity; mean and deviation stay. arXiv 1706.02515."""
    return _alpha_dropout("alpha_dropout", x, p, training, layers.ones_like)


def feature_alpha_dropout(
    x: Variable, p: float = 0.5, training: bool = True, name: str | None = None
) -> Variable:
    """Set whole channels of [N, C, ...] to selu's limit towards -infinity: see :func:`alpha_dropout`."""
    return _alpha_dropout("feature_alpha_dropout", x, p, training, lambda x: _ones(x, [0, 1]))


def _alpha_dropout(
    layer: str, x: Variable, p: float, training: bool, ones: Callable[[Variable], Variable]
) -> Variable:
    p = _probability(p, layer)
    if not training or p == 0:
        return x
    if p == 1:
        return layers.zeros_like(x)
    mask = unary.dropout(ones(x), p)
    mask.stop_gradient = True
    factor, offset = alpha_factors(p)
    return (x * mask + (1.0 - mask) * SELU_FLOOR) * factor + offset


def linear(
    x: Variable, weight: Variable, bias: Variable | None = None, name: str | None = None
) -> Variable:
    """x @ weight + bias."""
    product = binary.matmul(x, weight, name=name)
    return product if bias is None else binary.elementwise_add(product, bias)


def rms_norm(
    input: Floats,
    normalized_shape: Sequence[int],
    weight: Variable | None = None,
    eps: float = 1e-5,
) -> tuple[Variable, Variable]:
    """input / sqrt(mean of its squares over the last dimensions + eps) * weight, and 1 / that root.

    Raises:
        InvalidValue: ``normalized_shape`` is not that of the input's last dimensions, or of the weight.
    """
    sizes, shape = list(normalized_shape), list(input.shape or ())
    if not sizes or shape[-len(sizes) :] != sizes:
        raise InvalidValue(
            f"rms_norm: normalized_shape {sizes} must be the sizes of the last dimensions of {input!r}."
        )
    if weight is not None and list(weight.shape or ()) != sizes:
        raise InvalidValue(f"rms_norm: weight must have the shape {sizes}, and is {weight!r}.")
    dims = list(range(input.ndim - len(sizes), input.ndim))
    inverse = unary.rsqrt(layers.reduce_mean(unary.square(input), dim=dims, keep_dim=True) + eps)
    out = input * inverse if weight is None else input * inverse * weight
    return out, layers.squeeze(inverse, dims)


def embedding(
    x: Variable,
    weight: Variable,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    sparse: bool = False,
    scale_grad_by_freq: bool = False,
    name: str | None = None,
) -> Variable:
    """Rows of ``weight`` for ids.

    Raises:
        Unsupported: ``max_norm`` or ``scale_grad_by_freq`` is set.
    """
    if max_norm is not None or scale_grad_by_freq:
        raise Unsupported("embedding: max_norm and scale_grad_by_freq are not built.")
    rows = (weight.shape or (0,))[0]
    padding = -1 if padding_idx is None else padding_idx % rows
    attrs = {"is_sparse": sparse, "padding_idx": padding}
    inputs = {"W": weight, "Ids": x}
    return LayerHelper("embedding", name or "embedding").layer("lookup_table_v2", **inputs, **attrs)


def one_hot(x: Variable, num_classes: int = -1, name: str | None = None) -> Variable:
    """[...] labels to [..., num_classes].

    Raises:
        Unsupported: the number of classes would depend on the labels.
    """
    if isinstance(num_classes, int) and num_classes == -1:
        raise Unsupported(
            "one_hot: without num_classes it depends on the labels, and sizes that depend on values are "
            "not built. Give num_classes."
        )
    return layers.one_hot_v2(x, num_classes)


_CHANNELS_LAST = ("NHWC", "NLC", "NDHWC")


def batch_norm(
    x: Variable,
    running_mean: Variable,
    running_var: Variable,
    weight: Variable | None = None,
    bias: Variable | None = None,
    training: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_format: str = "NCHW",
    use_global_stats: bool | None = None,
    name: str | None = None,
) -> Variable:
    """Normalise each channel: over the batch, which moves the running statistics, or by these.

    ``use_global_stats`` None: by these unless ``training``. No weight is 1, no bias 0.

    Raises:
        InvalidValue: ``data_format`` is no order of channels.
    """
    last = data_format in _CHANNELS_LAST
    if not last and data_format not in ("NC", "NCL", "NCHW", "NCDHW"):
        raise InvalidValue(f"batch_norm: data_format {data_format!r} is no order of channels.")
    use = not training if use_global_stats is None else use_global_stats
    channels, dtype = list(running_mean.shape or ()), running_mean.dtype
    inputs = {
        "X": x,
        "Scale": layers.fill_constant(channels, dtype, 1.0) if weight is None else weight,
        "Bias": layers.fill_constant(channels, dtype, 0.0) if bias is None else bias,
        "Mean": running_mean,
        "Variance": running_var,
    }
    attrs = {
        "momentum": float(momentum),
        "epsilon": float(epsilon),
        "is_test": not training,
        "data_layout": "NHWC" if last else "NCHW",
        "use_global_stats": use,
        "trainable_statistics": use_global_stats is not None and not use,
    }
    return append_batch_norm("batch_norm", inputs, attrs, name)


def append_batch_norm(op_type: str, inputs: Any, attrs: Any, name: str | None = None) -> Variable:
    """Append the op, which also writes its running statistics, and return what it normalised."""
    helper = LayerHelper("batch_norm", name or "batch_norm")
    running = {"mean_out": inputs["Mean"], "variance_out": inputs["Variance"]}
    results = ("Y SavedMean SavedVariance", "SavedMean SavedVariance")
    return helper.layers(op_type, *results, **inputs, **running, **attrs)[0]


def layer_norm(
    x: Variable,
    normalized_shape: Any,
    weight: Variable | None = None,
    bias: Variable | None = None,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Variable:
    """Normalise over the last dimensions, which ``normalized_shape`` names.

    Raises:
        InvalidValue: these are not x's last sizes.
    """
    sizes = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    shape = list(x.shape or ())
    if shape[len(shape) - len(sizes) :] != sizes:
        raise InvalidValue(f"layer_norm: {sizes} are not the last sizes of {shape}.")
    helper = LayerHelper("layer_norm", name or "layer_norm")
    flat = [math.prod(sizes)]
    inputs: dict[str, Any] = {"X": x}
    for slot, parameter in (("Scale", weight), ("Bias", bias)):
        if parameter is not None:
            inputs[slot] = parameter if parameter.ndim == 1 else layers.reshape(parameter, flat)
    attrs = {"epsilon": epsilon, "begin_norm_axis": len(shape) - len(sizes)}
    results = ("Y Mean Variance", "Mean Variance")
    return helper.layers("layer_norm", *results, **inputs, **attrs)[0]


def normalize(
    x: Variable, p: float = 2, axis: int = 1, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """x by its p-norm along ``axis``, or by ``epsilon`` where the norm is smaller."""
    size = functions.norm(x, float(p), axis if x.ndim > 1 else 0, True)
    return x / functions.clip(size, float(epsilon))


def cosine_similarity(x1: Variable, x2: Variable, axis: int = 1, eps: float = 1e-8) -> Variable:
    """The cosine of the angle between vectors along ``axis``."""
    product = layers.reduce_sum(x1 * x2, axis)
    sizes = layers.reduce_sum(x1 * x1, axis) * layers.reduce_sum(x2 * x2, axis)
    return product / unary.sqrt(functions.clip(sizes, eps * eps))


def _in_order(
    move: Callable[[Variable], Variable], x: Variable, data_format: str, layer: str
) -> Variable:
    """Apply a function of images in NCHW order to images of either order."""
    image_format(data_format, layer)
    if data_format == "NCHW":
        return move(x)
    return layers.transpose(move(layers.transpose(x, [0, 3, 1, 2])), [0, 2, 3, 1])


def pixel_shuffle(
    x: Variable,
    upscale_factor: int,
    data_format: Literal["NCHW", "NHWC"] = "NCHW",
    name: str | None = None,
) -> Variable:
    """Channels moved to blocks of pixels.

    Raises:
        InvalidValue: the channels do not divide by the square of ``upscale_factor``.
    """
    how = partial(moves.pixel_shuffle, upscale_factor=upscale_factor)
    return _in_order(how, x, data_format, "pixel_shuffle")


def pixel_unshuffle(
    x: Variable, downscale_factor: int, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Blocks of pixels moved to channels: the way back from ``pixel_shuffle``.

    Raises:
        InvalidValue: height or width do not divide by ``downscale_factor``, or are not known.
    """
    r = downscale_factor

    def move(image: Variable) -> Variable:
        _, channels, height, width = image.shape or (0, 0, 0, 0)
        if r < 1 or min(channels, height, width) < 0 or height % r or width % r:
            raise InvalidValue(f"pixel_unshuffle: an image of [{height}, {width}] by {r}.")
        parts = layers.reshape(image, [-1, channels, height // r, r, width // r, r])
        turned = layers.transpose(parts, [0, 1, 3, 5, 2, 4])
        return layers.reshape(turned, [-1, channels * r * r, height // r, width // r])

    return _in_order(move, x, data_format, "pixel_unshuffle")


def channel_shuffle(
    x: Variable, groups: int, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """The channels dealt out over the groups.

    Raises:
        InvalidValue: the channels do not divide by ``groups``.
    """
    shuffle = partial(moves.shuffle_channel, group=groups)
    return _in_order(shuffle, x, data_format, "channel_shuffle")


def pad(
    x: Variable,
    pad: Any,
    mode: Literal["constant", "reflect", "replicate", "circular"] = "constant",
    value: float = 0.0,
    data_format: str | None = None,
    pad_from_left_axis: bool = True,
    name: str | None = None,
) -> Variable:
    """A margin: a number a side of each dimension, or of the last ones (left, right, top, bottom).

    Raises:
        InvalidValue: the numbers or the mode do not fit x.
    """
    numbers = tensors.sizes_of(pad, "pad")
    rank = x.ndim
    if mode == "constant" and len(numbers) == 2 * rank:
        if not pad_from_left_axis:
            numbers = [n for i in range(rank)[::-1] for n in numbers[2 * i : 2 * i + 2]]
        return tensors.pad(x, numbers, value, name)
    last = data_format is not None and data_format.endswith("C")
    if rank < 3 or len(numbers) != 2 * (rank - 2):
        raise InvalidValue(f"pad: {len(numbers)} numbers do not fit the {rank} dimensions.")
    pairs = [numbers[2 * i : 2 * i + 2] for i in range(rank - 2)][::-1]
    if mode == "constant":
        ends = [[0, 0], *pairs, [0, 0]] if last else [[0, 0], [0, 0], *pairs]
        return tensors.pad(x, [n for both in ends for n in both], value, name)
    if mode == "circular":
        for axis, (before, after) in enumerate(pairs, 1 if last else 2):
            x = _wrapped(x, axis, before, after)
        return x
    word = "edge" if mode == "replicate" else mode
    if rank == 4:
        sides = [*pairs[0], *pairs[1]]
        return tensors.pad2d(x, sides, word, value, "NHWC" if last else "NCHW", name)
    if last:
        x = layers.transpose(x, [0, rank - 1, *range(1, rank - 1)])
    # A dimension is the height of images, as wide as what follows.
    for axis, (before, after) in enumerate(pairs, 2):
        sizes = tuple(x.shape or ())
        size, rest = sizes[axis], sizes[axis + 1 :]
        images = layers.reshape(x, [0, -1, size, product(rest)])
        images = tensors.pad2d(images, [before, after, 0, 0], word)
        x = layers.reshape(images, [0, *sizes[1:axis], before + size + after, *rest])
    return layers.transpose(x, [0, *range(2, rank), 1]) if last else x


def _wrapped(x: Variable, axis: int, before: int, after: int) -> Variable:
    """Return x between its last and its first elements along ``axis``, as if it went round.

    Raises:
        InvalidValue: there are fewer elements than are to stand on a side, or their number is not known.
    """
    size = (x.shape or ())[axis]
    if size < max(before, after):
        raise InvalidValue(
            f"pad: circular margins of {before} and {after} need as many elements along dimension {axis} of "
            f"{x.name!r}: {list(x.shape or ())}."
        )
    ends = [layers.slice(x, [axis], [size - before], [size]), layers.slice(x, [axis], [0], [after])]
    parts = [(ends[0], before), (x, 1), (ends[1], after)]
    return layers.concat([part for part, count in parts if count], axis)


def zeropad2d(
    x: Variable, padding: Any, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Zeros around images: left, right, top and bottom."""
    return pad(x, padding, data_format=data_format, name=name)


def scaled_dot_product_attention(
    query: Floats,
    key: Floats,
    value: Floats,
    attn_mask: Variable | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    training: bool = True,
    name: str | None = None,
) -> Variable:
    """softmax(q k / sqrt(head_dim) + mask) v of tensors [N, length, heads, head_dim].

    Args:
        attn_mask: fits [N, heads, queries, keys]: numbers that are added, or bools, True where a key counts.
        is_causal: a query sees the keys up to its own place; lengths must be known then.

    Raises:
        InvalidValue: the tensors have not four dimensions, or both kinds of masks are given.
    """
    layer = "scaled_dot_product_attention"
    for argument, x in {"query": query, "key": key, "value": value}.items():
        if x.ndim != 4:
            raise InvalidValue(f"{layer}: {argument} must be [N, length, heads, head_dim]: {x!r}.")
    if is_causal and attn_mask is not None:
        raise InvalidValue(f"{layer}: give attn_mask {attn_mask!r} or is_causal, not both.")
    q, k, v = (layers.transpose(x, [0, 2, 1, 3]) for x in (query, key, value))
    product = binary.matmul(q * (query.shape or ())[-1] ** -0.5, k, transpose_y=True)
    if is_causal:
        sizes = (product.shape or ())[-2:]
        if min(sizes) < 0:
            raise InvalidValue(f"{layer}: is_causal needs known lengths, got {list(sizes)}.")
        later = layers.assign(np.triu(np.full(sizes, -1e9, "float32"), 1))
        product = product + layers.cast(later, product.dtype)
    elif attn_mask is not None and attn_mask.dtype == VarType.BOOL:
        product = product + (layers.cast(attn_mask, product.dtype) - 1.0) * 1e9
    elif attn_mask is not None:
        product = product + attn_mask
    weights = dropout(softmax(product), dropout_p, training=training)
    return layers.transpose(binary.matmul(weights, v), [0, 2, 1, 3])


def temporal_shift(
    x: Variable,
    seg_num: int,
    shift_ratio: float = 0.25,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Some channels one frame later, some one earlier, in segments of ``seg_num`` frames."""
    how = partial(moves.temporal_shift, seg_num=seg_num, shift_ratio=shift_ratio)
    return _in_order(how, x, data_format, "temporal_shift")


publish_definitions(__name__, withhold=(append_batch_norm,))
