"""Steps of recurrent nets."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference

ACTIVATIONS = [
    lambda x: x,
    lambda x: 1 / (1 + np.exp(-x)),
    np.tanh,
    lambda x: np.maximum(x, 0),
]


@reference("lstm_unit")
def lstm_unit(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    sigmoid = ACTIVATIONS[1]
    i, f, o, g = np.split(ins["X"], 4, 1)
    c = ins["C_prev"] * sigmoid(f + attrs["forget_bias"]) + sigmoid(i) * np.tanh(g)
    return {"C": c, "H": np.tanh(c) * sigmoid(o)}


@reference("gru_unit")
def gru_unit(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    h = ins["HiddenPrev"]
    d = h.shape[1]
    x = ins["Input"] + ins.get("Bias", 0)
    flat = ins["Weight"].ravel()
    gates = ACTIVATIONS[attrs["gate_activation"]](
        x[:, : 2 * d] + h @ flat[: 2 * d * d].reshape(d, -1)
    )
    u, r = gates[:, :d], gates[:, d:]
    c = ACTIVATIONS[attrs["activation"]](x[:, 2 * d :] + (r * h) @ flat[2 * d * d :].reshape(d, -1))
    new = u * h + (1 - u) * c if attrs["origin_mode"] else (1 - u) * h + u * c
    return {"Gate": np.hstack([u, r, c]), "ResetHiddenPrev": r * h, "Hidden": new}
