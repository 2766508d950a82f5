"""Lowerings of products, convolution, pooling, normalization, embeddings and losses.

Legend as in the NumPy kernels: M rows of X, K the inner size, N columns of Y.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.conv import window_paddings, windows
from ....graph.ops.embedding import padding_row
from ..array.pool import Windows
from .later import jnp, lax
from .lowering import Operands, lowering

Made = Mapping[str, Any]


@lowering("mul", slope=True)
def mul(x: Operands) -> Made:
    """A product of two matrices, made of leading and trailing dimensions."""
    a, b = x["X"], x["Y"]
    cut, cut_y = x.attr("x_num_col_dims"), x.attr("y_num_col_dims")
    a_MK = a.reshape(math.prod(a.shape[:cut]), math.prod(a.shape[cut:]))
    b_KN = b.reshape(math.prod(b.shape[:cut_y]), math.prod(b.shape[cut_y:]))
    return {"Out": a_MK @ b_KN}


def _alike(node: Node) -> bool:
    leads = [node.inputs[slot][0].spec.shape[:-2] for slot in ("X", "Y")]  # type: ignore[union-attr]
    return leads[0] == leads[1] or not all(leads)


@lowering("matmul", takes=_alike, slope=True)
def matmul(x: Operands) -> Made:
    """Products of stacks of matrices, either transposed, times a number."""
    a, b = x["X"], x["Y"]
    a = a.reshape(1, -1) if a.ndim == 1 else a
    b = b.reshape(-1, 1) if b.ndim == 1 else b
    a = jnp.swapaxes(a, -1, -2) if x.attr("transpose_X") else a
    b = jnp.swapaxes(b, -1, -2) if x.attr("transpose_Y") else b
    product = jnp.matmul(a, b)
    return {"Out": product if x.attr("alpha") == 1.0 else product * x.attr("alpha")}


def _plain_conv(node: Node) -> bool:
    first = node.attrs["data_format"] != "NHWC"
    return (
        first and not node.inputs.get("Bias") and not node.attrs["fuse_relu_before_depthwise_conv"]
    )


@lowering("conv2d", "depthwise_conv2d", takes=_plain_conv, slope=True)
def conv2d(x: Operands) -> Made:
    """Convolution in NCHW."""
    image, weight, strides = x["Input"], x["Filter"], x.attr("strides")
    pads, dilations = windows(x.attrs, image.shape[2:], weight.shape[2:])
    output = lax.conv_general_dilated(
        image,
        weight,
        strides,
        pads,
        rhs_dilation=dilations,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
        feature_group_count=x.attr("groups"),
    )
    return {"Output": output}


def _fixed_windows(node: Node) -> bool:
    first = node.attrs["data_format"] != "NHWC"
    return first and bool(node.attrs["global_pooling"] or not node.attrs["adaptive"])


def _windows(x: Operands) -> Windows:
    size: tuple[int, int] = tuple(x["X"].shape[2:])
    if x.attr("global_pooling"):
        return Windows(list(size), [1, 1], [(0, 0), (0, 0)], (1, 1), size)
    k, strides = list(x.attr("ksize")), list(x.attr("strides"))
    pads = window_paddings(x.attr("paddings"), x.attr("padding_algorithm"), size, k, strides)
    return Windows(k, strides, pads, (x.shape("Out")[2], x.shape("Out")[3]), size)


@lowering("pool2d", takes=_fixed_windows, slope=True)
def pool2d(x: Operands) -> Made:
    """The largest, or the mean, of each window."""
    image, win = x["X"], _windows(x)
    average = x.attr("pooling_type") == "avg"
    if average and x.attr("global_pooling"):
        return {"Out": jnp.mean(image, (2, 3), keepdims=True)}
    room = [
        (low, max(whole - size - low, 0))
        for (low, _), whole, size in zip(win.pads, win.room, win.size, strict=True)
    ]
    start, join = (0.0, lax.add) if average else (-np.inf, lax.max)
    result = lax.reduce_window(
        image,
        image.dtype.type(start),
        join,
        (1, 1, *win.k),
        (1, 1, *win.strides),
        ((0, 0), (0, 0), *room),
    )
    result = result[:, :, : win.out[0], : win.out[1]]
    if average:
        result = result * (1.0 / win.counts(x.attr("exclusive"), np.float64)).astype(image.dtype)
    return {"Out": result}


@lowering("lookup_table", "lookup_table_v2", slope=True)
def lookup_table(x: Operands) -> Made:
    """Rows of a table by number; those numbered ``padding_idx`` are zeros."""
    table, flat = x["W"], x["Ids"].reshape(-1)
    x.check_rows("lookup_table", flat, table.shape[0])
    rows = jnp.take(table, flat, axis=0, mode="clip")
    padding = padding_row(x.attr("padding_idx"), table.shape[0])
    if padding != -1:
        rows = jnp.where((flat == padding)[:, None], 0, rows)
    return {"Out": rows.reshape(x.shape("Out"))}
