"""Rows and their sequences on a GPU: kernels read offsets where they lie, so one graph serves all lengths."""

from __future__ import annotations

from ....graph.ops.operands import Array
from ...codegen import cuda_launches as gpu
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .rows import accumulator

_FEW = 32  # columns; of so few a warp looks through the rows


def refusing(dev: Device, op: str, what: str, rows: int) -> list[gpu.Argument]:
    """Return parameters that a kernel passes to ``refuse`` if offsets do not end where the rows do."""
    return gpu.refusal(
        dev, f"{op}: the sequences of {what} end at row {{}}, and it has {rows} rows"
    )


def offsets_of(dev: Device, lengths: Array, out: Array) -> list[Step]:
    """Return the call that writes a zero and running sums of lengths; one block does."""
    arguments = [*gpu.read(lengths=lengths), *gpu.written(out=out), *gpu.longs(count=lengths.size)]
    block = gpu.BLOCK if lengths.size <= gpu.BLOCK * 8 else 1024
    kinds = (c_type(lengths.dtype),)
    return [gpu.call(dev, "block_offsets", kinds, arguments, 1, ("scan.cuh",), block)]


def sequence_of(dev: Device, op: str, what: str, offsets: Array, out: Array) -> list[Step]:
    """Return the call that writes the number of each row's sequence; errors name ``op`` and ``what``."""
    arguments = [*gpu.read(ends=offsets), *gpu.written(out=out), *refusing(dev, op, what, out.size)]
    arguments += gpu.longs(rows=out.size, count=offsets.size - 1)
    includes = ("assert.cuh", "sequences.cuh")
    blocks = gpu.enough_blocks(dev, out.size)
    return [gpu.call(dev, "number_rows", (c_type(offsets.dtype),), arguments, blocks, includes)]


def row_of_largest(dev: Device, offsets: Array, x: Array, out: Array) -> list[Step]:
    """Return the call that writes the first row of the largest, by sequence and column; -1 of no rows."""
    group = 32 if x.shape[1] < _FEW else 1
    kinds = (c_type(x.dtype), c_type(accumulator(x.dtype)), c_type(offsets.dtype), str(group))
    arguments = [*gpu.read(ends=offsets, x=x), *gpu.written(out=out)]
    arguments += gpu.longs(rows=x.shape[0], count=out.size, width=x.shape[1])
    includes = ("reduce.cuh", "choice.cuh")
    blocks = gpu.enough_blocks(dev, out.size * group)
    return [gpu.call(dev, "block_row_of_largest", kinds, arguments, blocks, includes)]
