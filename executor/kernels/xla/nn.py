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
from ....graph.ops.loss import LEAST_SHIFT
from ..array.pool import Windows
from .later import jax, jnp, lax
from .lowering import Operands, lowering

Made = Mapping[str, Any]
_LOG_FLOOR = 1e20  # Paddle clips the log of a probability of 0 at minus this


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
    padding = x.attr("padding_idx")
    padding = padding if padding >= -1 else padding + table.shape[0]
    if padding != -1:
        rows = jnp.where((flat == padding)[:, None], 0, rows)
    return {"Out": rows.reshape(x.shape("Out"))}


def _powers(scores: Any, axis: int) -> tuple[Any, Any]:
    """Return exp(max(x - max, LEAST_SHIFT)) and its sum along an axis."""
    shift = scores - jnp.max(scores, axis, keepdims=True)
    powers = jnp.exp(jnp.maximum(shift, LEAST_SHIFT))
    return powers, jnp.sum(powers, axis, keepdims=True)


@lowering("softmax")
def softmax(x: Operands) -> Made:
    """exp(max(x - max, LEAST_SHIFT)) / sum."""
    shares, total = _powers(x["X"], x.attr("axis"))
    return {"Out": shares / total}


@lowering("softmax_grad")
def softmax_grad(x: Operands) -> Made:
    """out * (d - sum(d * out))."""
    out, d_out, axis = x["Out"], x["Out@GRAD"], x.attr("axis")
    return {"X@GRAD": out * (d_out - jnp.sum(d_out * out, axis, keepdims=True))}


def _picked(x: Operands, op: str, scores: Any, axis: int) -> tuple[Any, Any]:
    """Return integer labels with the class axis kept (ignored ones made 0), and which are ignored."""
    shape = tuple(1 if i == axis else n for i, n in enumerate(scores.shape))
    label = x["Label"].reshape(shape)
    ignored = label == x.attr("ignore_index")
    label = jnp.where(ignored, 0, label)
    x.check_rows(op, label, scores.shape[axis], "label", "classes")
    return label, ignored


@lowering("cross_entropy", slope=True)
def cross_entropy(x: Operands) -> Made:
    """-log of the probability of the label, or of its share."""
    logs = jnp.maximum(jnp.log(x["X"]), -_LOG_FLOOR)
    if x.attr("soft_label"):
        return {"Y": -jnp.sum(logs * x["Label"], -1, keepdims=True)}
    label, ignored = _picked(x, "cross_entropy", logs, logs.ndim - 1)
    losses = jnp.where(ignored, 0, -jnp.take_along_axis(logs, label, -1))
    return {"Y": losses.reshape(x.shape("Y"))}


@lowering("softmax_with_cross_entropy")
def softmax_with_cross_entropy(x: Operands) -> Made:
    """log(sum exp(x - max)) - (x - max)[label], and the softmax."""
    logits, axis = x["Logits"], x.attr("axis") % x["Logits"].ndim
    logs = jax.nn.log_softmax(logits, axis)
    shares, total = _powers(logits, axis)
    if x.attr("soft_label"):
        loss = -jnp.sum(logs * x["Label"], axis, keepdims=True)
    else:
        label, ignored = _picked(x, "softmax_with_cross_entropy", logits, axis)
        loss = jnp.where(ignored, 0, -jnp.take_along_axis(logs, label, axis))
    return {"Loss": loss, "Softmax": shares / total}


@lowering("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(x: Operands) -> Made:
    """(softmax - label) * d."""
    softmax, d_loss = x["Softmax"], x["Loss@GRAD"]
    axis = x.attr("axis") % softmax.ndim
    if x.attr("soft_label"):
        return {"Logits@GRAD": (softmax - x["Label"]) * d_loss}
    label, ignored = _picked(x, "softmax_with_cross_entropy", softmax, axis)
    classes = jnp.arange(softmax.shape[axis]).reshape(
        [-1 if i == axis else 1 for i in range(softmax.ndim)]
    )
    slope = softmax - (classes == label).astype(softmax.dtype)
    return {"Logits@GRAD": jnp.where(ignored, 0, slope) * d_loss}
