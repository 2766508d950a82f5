"""Recurrent ops on a GPU: the whole loop over time is one launch, in which each block follows one sequence.

The loop ends where the offsets say that the sequence does, and these lie on the GPU: a graph that was captured
for some number of rows and sequences serves all lengths that they may have, a step may compute offsets, and
ranks agree on replays by their plans alone (``plan/captures.py``). A launch for each step, with a product for
all sequences, would read a weight once for all of them. But there would be as many as the longest sequence has
steps, so each set of lengths would be a plan and a graph of its own, and lengths hardly ever come again.
Here each block reads the weights anew in each step, from the level-2 cache: worth it up to ``MOST_BYTES`` of
them, by an estimate (100 GB/s for each multiprocessor, and 0.1 ms that CuPy's calls take for a step), not by
measurement. Wider cells are left to the array module's kernels, which the host leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ...codegen.cuda_launches import Argument, call, enough_blocks, ints, read, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .sequences import refusing

MOST_BYTES = 8 << 20  # of the weights of a step
_MOST_THREADS = 512
_INCLUDES = ("reduce.cuh", "assert.cuh", "stretch.cuh", "activation.cuh", "recurrent.cuh")


class TimeOrder:
    """The order of rows by time (``array/time_steps.py``), as the launch ``steps`` writes it when they run."""

    def __init__(self, dev: Device, op: str, offsets: Array, rows: int, is_reverse: bool) -> None:
        self._dev, self._offsets, self.count = dev, offsets, offsets.shape[0] - 1
        self._rows, self._is_reverse = rows, is_reverse
        self._order, self._starts = (dev.scratch((n,), np.int32) for n in (self.count, rows))
        arguments = [*read(ends=offsets), *written(order=self._order, starts=self._starts)]
        arguments += [*refusing(dev, op, "Input", rows), *ints(rows=rows, count=self.count)]
        blocks = enough_blocks(dev, rows + self.count)
        kinds = (c_type(offsets.dtype),)
        self.steps: list[Step] = [call(dev, "order_by_time", kinds, arguments, blocks, _INCLUDES)]

    def launch(
        self,
        function: str,
        kinds: Sequence[str],
        operands: Sequence[Argument],
        results: Sequence[Argument],
        width: int,
        others: Sequence[Argument] = (),
        numbers: Sequence[Argument] = (),
        definitions: str = "",
    ) -> Step:
        """Return the launch of a function over all steps: ``width`` cells, and ``others`` sizes.

        ``definitions`` is text that its template arguments need.
        """
        ordered = read(ends=self._offsets, order=self._order, starts=self._starts)
        sizes = [*ints(rows=self._rows, width=width), *others]
        arguments = [*operands, *ordered, *results, *sizes, *ints(reverse=self._is_reverse)]
        arguments += numbers
        first: Any = operands[0][1]
        kinds = (c_type(first.dtype), c_type(self._offsets.dtype), *kinds)
        block = min(-(-width // 32) * 32, _MOST_THREADS)
        how = (self.count, _INCLUDES, block, definitions)
        return call(self._dev, function, kinds, arguments, *how)
