"""Dropout as compiled loops: the Philox words that ``executor/device/philox.py`` draws, and one pass over x."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops import expr as e
from ....graph.ops import random
from ....strategies.types import VarType
from ...codegen.loops import bind_loop
from ...codegen.native import Launch
from ...codegen.text_loops import bind_text
from ...device.device import Device
from ...device.philox import Stream
from ..array.part_dropout import Dropout
from ..registry import Step, by_arrays, kernel

_BLOCKS = 128  # counters whose words are made before they are compared: they stay in cache
_WORDS = 8 * _BLOCKS
# Multipliers and key increments of Philox4x64 (Salmon et al., SC 2011, table 2 and section 4.3).
_ROUND = """
            h0, h1 = high_of_product(c0, m0), high_of_product(c2, m1)
            c0, c1, c2, c3 = h1 ^ c1 ^ k0, c2 * m1, h0 ^ c3 ^ k1, c0 * m0
            k0, k1 = k0 + w0, k1 + w1
"""
_HALVES = "".join(
    f"""
            work[8 * b + {2 * k}], work[8 * b + {2 * k + 1}] = np.uint32(c{k}), np.uint32(c{k} >> half)"""
    for k in range(4)
)
_DRAW = f"""
    limit, wanted = np.uint32(below), dropped == 0
    m0, m1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
    w0, w1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
    block, first, half = state[0], -state[1], np.uint64(32)
    while first < count:
        blocks = min({_BLOCKS}, (count - first + 7) // 8)
        for b in range(blocks):
            c0, c1, c2, c3 = np.uint64(block + b + 1), np.uint64(0), np.uint64(state[2]), np.uint64(0)
            k0, k1 = np.uint64(state[3]), np.uint64(state[4])
            {(_ROUND * 10).strip()}
            {_HALVES.strip()}
        for i in range(max(first, 0), min(first + 8 * blocks, count)):
            store(space, i, np.uint8((load(work, i - first) < limit) == wanted))
        block, first = block + blocks, first + 8 * blocks
"""


def bind_kept(
    dev: Device,
    stream: Stream,
    space: Any,
    keep: float,
    *,
    row: int,
    start: int = 0,
    dropped: bool = False,
) -> list[Step]:
    """Return the calls that write :meth:`Stream.part_below` to an array of bytes without gaps.

    ``dropped``: write the contrary.
    """
    if keep >= 1.0 or not space.size:
        return [partial(space.fill, not dropped)]
    state = np.zeros(5, np.int64)
    state[3:] = stream.key.view(np.int64)
    with dev.in_turn():
        work = dev.scratch((_WORDS,), np.uint32)
    arrays = {"space": space, "state": state, "work": work}
    below = int(np.uint32(keep * 2**32))

    def aim() -> None:
        state[:3] = stream.place(row, start)

    return [aim, bind_text(_DRAW, arrays, count=space.size, below=below, dropped=int(dropped))]


def _in_float32(node: Node) -> bool:
    values = [*node.inputs.get("X", ()), *node.inputs.get("Out@GRAD", ())]
    return all(v is not None and v.spec.dtype == VarType.FP32 for v in values)


@kernel("dropout", on=("llvm",), takes=_in_float32)
def dropout(dev: Device, a: random.Dropout) -> list[Step]:
    """Draw the mask, then select: a dropped inf or nan is gone."""
    if a.is_test or not (a.mask is None or a.mask.flags.c_contiguous):
        return by_arrays("dropout", dev, a)
    mask = dev.array_or_scratch(a.mask, a.x.shape, np.uint8)
    keep = 1.0 - a.dropout_prob
    factor = random.factor_of(a.dropout_prob, a.is_test, a.dropout_implementation)
    stream = Stream(dev, a.seed, per_row=True, every_step=not a.fix_seed)
    choice = e.where(e.argument("kept"), e.argument("x") * factor, 0)
    loop = bind_loop([(choice, a.out)], {"x": a.x, "kept": mask.view(np.bool_)})
    return [*bind_kept(dev, stream, mask, keep, row=math.prod(a.x.shape[1:])), *loop]


class CompiledDropout(Dropout):
    """Dropout inside a fused op that compiled loops compute."""

    def mark(self, start: int, space: Any) -> list[Step]:
        if not self.draws or not space.flags.c_contiguous:
            return super().mark(start, space)
        return bind_kept(
            self.dev, self.stream, space, self.keep, row=self.row, start=start, dropped=True
        )


@kernel("dropout_grad", on=("llvm",), takes=_in_float32)
def dropout_grad(dev: Device, a: random.DropoutGrad) -> list[Step] | list[Launch]:
    """d * mask * factor in one pass."""
    if a.is_test:
        return by_arrays("dropout_grad", dev, a)
    factor = random.factor_of(a.dropout_prob, a.is_test, a.dropout_implementation)
    slope = e.argument("d") * e.argument("kept") * factor
    return bind_loop([(slope, a.d_x)], {"d": a.d_out, "kept": a.mask.view(np.bool_)})
