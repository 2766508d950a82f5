"""Attention in low precision by cuDNN. It keeps one number for each row of scores, where the op keeps two.

SoftmaxMax takes the logarithm of the row's sum of exponentials, SoftmaxSum ones: other kernels compute the same
weights from them. Dropout is left to these, since their numbers do not depend on how a batch is split, unless
it is marked as the library's (``by_library``): a number that is drawn for the op, the step and the replica's
first row tells it which weights are zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops import attention as ops
from ....strategies.errors import Unsupported
from ....strategies.types import VarType
from ...codegen.cuda_launches import each, read, run, written
from ...codegen.cuda_random import STREAM_HEAD, stream_arguments
from ...cuda.dnn import Attention, AttentionGrad, Tensor, tensor
from ...device.device import Device
from ...device.philox import Stream
from ..array.attention import columns, heads_first, mask_view, operands, results_layout
from ..registry import Step
from .support import Declined, bound, cudnn

_HEAD = 8  # elements: the sizes of heads are multiples of it
_SEED = f"""{STREAM_HEAD}
  const Words words = philox(first, 0, step, key);
  *seed = (long long)((unsigned long long)words.at[1] << 32 | words.at[0]);
  *offset = 0;"""


def _rate(attrs: Mapping[str, Any]) -> float:
    """Return the part of the weights that is dropped in this run."""
    dropout = {**ops.NO_DROPOUT, **attrs}
    return 0.0 if dropout["is_test"] else float(dropout["dropout_prob"])


def _takes(node: Node) -> bool:
    """Q, K and V are of low precision, heads of a size that the library has.

    Nothing is dropped, or by the library's own numbers, and what is left is scaled in training.
    """
    (q,) = node.inputs["Q"]
    dropout = {**ops.NO_DROPOUT, **node.attrs["dropout"]}
    upscales = dropout["dropout_implementation"] == "upscale_in_train"
    own = dropout["by_library"] and dropout["dropout_prob"] < 1
    plain = not dropout["dropout_prob"] or (upscales and (dropout["is_test"] or own))
    heads = [v.spec.shape[-1] for slot in ("Q", "V") for v in node.inputs.get(slot, ()) if v]
    low = q is not None and q.spec.dtype in (VarType.FP16, VarType.BF16)
    return low and plain and all(size < 0 or size % _HEAD == 0 for size in heads)


def _described(
    dev: Device, a: ops.FusedDotProductAttention | ops.FusedDotProductAttentionGrad
) -> tuple[Attention, dict[str, Any], list[Step]]:
    """Return attention as a library knows it, its operands, and the calls that draw numbers for it.

    Raises:
        Declined: the library does not drop weights in both the op and its gradient.
    """
    q, k, v = operands(a.q, a.k, a.v, a.layout)
    causal = a.causal and getattr(a, "d_mask", None) is None
    mask = None if causal else mask_view(a.mask, a.softmax_max.ndim + 1, a.mask_axis)
    out = heads_first(a.out, results_layout(a.layout))
    dense = None if mask is None else _dense(mask)
    rate = _rate(a.dropout)
    tensors = (tensor(q), tensor(k), tensor(v), dense, tensor(out))
    described = Attention(*tensors, a.scale, causal, rate)
    more = {} if mask is None else {"mask": mask}
    steps: list[Step] = []
    if rate:
        pair = (described, AttentionGrad(described, tensors[4], *tensors[:3]))
        if any(dev.cuda.dnn.workspace(graph) is None for graph in pair):
            raise Declined
        numbers = {name: dev.scratch((1, 1, 1, 1), np.int64) for name in ("seed", "offset")}
        settings = {**ops.NO_DROPOUT, **a.dropout}
        every, name = not settings["fix_seed"], settings["name"]
        stream = Stream(dev, settings["seed"], per_row=True, every_step=every, name=name)
        arguments = [*stream_arguments(dev, stream, 1, 1), *written(**numbers)]
        steps = [run(dev, "seed_of_step", _SEED, arguments, 1, ("philox.cuh",), block=1)]
        more |= numbers
    return described, {"q": q, "k": k, "v": v, **more, "out": out}, steps


def _dense(mask: Any) -> Tensor:
    """Describe a mask, whose sizes of 1 may have any strides."""
    if not mask.flags.c_contiguous:
        raise Declined
    strides, size = [], 1
    for n in reversed(mask.shape):
        strides.append(size)
        size *= n
    return Tensor(tuple(mask.shape), tuple(reversed(strides)), mask.dtype.name)


@cudnn("fused_dot_product_attention", takes=_takes)
def attention(dev: Device, a: ops.FusedDotProductAttention) -> list[Step]:
    described, arrays, drawn = _described(dev, a)
    calls = bound(dev, described, **arrays, stats=columns(a.softmax_max))
    sums = written(sums=a.softmax_sum)
    return [*drawn, *calls, each(dev, "ones", "sums[i] = 1.0f;", sums, a.softmax_sum.size)]


@cudnn("fused_dot_product_attention_grad", takes=_takes)
def attention_grad(dev: Device, a: ops.FusedDotProductAttentionGrad) -> list[Step]:
    wanted = operands(a.d_q, a.d_k, a.d_v, a.layout)
    if all(array is None for array in (*wanted, a.d_mask)):
        return []
    described, arrays, drawn = _described(dev, a)
    stats = dev.scratch(a.softmax_max.shape, a.softmax_max.dtype)
    gradients = {
        f"d_{name}": dev.scratch(arrays[name].shape, arrays[name].dtype) if array is None else array
        for name, array in zip("qkv", wanted, strict=True)
    }
    d_rows = heads_first(a.d_out, results_layout(a.layout))
    sums = mask_view(a.d_mask, a.softmax_max.ndim + 1, a.mask_axis)
    grad = AttentionGrad(
        described,
        tensor(d_rows),
        tensor(gradients["d_q"]),
        tensor(gradients["d_k"]),
        tensor(gradients["d_v"]),
        None if sums is None else _dense(sums),
    )
    if sums is not None:
        gradients["d_mask"] = sums
    try:
        calls = bound(dev, grad, **arrays, stats=columns(stats), d_out=d_rows, **gradients)
    except Declined:
        if not drawn:
            raise
        raise Unsupported(  # other kernels would drop other weights than the op did
            f"{dev.op or 'the gradient of attention'}: cuDNN drops weights forwards, and does not compute this "
            f"gradient. Switch BuildStrategy.cudnn_attention_dropout off. Built at {dev.where}."
        ) from None
    arguments = [*written(stats=stats), *read(top=a.softmax_max, sums=a.softmax_sum)]
    logarithm = "stats[i] = top[i] + logf(sums[i]);"
    return [*drawn, each(dev, "logarithms", logarithm, arguments, stats.size), *calls]
