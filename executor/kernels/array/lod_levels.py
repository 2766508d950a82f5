"""Offsets of sequences, computed from others; on the host, where shapes depend on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops import lod_levels as ops
from ....graph.ops.sequence_window import patches
from ....strategies.errors import SequenceError
from ...device.device import Device
from ..registry import Step, each_step, kernel


@kernel("lod_offsets")
def lod_offsets(dev: Device, a: ops.OffsetsOfRows) -> Step:
    """Offsets of another type, which end where the rows do."""
    x, rows = a.x.reshape(-1), len(a.rows)

    def run() -> None:
        rises = bool(x.size > 1 and x[0] == 0 and (x[1:] >= x[:-1]).all())
        if not rises or x[-1] != rows:
            raise SequenceError(
                f"lod_reset: offsets must rise from 0 to {rows}, the number of X's rows, got {x.tolist()}"
            )
        a.out[...] = x

    return run


@kernel("lod_from_lengths")
def lod_from_lengths(dev: Device, a: ops.Offsets) -> Step:
    def run() -> None:
        a.out[0] = 0
        dev.xp.cumsum(a.x.reshape(-1), out=a.out[1:])

    return run


@kernel("lod_of_copies")
def lod_of_copies(dev: Device, a: ops.OffsetsOfCopies) -> Step:
    """Sequence i of X, as many times as sequence i of Y is long."""
    xp: Any = dev.xp
    copies = a.out.size - 1

    def run() -> None:
        source = xp.searchsorted(a.y[1:], xp.arange(copies), side="right")
        a.out[0] = 0
        xp.cumsum(xp.diff(a.x)[source], out=a.out[1:])

    return run


@each_step("lod_together")
def lod_together(a: ops.OffsetsTogether) -> None:
    """Sequence i of each operand behind each other."""
    a.out[...] = sum(a.x[1:], a.x[0])


@kernel("lod_joined")
def lod_joined(dev: Device, a: ops.OffsetsTogether) -> Step:
    """The sequences of each operand behind those of the ones before."""
    starts = np.cumsum([0, *(x.size - 1 for x in a.x)])

    def run() -> None:
        a.out[0] = 0
        for x, begin, end in zip(a.x, starts, starts[1:], strict=False):
            a.out[begin + 1 : end + 1] = x[1:] + a.out[begin]

    return run


@each_step("lod_absolute")
def lod_absolute(a: ops.OffsetsTogether) -> None:
    """The outermost of some levels, counted in rows."""
    a.out[...] = ops.absolute(a.x)


@each_step("lod_reshaped")
def lod_reshaped(a: ops.OffsetsReshaped) -> None:
    """The same elements in rows of another width."""
    width = a.rows.shape[1]
    for i in np.flatnonzero(a.x * width % a.new_dim)[:1]:
        raise SequenceError(
            f"sequence_reshape: sequence {i - 1} of X ends at element {a.x[i] * width}, which is not "
            f"the end of a row of {a.new_dim}. Choose new_dim so that it divides each sequence."
        )
    a.out[...] = a.x * width // a.new_dim


@kernel("lod_erased")
def lod_erased(dev: Device, a: ops.OffsetsErased) -> Step:
    """Count what is left before each offset."""
    return lambda: _left(dev, a, ~dev.xp.isin(a.rows.reshape(-1), dev.xp.asarray(a.tokens)))


@kernel("lod_aligned")
def lod_aligned(dev: Device, a: ops.OffsetsAligned) -> Step:
    """Count what is left before each offset."""
    return lambda: _left(dev, a, aligned(dev.xp, a.rows.reshape(-1), a.x, a))


def _left(dev: Device, a: ops.OffsetsErased | ops.OffsetsAligned, mask: Any) -> None:
    count = dev.xp.concatenate([dev.xp.zeros(1, np.int64), dev.xp.cumsum(mask)])
    a.out[...] = count[a.x]


def aligned(xp: Any, labels: Any, ends: Any, a: Any) -> Any:
    """Tell which labels are left: no blanks, and of equal ones behind each other in a sequence the first."""
    mask = labels != a.blank
    if a.merge_repeated and labels.size:
        first = xp.ones(labels.size, bool)
        first[1:] = labels[1:] != labels[:-1]
        starts = ends[:-1]
        first[starts[starts < labels.size]] = True
        mask = mask & first
    return mask


@kernel("lod_of_patches")
def lod_of_patches(dev: Device, a: ops.OffsetsOfPatches) -> Step:
    """Each image has as many patches."""
    rows, columns = patches(a.x.shape, vars(a))
    offsets = dev.xp.arange(a.out.size) * (rows * columns)
    return lambda: dev.xp.copyto(a.out, offsets)


@kernel("lod_of_pairs")
def lod_of_pairs(dev: Device, a: ops.OffsetsOfPairs) -> Step:
    """``dim_t`` numbers for each row of X's sequence with each of Y's."""
    xp: Any = dev.xp

    def run() -> None:
        a.out[0] = 0
        xp.cumsum(xp.diff(a.x) * xp.diff(a.y) * a.dim_t, out=a.out[1:])

    return run


@kernel("lod_of_images")
def lod_of_images(dev: Device, a: ops.OffsetsOfImages) -> Step:
    """The numbers of each image's convolution: one for each channel and every stride-th row and column."""
    xp: Any = dev.xp

    def run() -> None:
        height, width = xp.diff(a.y), xp.diff(a.z)
        if dev.runtime is None:  # the host does not see offsets on a GPU
            for i in np.flatnonzero(a.InputChannel * height * width != np.diff(a.x))[:1]:
                raise SequenceError(
                    f"var_conv_2d: sequence {i} of X has {a.x[i + 1] - a.x[i]} numbers, not "
                    f"{a.InputChannel} * {height[i]} * {width[i]} (InputChannel, rows of ROW, rows of COLUMN)."
                )
        lines, columns = (height - 1) // a.StrideH + 1, (width - 1) // a.StrideW + 1
        a.out[0] = 0
        xp.cumsum(lines * columns * a.OutputChannel, out=a.out[1:])

    return run
