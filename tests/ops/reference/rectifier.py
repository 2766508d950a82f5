"""Activations that cut, shrink or bend."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference, unary


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


unary("brelu", lambda x, a: np.clip(x, a["t_min"], a["t_max"]))
unary("hard_shrink", lambda x, a: x * ~(np.abs(x) <= a["threshold"]))
unary("softshrink", lambda x, a: np.sign(x) * np.maximum(np.abs(x) - a["lambda"], 0))
unary("tanh_shrink", lambda x, a: x - np.tanh(x))
unary("thresholded_relu", lambda x, a: x * (x > a["threshold"]))
unary("stanh", lambda x, a: a["scale_b"] * np.tanh(a["scale_a"] * x))
unary("soft_relu", lambda x, a: softplus(np.clip(x, -a["threshold"], a["threshold"])))
unary("mish", lambda x, a: x * np.tanh(softplus(x)))
unary("selu", lambda x, a: a["scale"] * np.where(x > 0, x, a["alpha"] * (np.exp(x) - 1)))
unary("celu", lambda x, a: np.where(x > 0, x, a["alpha"] * (np.exp(x / a["alpha"]) - 1)))
unary("silu", lambda x, a: x / (1 + np.exp(-x)))


@reference("prelu")
def prelu(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, alpha = ins["X"], ins["Alpha"].ravel()
    if attrs["mode"] == "channel":
        alpha = np.moveaxis(np.broadcast_to(alpha, (*x.shape[:1], *x.shape[2:], x.shape[1])), -1, 1)
    elif attrs["mode"] == "element":
        alpha = alpha.reshape(x.shape[1:])
    return {"Out": np.maximum(x, 0) + alpha * np.minimum(x, 0)}


@reference("maxout")
def maxout(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    channels = np.moveaxis(ins["X"], attrs["axis"], 0)
    groups = channels.reshape(-1, attrs["groups"], *channels.shape[1:])
    return {"Out": np.moveaxis(groups.max(1), 0, attrs["axis"])}
