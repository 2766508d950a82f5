"""Scaled dot-product attention as one op: softmax(scale * Q K^T + Mask) V, without the matrix of scores.

Vaswani et al., arXiv 1706.03762. B batch, H heads, T queries, S keys, D size of a head, scores [B, H, T, S].
For the backward pass only the maximum and the sum of each row are kept, from which it computes scores again
(Dao et al., arXiv 2205.14135, keep one logarithm; two numbers stay exact for rows that a mask rules out).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .operands import Input, Operands, Output
from .registry import Inference, Op, Spec, Specs, define
from .rules import merge_dims, of_shape, statistic
from .samples import sample

RULED_OUT = -1e4  # with this or less added to its score, the weight of a key is zero
# ``layout``: the order of dimensions of Q, K, V and Out. bhtd may have fewer leading dimensions; with packed,
# Q is [B, T, 3, H, D] and holds K and V too, and Out is bthd. ``mask_axis`` places Mask in the scores as the
# axis of elementwise_add does. ``causal``: all that Mask does is rule out keys behind each query, so a kernel
# may leave out Mask and these keys. ``dropout``: the attributes of the dropout of weights, if there is one, and
# as ``name`` the variable that it wrote: the same numbers are drawn. ``by_library``: a library that has kernels
# for the op and its gradient may drop other weights, by numbers of its own.
NO_DROPOUT = {
    "dropout_prob": 0.0,
    "is_test": False,
    "fix_seed": False,
    "seed": 0,
    "dropout_implementation": "downgrade_in_infer",
    "name": "",
    "by_library": False,
}


def draws_by_row(attrs: Mapping[str, Any]) -> bool:
    """Tell whether a fused op holds a dropout that draws numbers: a row's depend on which row it is."""
    dropouts = (settings for name, settings in attrs.items() if name.startswith("dropout"))
    return any(not settings.get("is_test") for settings in dropouts if settings)


def _to_heads(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    return shape if layout == "bhtd" else (shape[0], shape[2], shape[1], shape[3])


def _operands(op: Inference) -> list[tuple[int, ...]]:
    """Return the shapes of Q, K and V with heads before rows."""
    layout = op.attr("layout")
    q = op.shape("Q")
    if layout == "packed":
        op.require(len(q) == 5 and q[2] == 3, "packed Q must be [B, T, 3, H, D]")
        return [(q[0], q[3], q[1], q[4])] * 3
    shapes = [q, op.shape("K"), op.shape("V")]
    ranks = {len(shape) for shape in shapes}
    op.require(len(ranks) == 1 and len(q) in (2, 3, 4), "Q, K and V must have one rank, 2 to 4")
    op.require(layout == "bhtd" or len(q) == 4, f"{layout} operands have 4 dimensions")
    return [_to_heads(shape, layout) for shape in shapes]


def _agreed(op: Inference, what: str, *sizes: int) -> int:
    common = sizes[0]
    for size in sizes[1:]:
        merged = merge_dims(common, size)
        op.require(merged is not None, f"{what} differ: {', '.join(map(str, sizes))}")
        common = merged if merged is not None else common
    return common


def attention_shape(op: Inference) -> Mapping[str, Specs]:
    """Out has a row for each query, as wide as V; a maximum and a sum for each row."""
    q, k, v = _operands(op)
    lead = tuple(
        _agreed(op, "leading sizes", *sizes) for sizes in zip(q[:-2], k[:-2], v[:-2], strict=True)
    )
    _agreed(op, "the widths of Q and K", q[-1], k[-1])
    keys = _agreed(op, "the rows of K and V", k[-2], v[-2])
    if op.has("Mask"):
        _check_mask(op, (*lead, q[-2], keys))
    op.require(
        not op.attr("causal") or (op.has("Mask") and merge_dims(q[-2], keys) is not None),
        "causal attention has a Mask, and as many keys as queries",
    )
    x = op.spec("Q")
    out = (*lead, q[-2], v[-1])
    rows = Spec(out[:-1], statistic(x.dtype))
    result = of_shape(_to_heads(out, "bhtd" if op.attr("layout") == "bhtd" else "bthd"), x)
    return {"Out": result, "SoftmaxMax": rows, "SoftmaxSum": rows}


def _check_mask(op: Inference, scores: tuple[int, ...]) -> None:
    mask, axis = op.shape("Mask"), op.attr("mask_axis")
    start = len(scores) - len(mask) if axis == -1 else axis
    while len(mask) > 1 and mask[-1] == 1 and start + len(mask) > len(scores):
        mask = mask[:-1]
    op.require(0 <= start <= len(scores) - len(mask), "Mask does not lie inside the scores")
    for size, dim in zip(mask, scores[start:], strict=False):
        op.require(
            size == 1 or merge_dims(size, dim) is not None,
            f"Mask does not broadcast to scores of {scores}",
        )


def _qkv(lead: str = "", keys: int = 5) -> str:
    return f"Q [{lead} 3 4], K [{lead} {keys} 4], V [{lead} {keys} 6]"


_CAUSAL = "Mask table [0.0 -12345.5 -12345.5; 0.0 0.0 -12345.5; 0.0 0.0 0.0]"


class FusedDotProductAttention(Operands):
    q: Input
    k: Input | None
    v: Input | None
    mask: Input | None
    scale: float = 1.0
    layout: Literal["bhtd", "bthd", "packed"] = "bhtd"
    mask_axis: int = -1
    causal: bool = False
    dropout: Mapping[str, Any] = {}
    out: Output
    softmax_max: Output
    softmax_sum: Output


class FusedDotProductAttentionGrad(FusedDotProductAttention, reads="* out softmax_max softmax_sum"):
    d_out: Input
    d_q: Output | None
    d_k: Output | None
    d_v: Output | None
    d_mask: Output | None


define(
    "fused_dot_product_attention",
    FusedDotProductAttention,
    attention_shape,
    by_place=draws_by_row,
    samples=(
        sample(_qkv("2 2"), scale=0.5),
        sample(_qkv("2"), "Mask [3 5]"),
        sample(_qkv(), scale=0.25),
        sample(_qkv("2 2"), "Mask [2]", mask_axis=1, scale=0.5),
        sample(_qkv("2 2"), "Mask [2 1 1 5]"),
        sample(_qkv("2 3"), "Mask [2 3 3 5]"),
        sample("Q [2 3 2 4], K [2 5 2 4], V [2 5 2 4]", layout="bthd"),
        sample("Q [2 3 3 2 4], Mask [3 3]", layout="packed", scale=0.5),
        sample(_qkv("2 2", keys=3), _CAUSAL, causal=True, scale=0.5),
        sample(_qkv("2 2"), dropout={**NO_DROPOUT, "is_test": True, "dropout_prob": 0.3}),
    ),
    refuses=(
        sample(_qkv("2"), "Mask [4 5]"),
        sample("Q [2 3 4], K [2 5 3], V [2 5 4]"),
        sample(_qkv("2"), "Mask [3 5]", causal=True),
    ),
    slope=Op(
        "fused_dot_product_attention_grad", FusedDotProductAttentionGrad, by_place=draws_by_row
    ),
)
