"""Samples of classes by their probabilities, in a compiled loop."""

from __future__ import annotations

import numpy as np

from ....graph.ops.draw import SamplingId
from ....strategies.types import VarType
from ...codegen.text_loops import bind_text
from ...device.device import Device
from ..array.draw import levels_of
from ..registry import Step, kernel, of_types

# As many rows at a time as sums are added up side by side: an addition waits for the one before.
_AT_ONCE = 8
_SAMPLE = f"""
    for begin in range(0, rows, {_AT_ONCE}):
        count = min({_AT_ONCE}, rows - begin)
        for j in range(count):
            store(sums, j, 0.0)
            store(numbers, j, np.int64(0))
        for i in range(width):
            for j in range(count):
                total = load(sums, j) + np.float64(load(x, (begin + j) * width + i))
                store(sums, j, total)
                more = select(total <= load(levels, begin + j), np.int64(1), np.int64(0))
                store(numbers, j, load(numbers, j) + more)
        for j in range(count):
            store(out, begin + j, min(load(numbers, j), width - 1))
"""


@kernel(
    "sampling_id", on=("llvm",), takes=of_types(VarType.FP32, Out=[VarType.INT64]), gapless=True
)
def sampling_id(dev: Device, a: SamplingId) -> list[Step]:
    """The number of sums of probabilities that are not above what was drawn for a sample."""
    rows, width = a.x.shape
    levels, draw = dev.scratch((rows, 1), np.float64), levels_of(dev, a)
    arrays = {
        "x": a.x,
        "levels": levels,
        "sums": dev.scratch((_AT_ONCE,), np.float64),
        "numbers": dev.scratch((_AT_ONCE,), np.int64),
        "out": a.out,
    }
    sample = bind_text(_SAMPLE, arrays, rows=rows, width=width)
    return [lambda: np.copyto(levels, draw()), sample]
