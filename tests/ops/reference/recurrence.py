"""LSTM and GRU, one sequence after the other, one row after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]
ACTS: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "identity": lambda x: x,
}


def walks(ins: Slots, attrs: Slots) -> Iterator[tuple[int, list[int]]]:
    """Return the number of each sequence, and its rows in the order of steps."""
    for number, (begin, end) in enumerate(pairwise(ins["Input@LOD"][-1])):
        rows = list(range(begin, end))
        yield number, rows[::-1] if attrs["is_reverse"] else rows


def lstm_rows(ins: Slots, attrs: Slots, project: Callable[[Any], Any], fed_back: int) -> Slots:
    width = ins["Weight"].shape[1] // 4
    gate, cell_act, cand = (ACTS[attrs[f"{k}_activation"]] for k in ("gate", "cell", "candidate"))
    bias = ins["Bias"][0]
    wic, wfc, woc = np.split(bias[4 * width :], 3) if attrs["use_peepholes"] else (0, 0, 0)
    clip = attrs.get("cell_clip", 0.0) or np.inf
    rows = len(ins["Input"])
    out, cells = np.zeros((rows, fed_back)), np.zeros((rows, width))
    for number, walk in walks(ins, attrs):
        h = ins["H0"][number] if "H0" in ins else np.zeros(fed_back)
        c = ins["C0"][number] if "C0" in ins else np.zeros(width)
        for row in walk:
            z = np.split(ins["Input"][row] + h @ ins["Weight"] + bias[: 4 * width], 4)
            i, f = gate(z[1] + wic * c), gate(z[2] + wfc * c)
            c = np.clip(f * c + i * cand(z[0]), -clip, clip)
            o = gate(z[3] + woc * c)
            h = project(o * cell_act(c))
            out[row], cells[row] = h, c
    return {"out": out, "cell": cells}


@reference("lstm")
def lstm(ins: Slots, attrs: Slots) -> Slots:
    results = lstm_rows(ins, attrs, lambda h: h, ins["Weight"].shape[0])
    return {"Hidden": results["out"], "Cell": results["cell"]}


@reference("lstmp")
def lstmp(ins: Slots, attrs: Slots) -> Slots:
    clip, act = attrs["proj_clip"] or np.inf, ACTS[attrs["proj_activation"]]

    def project(h: Any) -> Any:
        return np.clip(act(h @ ins["ProjWeight"]), -clip, clip)

    results = lstm_rows(ins, attrs, project, ins["Weight"].shape[0])
    return {"Projection": results["out"], "Cell": results["cell"]}


@reference("gru")
def gru(ins: Slots, attrs: Slots) -> Slots:
    width, flat = ins["Weight"].shape[0], ins["Weight"].reshape(-1)
    pair, last = np.split(flat, [2 * width * width])
    pair, last = pair.reshape(width, 2 * width), last.reshape(width, width)
    gate, act = ACTS[attrs["gate_activation"]], ACTS[attrs["activation"]]
    out = np.zeros((len(ins["Input"]), width))
    for number, walk in walks(ins, attrs):
        h = ins["H0"][number] if "H0" in ins else np.zeros(width)
        for row in walk:
            x = ins["Input"][row] + (ins["Bias"][0] if "Bias" in ins else 0)
            u, r = np.split(gate(x[: 2 * width] + h @ pair), 2)
            c = act(x[2 * width :] + (r * h) @ last)
            h = u * h + (1 - u) * c if attrs["origin_mode"] else (1 - u) * h + u * c
            out[row] = h
    return {"Hidden": out}
