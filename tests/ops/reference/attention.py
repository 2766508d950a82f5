"""Attention, with the matrix of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("fused_dot_product_attention")
def fused_dot_product_attention(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    layout = attrs["layout"]
    q, k, v = (
        (ins["Q"][:, :, i] for i in range(3))
        if layout == "packed"
        else (ins[slot] for slot in "QKV")
    )
    if layout != "bhtd":
        q, k, v = (np.moveaxis(a, 1, 2) for a in (q, k, v))
    scores = np.einsum("...td,...sd->...ts", q, k) * attrs["scale"]
    if "Mask" in ins:
        mask, axis = ins["Mask"], attrs["mask_axis"]
        after = 0 if axis == -1 else scores.ndim - axis - mask.ndim
        scores = scores + mask.reshape(mask.shape + (1,) * after)
    top = scores.max(-1)
    weights = np.exp(scores - top[..., None])
    total = weights.sum(-1)
    weights /= total[..., None]
    dropout = attrs["dropout"]
    if dropout and dropout["dropout_implementation"] == "downgrade_in_infer":
        weights *= 1 - dropout["dropout_prob"]  # samples are of inference
    out = np.einsum("...ts,...sd->...td", weights, v)
    out = out if layout == "bhtd" else np.moveaxis(out, 1, 2)
    return {"Out": out, "SoftmaxMax": top, "SoftmaxSum": total}
