"""Ops that give elements another place: turned, rolled, moved between channels, pixels and frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .operands import Input, Operands, Outputs, Positive, Unary
from .registry import Grad, Inference, Specs, define, slope
from .rules import normal_axis, of_shape, same
from .samples import normal, sample
from .shapes import Sized


def flip_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X, whose dimensions ``dims`` names, each once."""
    dims = op.attr("dims")
    axes = [normal_axis(op, axis, len(op.shape("X"))) for axis in dims]
    op.require(len(set(axes)) == len(axes), f"dims {dims} names a dimension twice")
    return {"Out": op.spec("X")}


class Flip(Unary):
    dims: Sequence[int] = []


define(
    "flip",
    Flip,
    flip_shape,
    grad=Grad("flip", {"X": "Out@GRAD"}, {"Out": "X@GRAD"}),
    samples=(sample({"X": normal(3, 4)}, dims=[0]), sample({"X": normal(2, 3, 4)}, dims=[-1, 0])),
    refuses=(sample({"X": normal(3, 4)}, dims=[2]), sample({"X": normal(3)}, dims=[0, -1])),
)


def roll_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X; there is a shift for each of ``dims``, or one for all elements in a row."""
    shifts, dims = op.attr("shifts"), op.attr("dims")
    for dim in dims:
        normal_axis(op, dim, len(op.shape("X")))
    op.require(
        len(shifts) == (len(dims) or 1), f"{len(shifts)} shifts do not fit {len(dims)} dimensions"
    )
    return same()(op)


class Roll(Unary):
    shifts: Sequence[int] = []
    dims: Sequence[int] = []


define(
    "roll",
    Roll,
    roll_shape,
    samples=(
        sample({"X": normal(3, 4)}, shifts=[1], dims=[0]),
        sample({"X": normal(2, 3, 5)}, shifts=[-7, 1], dims=[-1, 1]),
    ),
    refuses=(
        sample({"X": normal(3, 4)}, shifts=[1], dims=[2]),
        sample({"X": normal(3, 4)}, shifts=[1, 2], dims=[0]),
    ),
    slope=slope("x d_out", "d_x"),
)


def unbind_shape(op: Inference) -> Mapping[str, Specs]:
    """The layers of X along ``axis``, whose size must be known."""
    x = op.spec("X")
    axis = normal_axis(op, op.attr("axis"), len(x.shape))
    op.require(x.shape[axis] > 0, f"the size of dimension {axis} must be known and above 0")
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return {"Out": [of_shape(rest or (1,), x)] * x.shape[axis]}


class Unbind(Operands):
    x: Input
    out: Outputs
    axis: int = 0


define(
    "unbind",
    Unbind,
    unbind_shape,
    grad=Grad("stack", {"X": "Out@GRAD"}, {"Y": "X@GRAD"}),
    samples=(sample({"X": normal(2, 3)}, axis=1), sample({"X": normal(3, 2, 2)}, axis=-2)),
    refuses=(sample({"X": normal(2, 3)}, axis=2),),
)


def _image(op: Inference, slot: str = "X") -> tuple[int, int, int, int]:
    """Return an image's sizes: samples, channels, height, width."""
    shape = op.shape(slot)
    op.require(len(shape) == 4, f"{slot} must have 4 dimensions")
    n, channels, height, width = shape
    return n, channels, height, width


class PixelShuffle(Unary):
    upscale_factor: Positive = 1


define(
    "pixel_shuffle",
    PixelShuffle,
    Sized(  # Shi et al., CVPR 2016
        "X [N C H W] -> Out [N C/upscale_factor/upscale_factor H*upscale_factor W*upscale_factor]"
    ),
    samples=(sample({"X": normal(2, 8, 2, 3)}, upscale_factor=2),),
    refuses=(sample({"X": normal(2, 6, 2, 3)}, upscale_factor=2),),
    slope=slope(
        "d_out",
        "d_x",
        shape=Sized(
            "Out@GRAD [N C H W] "
            "-> X@GRAD [N C*upscale_factor*upscale_factor H/upscale_factor W/upscale_factor]"
        ),
    ),
)


def _check_blocks(op: Inference) -> None:
    channels, b = op.shape("X")[1], op.attr("blocksize")
    op.require(b > 1, f"blocksize {b} must be above 1")
    op.require(
        channels % (b * b) == 0 or channels < 0,
        f"{channels} channels do not divide by the square of blocksize {b}",
    )


class SpaceToDepth(Unary):
    blocksize: int = 2


define(
    "space_to_depth",
    SpaceToDepth,
    Sized("X [N C H W] -> Out [N C*blocksize*blocksize H/blocksize W/blocksize]", _check_blocks),
    samples=(sample({"X": normal(2, 8, 2, 4)}, blocksize=2),),
    refuses=(
        sample({"X": normal(2, 8, 3, 4)}, blocksize=2),
        sample({"X": normal(2, 3, 4, 4)}, blocksize=2),
        sample({"X": normal(2, 4, 4, 4)}, blocksize=1),
    ),
    slope=slope("x d_out", "d_x"),
)


def shuffle_channel_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X, whose channels divide by ``group``."""
    slot = op.op.input_slots[0].name
    _, channels, _, _ = _image(op, slot)
    group = op.attr("group")
    op.require(
        group > 0 and (channels < 0 or channels % group == 0),
        f"{channels} channels do not divide by group {group}",
    )
    return {op.op.output_slots[0].name: op.spec(slot)}


class ShuffleChannel(Unary):
    group: int = 1


define(
    "shuffle_channel",
    ShuffleChannel,
    shuffle_channel_shape,
    samples=(sample({"X": normal(2, 6, 2, 3)}, group=2),),
    refuses=(sample({"X": normal(2, 6, 2, 3)}, group=4), sample({"X": normal(2, 6)}, group=2)),
    slope=slope("d_out", "d_x", shape=shuffle_channel_shape),
)


def temporal_shift_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X, whose samples are segments of ``seg_num`` frames (Lin et al., ICCV 2019)."""
    slot = op.op.input_slots[0].name
    frames, _, _, _ = _image(op, slot)
    segments, ratio = op.attr("seg_num"), op.attr("shift_ratio")
    op.require(
        segments > 0 and (frames < 0 or frames % segments == 0),
        f"{frames} samples do not divide by seg_num {segments}",
    )
    op.require(0 < ratio < 0.5, f"shift_ratio {ratio} must be between 0 and 0.5")
    return {op.op.output_slots[0].name: op.spec(slot)}


class TemporalShift(Unary):
    seg_num: int = 1
    shift_ratio: float = 0.25


define(
    "temporal_shift",
    TemporalShift,
    temporal_shift_shape,
    samples=(
        sample({"X": normal(6, 5, 2, 1)}, seg_num=3, shift_ratio=0.3),
        sample({"X": normal(2, 3, 1, 2)}, seg_num=1),
    ),
    refuses=(
        sample({"X": normal(5, 4, 2, 2)}, seg_num=2),
        sample({"X": normal(4, 4, 2, 2)}, seg_num=2, shift_ratio=0.6),
    ),
    slope=slope("d_out", "d_x", shape=temporal_shift_shape),
)
