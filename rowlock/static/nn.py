"""``paddle.static.nn``: layers with parameters, 2.x signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.layers import conv
from ..graph.layers import nn as layers
from ..graph.program.variable import Variable
from ..names import listing, missing

conv2d = conv.conv2d
conv2d_transpose = conv.conv2d_transpose
conv3d = conv.conv3d
conv3d_transpose = conv.conv3d_transpose
batch_norm = layers.batch_norm
layer_norm = layers.layer_norm


def fc(
    x: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    activation: str | None = None,
    name: str | None = None,
) -> Variable:
    """Fully connected layer: [..., size]."""
    return layers.fc(x, size, num_flatten_dims, weight_attr, bias_attr, activation, name)


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    weight_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Rows of a [vocabulary, width] table for ids [...]."""
    return layers.embedding_v2(
        input, size, is_sparse, is_distributed, padding_idx, weight_attr, dtype
    )


__all__ = [
    "batch_norm",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "embedding",
    "fc",
    "layer_norm",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
