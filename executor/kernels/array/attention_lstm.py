"""An LSTM whose steps attend to all rows of their sequence; see ``graph/ops/attention_lstm.py`` for the legend.

On CPUs one sequence comes after the other: loops follow offsets.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ....graph.ops.attention_lstm import AttentionLstm
from ....graph.ops.operands import Array
from ..registry import each_step
from .gates import activate


def _attention(a: AttentionLstm, scores: Array) -> Any:
    """Return the softmax of the scores of a sequence's rows, which pass through one or two relus."""
    scores = np.maximum(scores, 0)
    if a.attention_scalar is not None:
        scores = scores * a.attention_scalar.reshape(())
        if a.attention_scalar_bias is not None:
            scores = scores + a.attention_scalar_bias.reshape(())
        scores = np.maximum(scores, 0)
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def _step(a: AttentionLstm, gates: Array, before: Array) -> tuple[Array, Array]:
    """Compute the gates in place from their sums; return what goes out, and the cells."""
    width = before.size
    forget, put, out, candidate = (gates[k * width : (k + 1) * width] for k in range(4))
    activate(np, a.gate_activation, gates[: 3 * width])
    activate(np, a.candidate_activation, candidate)
    cell = forget * before + put * candidate
    active = cell.copy()
    activate(np, a.cell_activation, active)
    return out * active, cell


@each_step("attention_lstm", on=("numpy",))
def attention_lstm(a: AttentionLstm) -> None:
    width, cells = a.x.shape[1], a.c0.shape[1]
    of_x, of_cell = a.attention_weight[:width, 0], a.attention_weight[width:, 0]
    added = a.x @ of_x
    if a.attention_bias is not None:
        added += a.attention_bias.reshape(())
    last = np.zeros_like(added)
    pooled, gates = np.zeros(width, a.x.dtype), np.zeros(4 * cells, a.x.dtype)
    for number, (begin, end) in enumerate(pairwise(a.x_lod[-1])):
        cell, hidden = a.c0[number], None if a.h0 is None else a.h0[number]
        for row in range(begin, end):
            last[begin:end] = _attention(a, added[begin:end] + cell @ of_cell)
            pooled = last[begin:end] @ a.x[begin:end]
            gates = pooled @ a.lstm_weight[cells:] + a.lstm_bias[0]
            if hidden is not None:
                gates += hidden @ a.lstm_weight[:cells]
            hidden, cell = _step(a, gates, cell)
            a.hidden[row], a.cell[row] = hidden, cell
    for result, array in (
        (a.attentioned_x, added),
        (a.attention_fc_out, last),
        (a.lstm_x, pooled),
        (a.lstm_out, gates),
    ):
        if result is not None:
            result[...] = array.reshape(result.shape)
