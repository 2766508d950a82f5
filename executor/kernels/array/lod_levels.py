"""Offsets of sequences, computed from others; on the host, where shapes depend on them."""

from __future__ import annotations

import numpy as np

from ....graph.ops import lod_levels as ops
from ....graph.ops.registry import OPS
from ....strategies.errors import SequenceError
from ...device.device import Device
from ..registry import Step, each_step, kernel
from .formula import ARRAY_MEANS, formula_steps


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


@each_step("lod_alike", on=("numpy",))
def lod_alike(a: ops.OffsetsAlike) -> None:
    """The offsets of X, if they are those of Y."""
    if not np.array_equal(a.x, a.y):
        raise SequenceError(ops.unlike(a.reader, a.first, a.x, a.second, a.y))
    a.out[...] = a.x


@kernel("lod_of_images", on=("numpy",))
def lod_of_images(dev: Device, a: ops.OffsetsOfImages) -> list[Step]:
    """Look whether each image has the numbers that its rows and columns ask for."""

    def check() -> None:
        height, width = np.diff(a.y), np.diff(a.z)
        for i in np.flatnonzero(a.InputChannel * height * width != np.diff(a.x))[:1]:
            raise SequenceError(
                f"var_conv_2d: sequence {i} of X has {a.x[i + 1] - a.x[i]} numbers, not "
                f"{a.InputChannel} * {height[i]} * {width[i]} (InputChannel, rows of ROW, rows of COLUMN)."
            )

    return [check, *formula_steps(dev, OPS["lod_of_images"], a, ARRAY_MEANS)]
