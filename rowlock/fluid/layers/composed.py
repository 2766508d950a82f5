"""Functions of ``fluid.layers`` that have ops of their own in Paddle, and are built from others here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...functions import creation, manipulation
from ...functions import math as functions
from ...graph.layers import binary, tensors, unary
from ...graph.layers import shape as layers
from ...graph.layers.helper import check_variable
from ...graph.program.variable import Variable
from ...nn import activations, common, losses
from ...strategies.errors import InvalidType, InvalidValue

bmm = functions.bmm
multiplex = functions.multiplex
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


def l2_normalize(
    x: Variable, axis: int, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """x by the square root of epsilon and the sum of its squares along ``axis``."""
    tensors.check_float(x, "x", "l2_normalize")
    squares = layers.reduce_sum(unary.square(x), axis if x.ndim > 1 else 0, True)
    return x / unary.sqrt(squares + float(epsilon))


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """The cosine of the angle between rows; Y may be one row."""
    check_variable(X, "X", "cos_sim")
    check_variable(Y, "Y", "cos_sim")
    dims = list(_range(1, X.ndim))
    product = layers.reduce_sum(X * Y, dims, True)
    sizes = [unary.sqrt(layers.reduce_sum(unary.square(operand), dims, True)) for operand in (X, Y)]
    return product / sizes[0] / sizes[1]


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Products of the channels of two images, averaged over the pixels."""
    check_variable(x, "x", "fsp_matrix")
    check_variable(y, "y", "fsp_matrix")
    (_, first, height, width), second = x.shape or (0, 0, 0, 0), (y.shape or (0, 0))[1]
    if height < 0 or width < 0:
        raise InvalidValue(f"fsp_matrix: the sizes of {x.name!r} must be known.")
    left = layers.reshape(x, [-1, first, height * width])
    right = layers.reshape(y, [-1, second, height * width])
    return binary.matmul(left, right, transpose_y=True, alpha=1.0 / (height * width))


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
