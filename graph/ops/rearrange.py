"""Ops that give elements another place: turned, rolled, moved between channels, pixels and frames."""

from __future__ import annotations

from collections.abc import Sequence

from .operands import Input, Operands, Outputs, Positive, Unary
from .registry import Grad, define, slope
from .samples import sample
from .shapes import Sized, names_dimensions


class Flip(Unary):
    dims: Sequence[int] = []


define(
    "flip",
    Flip,
    Sized(
        "X -> Out",
        "axes = {front(axis, X) for axis in dims}",
        "len(axes) == len(dims); dims names a dimension twice",
    ),
    grad=Grad.swap("flip"),
    samples=(sample("X [3 4]", dims=[0]), sample("X [2 3 4]", dims=[-1, 0])),
    refuses=(sample("X [3 4]", dims=[2]),),
)


class Roll(Unary):
    shifts: Sequence[int] = []
    dims: Sequence[int] = []


define(
    "roll",
    Roll,
    Sized(
        "X -> Out",
        names_dimensions("dims"),
        "len(shifts) == (len(dims) or 1); shifts do not fit dims",
    ),
    samples=(
        sample("X [3 4]", shifts=[1], dims=[0]),
        sample("X [2 3 5]", shifts=[-7, 1], dims=[-1, 1]),
    ),
    refuses=(sample("X [3 4]", shifts=[1], dims=[2]),),
    slope=slope("(x) d_out", "d_x"),
)


class Unbind(Operands):
    x: Input
    out: Outputs
    axis: int = 0


define(
    "unbind",
    Unbind,
    Sized(
        "X -> Out*layers [*rest]",
        "at = front(axis, X)",
        "layers = X[at]",
        "layers > 0; X has no layers",
        "rest = X[:at] + X[at + 1 :] or (1,)",
    ),
    grad=Grad("stack", {"X": "Out@GRAD"}, {"Y": "X@GRAD"}),
    samples=(sample("X [2 3]", axis=1), sample("X [3 2 2]", axis=-2)),
    refuses=(sample("X [2 3]", axis=2),),
)


class PixelShuffle(Unary):
    upscale_factor: Positive = 1


define(
    "pixel_shuffle",
    PixelShuffle,
    Sized(  # Shi et al., CVPR 2016
        "X [N C H W] -> Out [N C/(upscale_factor*upscale_factor) H*upscale_factor W*upscale_factor]"
    ),
    samples=(sample("X [2 8 2 3]", upscale_factor=2),),
    refuses=(sample("X [2 6 2 3]", upscale_factor=2),),
    slope=slope(
        "d_out",
        "d_x",
        shape=Sized(
            "Out@GRAD [N C H W] "
            "-> X@GRAD [N C*upscale_factor*upscale_factor H/upscale_factor W/upscale_factor]"
        ),
    ),
)


class SpaceToDepth(Unary):
    blocksize: Positive = 2


define(
    "space_to_depth",
    SpaceToDepth,
    Sized(
        "X [N C H W] -> Out [N C*blocksize*blocksize H/blocksize W/blocksize]",
        "blocksize > 1",
        "C % (blocksize * blocksize) == 0; channels do not divide by the square of blocksize",
    ),
    samples=(sample("X [2 8 2 4]", blocksize=2),),
    refuses=(sample("X [2 8 3 4]", blocksize=2),),
    slope=slope("(x) d_out", "d_x"),
)


class ShuffleChannel(Unary):
    group: Positive = 1


_GROUPS = "C % group == 0; channels do not divide by group"


define(
    "shuffle_channel",
    ShuffleChannel,
    Sized("X [N C H W] -> Out", _GROUPS),
    samples=(sample("X [2 6 2 3]", group=2),),
    slope=slope("d_out", "d_x", shape=Sized("Out@GRAD [N C H W] -> X@GRAD", _GROUPS)),
)


class TemporalShift(Unary):
    seg_num: Positive = 1
    shift_ratio: float = 0.25


# samples are segments of frames: Lin et al., ICCV 2019
_FRAMES = ("N % seg_num == 0; samples do not divide by seg_num", "0 < shift_ratio < 0.5")


define(
    "temporal_shift",
    TemporalShift,
    Sized("X [N C H W] -> Out", *_FRAMES),
    samples=(sample("X [6 5 2 1]", seg_num=3, shift_ratio=0.3), sample("X [2 3 1 2]", seg_num=1)),
    slope=slope("d_out", "d_x", shape=Sized("Out@GRAD [N C H W] -> X@GRAD", *_FRAMES)),
)
