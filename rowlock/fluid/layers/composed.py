"""Functions of ``fluid.layers`` that have ops of their own in Paddle, and are built from others here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...functions import creation, manipulation
from ...functions import math as functions
from ...graph.layers import shape as layers
from ...graph.layers import tensors, unary
from ...graph.layers.helper import check_variable
from ...graph.layers.nn import batch_norm
from ...graph.program.variable import Variable
from ...nn import activations, common, losses
from ...strategies.errors import InvalidType, InvalidValue

multiplex = functions.multiplex
stanh = functions.stanh
shard_index = manipulation.shard_index
scatter_nd = manipulation.scatter_nd
dice_loss = losses.dice_loss
npair_loss = losses.npair_loss


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: Any = None, dtype: Any = "float32"
) -> Variable:
    """Ones on the diagonal, zeros beside it; ``batch_shape`` repeats the matrix."""
    matrix = creation.eye(num_rows, num_columns, dtype)
    if batch_shape is None:
        return matrix
    return manipulation.expand(matrix, [*batch_shape, *(matrix.shape or ())])


def linspace(start: Any, stop: Any, num: Any, dtype: Any) -> Variable:
    """``num`` numbers from ``start`` to ``stop``, evenly apart."""
    return creation.linspace(start, stop, num, dtype)


def range(start: Any, end: Any, step: Any, dtype: Any) -> Variable:
    """start, start + step, ... up to but without ``end``."""
    return creation.arange(start, end, step, dtype)


def arange(
    start: Any, end: Any, step: Any = 1, dtype: Any = None, name: str | None = None
) -> Variable:
    """start, start + step, ... up to but without ``end``, float32 by default."""
    return creation.arange(start, end, step, "float32" if dtype is None else dtype)


def diag(diagonal: Any) -> Variable:
    """A matrix with the vector on its diagonal."""
    vector = diagonal if isinstance(diagonal, Variable) else layers.assign(diagonal)
    if vector.ndim != 1:
        raise InvalidValue(f"diag takes a vector, got {vector.ndim} dimensions.")
    return creation.diag(vector)


def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The matrices with zeros above a diagonal."""
    return creation.tril(input, diagonal)


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The matrices with zeros below a diagonal."""
    return creation.triu(input, diagonal)


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """x repeated to the shape of ``target_tensor``, which its sizes must divide.

    Raises:
        InvalidValue: they do not, or are not known.
    """
    check_variable(x, "x", "expand_as")
    check_variable(target_tensor, "target_tensor", "expand_as")
    have, want = x.shape or (), target_tensor.shape or ()
    fits = len(have) == len(want) and min(*have, *want) > 0
    if not fits or any(b % a for a, b in zip(have, want, strict=True)):
        raise InvalidValue(f"expand_as: {list(have)} does not repeat to {list(want)}.")
    return layers.expand(x, [b // a for a, b in zip(have, want, strict=True)])


def scatter_nd_add(
    ref: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """ref with ``updates`` added at coordinates."""
    return manipulation.scatter_nd_add(ref, index, updates)


def brelu(
    x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None
) -> Variable:
    """x cut to [t_min, t_max]."""
    tensors.check_float(x, "x", "brelu")
    return unary.clip(x, t_min, t_max, name)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """log(1 + exp(x)), where x is cut to [-threshold, threshold] first."""
    tensors.check_float(x, "x", "soft_relu")
    return unary.softplus(unary.clip(x, -threshold, threshold))


def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """x where above ``threshold`` (1), else 0."""
    return activations.thresholded_relu(x, 1.0 if threshold is None else threshold)


def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """x where |x| is above ``threshold`` (0.5), else 0."""
    return activations.hardshrink(x, 0.5 if threshold is None else threshold)


def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """x moved towards 0 by ``alpha`` (0.5), at most to 0."""
    return activations.softshrink(x, 0.5 if alpha is None else alpha)


def tanh_shrink(x: Variable, name: str | None = None) -> Variable:
    """x - tanh(x)."""
    return activations.tanhshrink(x)


def selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """scale * x where positive, else scale * alpha * (exp(x) - 1)."""
    settings: dict[str, Any] = {"scale": scale, "alpha": alpha}
    return activations.selu(x, **{k: v for k, v in settings.items() if v is not None})


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The largest of each ``groups`` channels in a row."""
    return activations.maxout(x, groups, axis)


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Channels moved to blocks of pixels."""
    return common.pixel_shuffle(x, upscale_factor)


def temporal_shift(
    x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None
) -> Variable:
    """Some channels moved one frame back, some one ahead, in segments of ``seg_num`` frames."""
    return common.temporal_shift(x, seg_num, shift_ratio)


def log_softmax(
    input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """x - log(sum(exp(x))) along ``axis`` (the last)."""
    return activations.log_softmax(input, -1 if axis is None else axis, dtype)


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """(1 - epsilon) label + epsilon / classes, or + epsilon * prior_dist."""
    return losses.label_smooth(label, prior_dist, epsilon)


def rank_loss(
    label: Variable, left: Variable, right: Variable, name: str | None = None
) -> Variable:
    """log(1 + exp(left - right)) - label (left - right)."""
    for argument, operand in (("label", label), ("left", left), ("right", right)):
        check_variable(operand, argument, "rank_loss")
    distance = left - right
    return unary.softplus(distance) - label * distance


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """max(0, margin - label (left - right))."""
    for argument, operand in (("label", label), ("left", left), ("right", right)):
        check_variable(operand, argument, "margin_rank_loss")
    return unary.relu(label * (right - left) + float(margin))


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Of each row the sum of distances, squared near zero and linear beyond 1 / sigma^2."""
    check_variable(x, "x", "smooth_l1")
    check_variable(y, "y", "smooth_l1")
    square = (1.0 if sigma is None else float(sigma)) ** 2
    distance = x - y if inside_weight is None else (x - y) * inside_weight
    size = unary.abs(distance)
    near = unary.square(distance) * (0.5 * square)
    loss = layers.where(size < 1.0 / square, near, size - 0.5 / square)
    loss = loss if outside_weight is None else loss * outside_weight
    rows = layers.reduce_sum(loss, list(_range(1, x.ndim)), True)
    return layers.reshape(rows, [-1, 1])


def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """Batch norm and an activation: identity (None), leaky_relu or elu, with ``act_alpha``.

    Raises:
        InvalidValue: ``act`` is another, or ``bias_attr`` is False.
    """
    tensors.check_float(input, "input", "inplace_abn")
    if act not in (None, "identity", "leaky_relu", "elu"):
        raise InvalidValue(f"inplace_abn: act is identity, leaky_relu or elu, got {act!r}.")
    if bias_attr is False:
        raise InvalidValue("inplace_abn: bias_attr cannot be False.")
    y = batch_norm(
        input, None, is_test, momentum, epsilon, param_attr, bias_attr, data_layout, True, name,
        moving_mean_name, moving_variance_name, do_model_average_for_mean_and_var, use_global_stats,
    )  # fmt: skip
    if act in (None, "identity"):
        return y
    return (unary.elu if act == "elu" else unary.leaky_relu)(y, float(act_alpha))


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """The channels dealt out over ``group`` groups."""
    check_variable(x, "x", "shuffle_channel")
    if isinstance(group, bool) or not isinstance(group, int):
        raise InvalidType(f"shuffle_channel: group must be an int, got {group!r}.")
    _, channels, height, width = x.shape or (0, 0, 0, 0)
    if channels % group:
        raise InvalidValue(f"shuffle_channel: {channels} channels do not divide by {group}.")
    parts = layers.reshape(x, [-1, group, channels // group, height, width])
    turned = layers.transpose(parts, [0, 2, 1, 3, 4])
    return layers.reshape(turned, [-1, channels, height, width])


def pad_constant_like(
    x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """y with a margin behind it, so that it is as large as x."""
    check_variable(x, "x", "pad_constant_like")
    check_variable(y, "y", "pad_constant_like")
    large, small = x.shape or (), y.shape or ()
    if len(large) != len(small) or min(*large, *small) < 0:
        raise InvalidValue(f"pad_constant_like: {list(small)} is not padded to {list(large)}.")
    margins = [n for a, b in zip(large, small, strict=True) for n in (0, a - b)]
    return tensors.pad(y, margins, pad_value)


def _range(start: int, end: int) -> Sequence[int]:
    numbers = []
    while start < end:
        numbers.append(start)
        start += 1
    return numbers
