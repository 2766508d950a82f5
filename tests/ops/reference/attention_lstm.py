"""An LSTM with attention, number by number."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

ACTIVATIONS = {
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    "tanh": math.tanh,
    "relu": lambda v: max(v, 0.0),
    "identity": lambda v: v,
}


@reference("attention_lstm")
def attention_lstm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, weight, deep = ins["X"], ins["AttentionWeight"][:, 0], ins["LSTMWeight"]
    (rows, width), cells = x.shape, ins["C0"].shape[1]
    gate, active, new = (
        ACTIVATIONS[attrs[f"{name}_activation"]] for name in ("gate", "cell", "candidate")
    )
    extra = {
        name: ins[f"Attention{name}"].item()
        for name in ("Bias", "Scalar", "ScalarBias")
        if f"Attention{name}" in ins
    }
    added = [
        sum(x[r, k] * weight[k] for k in range(width)) + extra.get("Bias", 0.0) for r in range(rows)
    ]
    results: dict[str, Any] = {"Hidden": np.zeros((rows, cells)), "Cell": np.zeros((rows, cells))}
    shares = np.zeros((rows, 1))
    for number, (begin, end) in enumerate(pairwise(ins["X@LOD"][-1])):
        c, h = ins["C0"][number], ins["H0"][number] if "H0" in ins else np.zeros(cells)
        for row in range(begin, end):
            scores = [max(s + float(np.dot(c, weight[width:])), 0.0) for s in added[begin:end]]
            if "Scalar" in extra:
                bias = extra.get("ScalarBias", 0.0)
                scores = [max(s * extra["Scalar"] + bias, 0.0) for s in scores]
            total = sum(math.exp(s) for s in scores)
            shares[begin:end, 0] = [math.exp(s) / total for s in scores]
            pooled = sum(shares[r, 0] * x[r] for r in range(begin, end))
            sums = np.concatenate([h, pooled]) @ deep + ins["LSTMBias"][0]
            out = [gate(v) for v in sums[: 3 * cells]] + [new(v) for v in sums[3 * cells :]]
            f, i, o, candidate = np.reshape(out, (4, cells))
            c = f * c + i * candidate
            h = o * np.array([active(v) for v in c])
            results["Hidden"][row], results["Cell"][row] = h, c
            results |= {"LSTMX": [pooled], "LSTMOUT": [out]}
    return {**results, "AttentionedX": np.reshape(added, (rows, 1)), "AttentionFCOut": shares}
