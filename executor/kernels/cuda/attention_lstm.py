"""An LSTM whose steps attend to all rows of their sequence: a block for each, one launch for all steps."""

from __future__ import annotations

from typing import Any

from ....graph.ops.attention_lstm import AttentionLstm
from ...codegen.cuda_launches import Maybe, call, ints, read, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..registry import kernel
from .copies import filled
from .sequences import refusing
from .support import of_same_float

_INCLUDES = ("reduce.cuh", "assert.cuh", "stretch.cuh", "activation.cuh", "recurrent.cuh")


@kernel("attention_lstm", on=("cuda",), takes=of_same_float)
def attention_lstm(dev: Device, a: AttentionLstm) -> list[Step]:
    ends, (rows, width), (count, cells) = a.x_lod[-1], a.x.shape, a.c0.shape
    if not rows:
        return [s for out in (a.lstm_x, a.lstm_out) if out is not None for s in filled(dev, out, 0)]

    def room(*shape: int) -> Any:
        return dev.scratch(shape, a.x.dtype)

    arguments = read(x=a.x, c0=a.c0, h0=Maybe(a.h0, a.x), attention=a.attention_weight)
    arguments += read(
        shift=Maybe(a.attention_bias, a.x),
        scale=Maybe(a.attention_scalar, a.x),
        scaled_shift=Maybe(a.attention_scalar_bias, a.x),
    )
    arguments += read(weight=a.lstm_weight, bias=a.lstm_bias, ends=ends)
    arguments += written(hidden=a.hidden, cell=a.cell)
    arguments += written(
        added=room(rows) if a.attentioned_x is None else a.attentioned_x,
        share=room(rows) if a.attention_fc_out is None else a.attention_fc_out,
        pooled=room(count, width),
        gates=room(count, 4 * cells),
        last_pooled=Maybe(a.lstm_x, a.x),
        last_gates=Maybe(a.lstm_out, a.x),
    )
    arguments += refusing(dev, "attention_lstm", "X", rows)
    arguments += ints(rows=rows, count=count, width=width, cells=cells)
    functions = (a.gate_activation, a.cell_activation, a.candidate_activation)
    kinds = (c_type(a.x.dtype), c_type(ends.dtype), *(name.capitalize() for name in functions))
    return [call(dev, "block_attention_lstm", kinds, arguments, count, _INCLUDES)]
