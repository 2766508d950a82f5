"""``paddle.static.nn``: layers with parameters, 2.x signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..fluid.layers import (
    bilinear_tensor_product,
    data_norm,
    group_norm,
    instance_norm,
    nce,
    prelu,
    py_func,
    sequence_concat,
    sequence_enumerate,
    sequence_expand_as,
    sequence_pad,
    sequence_pool,
    sequence_reshape,
    sequence_reverse,
    sequence_scatter,
    sequence_slice,
    sequence_softmax,
    sequence_unpad,
    spectral_norm,
)
from ..functions.signatures import reordered
from ..graph.layers import control_flow, conv, loops, recurrent, sequence
from ..graph.layers import nn as layers
from ..graph.program.variable import Variable
from ..names import publish_listed
from ..strategies.errors import Unsupported

conv2d = conv.conv2d
conv2d_transpose = conv.conv2d_transpose
conv3d = conv.conv3d
conv3d_transpose = conv.conv3d_transpose
batch_norm = layers.batch_norm
layer_norm = layers.layer_norm
embedding = layers.embedding_v2
row_conv = sequence.row_conv
sequence_conv = sequence.sequence_conv
sequence_expand = sequence.sequence_expand
sequence_first_step = sequence.sequence_first_step
sequence_last_step = sequence.sequence_last_step
cond, case, switch_case = control_flow.cond, control_flow.case, control_flow.switch_case
while_loop, StaticRNN = loops.while_loop, recurrent.StaticRNN


def deform_conv2d(
    x: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Convolution whose windows data bend; with ``mask`` places count by their share."""
    return conv.deformable_conv(
        x, offset, mask, num_filters, filter_size, stride, padding, dilation, groups,
        deformable_groups, im2col_step, weight_attr, bias_attr, mask is not None, name,
    )  # fmt: skip


fc = reordered(
    layers.fc, "x=input size num_flatten_dims weight_attr=param_attr bias_attr activation=act name"
)


def sparse_embedding(
    input: Variable,
    size: Any,
    padding_idx: int | None = None,
    is_test: bool = False,
    entry: Any = None,
    table_class: str = "MemorySparseTable",
    param_attr: Any = None,
    dtype: Any = "float32",
    slot: int | None = None,
) -> Variable:
    """Rows of a [vocabulary, width] table for ids [...]; servers, where there are any, hold the table.

    Every optimizer updates the rows that a step looked up. ``is_test``, ``table_class`` and ``slot`` are
    accepted as Paddle does.

    Raises:
        Unsupported: ``entry``: a table has all its rows from the beginning.
    """
    if entry is not None:
        raise Unsupported(
            f"sparse_embedding: entry={type(entry).__name__} admits rows as they occur, and a table has all "
            f"its rows, size[0], from the beginning. Leave it out."
        )
    return layers.embedding_v2(input, size, True, False, padding_idx, param_attr, dtype)


__all__ = [
    "StaticRNN",
    "batch_norm",
    "bilinear_tensor_product",
    "case",
    "cond",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "data_norm",
    "deform_conv2d",
    "embedding",
    "fc",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "nce",
    "prelu",
    "py_func",
    "row_conv",
    "sequence_concat",
    "sequence_conv",
    "sequence_enumerate",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_pad",
    "sequence_pool",
    "sequence_reshape",
    "sequence_reverse",
    "sequence_scatter",
    "sequence_slice",
    "sequence_softmax",
    "sequence_unpad",
    "sparse_embedding",
    "spectral_norm",
    "switch_case",
    "while_loop",
]

publish_listed(__name__)
