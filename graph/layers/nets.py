"""Groups of layers that are often used together (``fluid.nets``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidValue
from ..program.variable import Variable
from .binary import elementwise_mul, matmul
from .conv import conv2d
from .nn import batch_norm, fc
from .pool import pool2d
from .sequence import sequence_conv, sequence_pool
from .shape import reshape, split, transpose
from .unary import dropout, scale, sigmoid, softmax


def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: Any,
    pool_size: Any,
    pool_stride: Any,
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    conv_dilation: Any = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """A convolution and a pooling."""
    conv = conv2d(
        input, num_filters, filter_size, conv_stride, conv_padding, conv_dilation, conv_groups,
        param_attr, bias_attr, use_cudnn, act,
    )  # fmt: skip
    return pool2d(conv, pool_size, pool_type, pool_stride, pool_padding, global_pooling, use_cudnn)


def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: Any,
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: Any = False,
    conv_batchnorm_drop_rate: Any = 0.0,
    pool_stride: Any = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Several convolutions (each with optional batch norm and dropout), and a pooling."""

    def each(value: Any) -> list[Any]:
        return list(value) if isinstance(value, (list, tuple)) else [value] * len(conv_num_filter)

    x = input
    columns = zip(
        conv_num_filter,
        each(conv_filter_size),
        each(conv_padding),
        each(param_attr),
        each(conv_with_batchnorm),
        each(conv_batchnorm_drop_rate),
        strict=True,
    )
    for filters, size, padding, attr, normalised, drop in columns:
        act = None if normalised else conv_act
        x = conv2d(x, filters, size, padding=padding, param_attr=attr, act=act, use_cudnn=use_cudnn)
        if normalised:
            x = batch_norm(x, act=conv_act)
            x = dropout(x, drop) if abs(drop) > 1e-5 else x
    return pool2d(x, pool_size, pool_type, pool_stride, use_cudnn=use_cudnn)


def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Variable:
    """A convolution inside sequences and a pooling of each: [N, D] to [sequences, num_filters]."""
    conv = sequence_conv(
        input, num_filters, filter_size, bias_attr=bias_attr, param_attr=param_attr, act=act
    )
    return sequence_pool(conv, pool_type)


def glu(input: Variable, dim: int = -1) -> Variable:
    """The first half times the sigmoid of the second."""
    first, gate = split(input, 2, dim)
    return elementwise_mul(first, sigmoid(gate))


def scaled_dot_product_attention(
    queries: Variable,
    keys: Variable,
    values: Variable,
    num_heads: int = 1,
    dropout_rate: float = 0.0,
) -> Variable:
    """softmax(q k^T / sqrt(width of a head)) v, head by head: [batch, queries, width].

    With several heads queries [batch, queries, width], keys [batch, keys, width] and values [batch, keys, own
    width] go through an ``fc`` each, which keeps their widths. Source: Vaswani et al., arXiv 1706.03762,
    section 3.2.

    Raises:
        InvalidValue: shapes do not fit together, or widths do not split in heads.
    """
    shapes = [queries.shape, keys.shape, values.shape]
    if any(shape is None or len(shape) != 3 for shape in shapes):
        raise InvalidValue(
            f"attention: queries, keys and values must have 3 dimensions, not {shapes}."
        )
    assert queries.shape is not None and keys.shape is not None and values.shape is not None
    width = queries.shape[-1]
    counts = keys.shape[1], values.shape[1]
    if keys.shape[-1] != width or (min(counts) >= 0 and counts[0] != counts[1]):
        raise InvalidValue(
            f"attention: keys {keys.shape} do not fit queries {queries.shape} and values {values.shape}: keys "
            f"are as wide as queries, and as many as values."
        )
    if width % num_heads or values.shape[-1] % num_heads:
        raise InvalidValue(
            f"attention: widths {width} and {values.shape[-1]} do not split in {num_heads} heads."
        )
    if num_heads > 1:
        queries, keys, values = (
            fc(x, _width(x), num_flatten_dims=2) for x in (queries, keys, values)
        )

    def heads(x: Variable) -> Variable:
        if num_heads == 1:
            return x
        return transpose(reshape(x, [0, 0, num_heads, _width(x) // num_heads]), [0, 2, 1, 3])

    q, k, v = heads(queries), heads(keys), heads(values)
    scores = matmul(scale(q, (width // num_heads) ** -0.5), k, transpose_y=True)
    weights = softmax(scores)
    if dropout_rate:
        weights = dropout(weights, dropout_rate)
    context = matmul(weights, v)
    if num_heads == 1:
        return context
    return reshape(transpose(context, [0, 2, 1, 3]), [0, 0, _width(values)])


def _width(x: Variable) -> int:
    assert x.shape is not None
    return x.shape[-1]
