"""``paddle.incubate``'s operators: softmax of masked scores, messages of graphs, and a loss of its own."""

from __future__ import annotations

from typing import Literal

from ..functions.creation import full_like, tril
from ..functions.math import mean, most
from ..functions.math import sum as total
from ..functions.search import where
from ..functions.signatures import reordered
from ..geometric import send_u_recv
from ..graph.layers.arguments import Floats
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..nn.functional import softmax


def softmax_mask_fuse(x: Floats, mask: Floats, name: str | None = None) -> Variable:
    """Softmax of x + mask along the last dimension: scores [N, heads, T, T] and a mask [N, 1, T, T]."""
    return softmax(x + mask, -1)


def softmax_mask_fuse_upper_triangle(x: Floats) -> Variable:
    """Softmax along the last dimension of scores [N, heads, T, T], those above the diagonal left out."""
    seen = tril(full_like(x, 1)) > 0
    return softmax(where(seen, x, full_like(x, -most(x))), -1)


graph_send_recv = reordered(
    send_u_recv,
    "x src_index dst_index pool_type=reduce_op out_size name",
    "graph_send_recv",
    "``paddle.geometric.send_u_recv`` under its older name.",
)


def identity_loss(
    x: Floats, reduction: Literal["none", "sum", "mean", 0, 1, 2] = "none"
) -> Variable:
    """x as a loss: its sum ("sum" or 0), its mean ("mean" or 1), or itself ("none" or 2)."""
    if reduction in ("none", 2):
        return x
    return total(x) if reduction in ("sum", 0) else mean(x)


publish_definitions(__name__)
