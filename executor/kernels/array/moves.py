"""Ops that only move elements: a rule pairs views, and forward and backward copy between them.

A rule takes operand, result and record, and yields (view of the result, view of the operand); ``register``
makes the op's kernel and its gradient's of it. What no pair covers is filled; a pair of which one side is None
is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise, product
from typing import Any, NamedTuple

import numpy as np

from ....graph.ops import manipulation, ranges
from ....graph.ops import rearrange as ops
from ....graph.ops.diagonal import Diag, DiagEmbed, Diagonal
from ....graph.ops.indexing import Slice
from ....graph.ops.operands import Array, Operands
from ....graph.ops.padding import Pad
from ....graph.ops.registry import OPS
from ....graph.ops.strided import Reverse, StridedSlice, strided_indices
from ....graph.ops.view import Transpose
from ....graph.ops.window import (
    Crop,
    CropTensor,
    PadConstantLike,
    PartialConcat,
    window_start,
)
from ...device.device import Device
from ..registry import Step, kernel
from .indexing import window
from .manipulation import Copy, copied, tiles
from .padding import middle

Pairs = Iterable[tuple[Any, Any]]
Rule = Callable[[Any, Any, Any], Pairs]
Several = Sequence[Array | None]
# (device, array, views of its parts that copies write, the number for all others)
Fill = Callable[[Device, Any, Sequence[Any], Any], list[Step]]


class Move(NamedTuple):
    """A rule, and the fields of the operand, the result, and the number that fills the rest of it.

    ``repeats``: an element may go to several places, so the gradient is a sum, and no move.
    """

    pairs: Rule
    source: str
    target: str
    rest: str
    repeats: bool


MOVES: dict[str, Move] = {}


def move(
    *op_types: str, source: str = "x", target: str = "out", rest: str = "", repeats: bool = False
) -> Callable[[Rule], Rule]:
    """Name the ops that a rule moves elements for."""

    def add(pairs: Rule) -> Rule:
        MOVES.update(dict.fromkeys(op_types, Move(pairs, source, target, rest, repeats)))
        return pairs

    return add


@move("concat")
def concat(x: Several, out: Array, a: manipulation.Concat) -> Pairs:
    """Operands behind each other."""
    return zip(_pieces(out, a.x, a.axis), x, strict=True)


@move("split")
def split(x: Array, out: Sequence[Array], a: manipulation.Split) -> Pairs:
    """Pieces of the operand."""
    return zip(out, _pieces(x, out, a.axis), strict=True)


def _pieces(whole: Array, parts: Sequence[Array], axis: int) -> list[Any]:
    """View what each part of ``whole`` stands for, as they lie behind each other."""
    axis %= whole.ndim
    ends = accumulate(part.shape[axis] for part in parts)
    before = (slice(None),) * axis
    return [whole[(*before, slice(*cut))] for cut in pairwise((0, *ends))]


@move("stack", target="y")
def stack(x: Several, y: Array, a: manipulation.Stack) -> Pairs:
    """Operands as layers."""
    return zip(_layers(y, a.axis), x, strict=True)


@move("unstack", target="y")
def unstack(x: Array, y: Several, a: manipulation.Unstack) -> Pairs:
    """The layers of the operand."""
    return zip(y, _layers(x, a.axis), strict=True)


@move("unbind")
def unbind(x: Array, out: Several, a: ops.Unbind) -> Pairs:
    """The layers of the operand, of which a single number has a dimension."""
    layers = zip(out, _layers(x, a.axis), strict=True)
    return ((to, at.reshape(to.shape)) for to, at in layers if to is not None)


def _layers(whole: Array, axis: int) -> list[Any]:
    """View what lies at each index along an axis."""
    axis %= whole.ndim
    return [whole[(slice(None),) * axis + (i,)] for i in range(whole.shape[axis])]


@move("expand", "expand_as", "expand_at", repeats=True)
def expand(x: Array, out: Array, a: manipulation.Expand | ranges.ExpandAs) -> Pairs:
    """The operand over and over."""
    small, large = tiles(x, out)
    return [(large, small)]


@move("transpose", "transpose2")
def transpose(x: Array, out: Array, a: Transpose) -> Pairs:
    """Dimensions in another order."""
    return [(out, x.transpose(a.axis))]


@move("transfer_layout")
def transfer_layout(x: Array, out: Array, a: Operands) -> Pairs:
    """Everything."""
    return [(out, x)]


@move("slice", source="input")
def slice_(x: Array, out: Array, a: Slice) -> Pairs:
    """A window, of which dimensions of one element may be dropped."""
    view = window(x, a)
    return [(out.reshape(view.shape), view)]


@move("strided_slice", source="input")
def strided_slice(x: Array, out: Array, a: StridedSlice) -> Pairs:
    """Every n-th element of some dimensions, of which those of one element may be dropped."""
    index = [slice(None)] * x.ndim
    for axis, *cut in zip(a.axes, a.starts, a.ends, a.strides, strict=True):
        taken = strided_indices(x.shape[axis], *cut)
        stop = taken.stop if taken.stop >= 0 else None
        index[axis] = slice(taken.start, stop, taken.step) if taken else slice(0)
    view = x[tuple(index)]
    return [(out.reshape(view.shape), view)]


@move("pad", rest="pad_value")
def pad(x: Array, out: Array, a: Pad) -> Pairs:
    """What is between the margins."""
    return [(middle(out, x, a.paddings), x)]


def _corner(whole: Array, small: Array, starts: Sequence[int]) -> Any:
    """View as many elements of ``whole`` as ``small`` has, from ``starts`` on."""
    sizes = zip(starts, small.shape, strict=True)
    return whole[tuple(slice(start, start + size) for start, size in sizes)]


@move("crop", "crop_tensor")
def crop(x: Array, out: Array, a: Crop | CropTensor) -> Pairs:
    """A window."""
    return [(out, _corner(x, out, window_start(a.offsets, x.ndim)))]


@move("pad_constant_like", source="y", rest="pad_value")
def pad_constant_like(y: Array, out: Array, a: PadConstantLike) -> Pairs:
    """The first corner."""
    return [(_corner(out, y, [0] * y.ndim), y)]


@move("partial_concat")
def partial_concat(x: Several, out: Array, a: PartialConcat) -> Pairs:
    """Columns of the operands, side by side; a start below 0 counts from the end."""
    length = out.shape[1] // len(x)
    for i, source in enumerate(x):
        if source is not None:
            start = a.start_index % source.shape[1]
            yield out[:, i * length : (i + 1) * length], source[:, start : start + length]


@move("flip")
def flip(x: Array, out: Array, a: ops.Flip) -> Pairs:
    """Some dimensions from the end to the front."""
    return [(out, _turned(x, a.dims))]


@move("reverse")
def reverse(x: Array, out: Array, a: Reverse) -> Pairs:
    """Some dimensions from the end to the front."""
    return [(out, _turned(x, a.axis))]


def _turned(x: Array, axes: Sequence[int]) -> Any:
    turned = {axis % x.ndim for axis in axes}
    return x[tuple(slice(None, None, -1 if i in turned else 1) for i in range(x.ndim))]


@move("roll")
def roll(x: Array, out: Array, a: ops.Roll) -> Pairs:
    """Along each dimension the end comes to the front."""
    if not a.dims:
        x, out = x.reshape(-1), out.reshape(-1)
    shifts = [0] * x.ndim
    for shift, axis in zip(a.shifts, a.dims or [0], strict=True):
        shifts[axis % x.ndim] += shift
    cuts = [shift % size if size else 0 for shift, size in zip(shifts, x.shape, strict=True)]
    halves = [
        [(slice(cut, None), slice(0, size - cut)), (slice(0, cut), slice(size - cut, None))]
        for cut, size in zip(cuts, x.shape, strict=True)
    ]
    for parts in product(
        *(both if cut else both[:1] for both, cut in zip(halves, cuts, strict=True))
    ):
        yield out[tuple(to for to, _ in parts)], x[tuple(at for _, at in parts)]


@move("pixel_shuffle")
def pixel_shuffle(x: Array, out: Array, a: ops.PixelShuffle) -> Pairs:
    """Channels within their block of pixels."""
    (n, channels, height, width), r = out.shape, a.upscale_factor
    parts = x.reshape(n, channels, r, r, height // r, width // r)
    blocks = out.reshape(n, channels, height // r, r, width // r, r)
    return [(blocks, parts.transpose(0, 1, 4, 2, 5, 3))]


@move("space_to_depth")
def space_to_depth(x: Array, out: Array, a: ops.SpaceToDepth) -> Pairs:
    """Channels within blocks of pixels of an image that is then read as a smaller one: Paddle's order."""
    (n, channels, height, width), b = x.shape, a.blocksize
    parts = x.reshape(n, b, b, channels // (b * b), height, width)
    blocks = out.reshape(n, channels // (b * b), height, b, width, b)
    return [(blocks, parts.transpose(0, 3, 4, 1, 5, 2))]


@move("shuffle_channel")
def shuffle_channel(x: Array, out: Array, a: ops.ShuffleChannel) -> Pairs:
    """Channels dealt out over the groups."""
    n, channels, *image = x.shape
    dealt = out.reshape(n, channels // a.group, a.group, *image)
    return [(dealt, x.reshape(n, a.group, channels // a.group, *image).swapaxes(1, 2))]


@move("temporal_shift")
def temporal_shift(x: Array, out: Array, a: ops.TemporalShift) -> Pairs:
    """Some channels one frame later, some one earlier, the others where they are."""
    (_, channels, *image), frames = x.shape, a.seg_num
    ratio = np.float32(a.shift_ratio)  # in which Paddle counts the channels
    first, second = int(channels * ratio), int(channels * 2 * ratio)
    x, out = (array.reshape(-1, frames, channels, *image) for array in (x, out))
    return [
        (out[:, 1:, :first], x[:, :-1, :first]),
        (out[:, :-1, first:second], x[:, 1:, first:second]),
        (out[:, :, second:], x[:, :, second:]),
    ]


def _diagonal_of(x: Array, offset: int, first: int, second: int) -> Any:
    """View the diagonal of two dimensions, as the last one."""
    view = x.diagonal(offset, first, second)
    if isinstance(view, np.ndarray):
        view.flags.writeable = True  # NumPy gives a view that cannot be written
    return view


@move("diag", source="diagonal")
def diag(vector: Array, out: Array, a: Diag) -> Pairs:
    """A vector on the diagonal."""
    return [(_diagonal_of(out, 0, 0, 1), vector)]


@move("diag_embed", source="input")
def diag_embed(x: Array, out: Array, a: DiagEmbed) -> Pairs:
    """The last dimension on the diagonal of two."""
    return [(_diagonal_of(out, a.offset, a.dim1, a.dim2), x)]


@move("diagonal", source="input")
def diagonal(x: Array, out: Array, a: Diagonal) -> Pairs:
    """The diagonal of two dimensions."""
    return [(out, _diagonal_of(x, a.offset, a.axis1, a.axis2))]


def register(on: Callable[[str], Callable[[Any], Any]], copied: Copy, filled: Fill) -> None:
    """Register the kernels of every rule, and of its gradient where it has one of its own."""

    def copies(dev: Device, arrays: Any, pairs: Pairs, rest: Any = 0) -> list[Step]:
        """Return the calls that copy within (to, from) pairs of views, and fill the rest of ``arrays``."""
        pairs = [(to, at) for to, at in pairs if to is not None and at is not None]
        written = [a for a in (arrays if isinstance(arrays, list) else [arrays]) if a is not None]
        steps: list[Step] = []
        if sum(to.size for to, _ in pairs) < sum(array.size for array in written):
            parts = [to for to, _ in pairs]
            steps = [step for array in written for step in filled(dev, array, parts, rest)]
        return [*steps, *(step for to, at in pairs for step in copied(dev, to, at))]

    def bind(name: str, rule: Move) -> None:
        @on(name)
        def forward(dev: Device, a: Any) -> list[Step]:
            x, out = getattr(a, rule.source), getattr(a, rule.target)
            if out is None:
                return []
            return copies(dev, out, rule.pairs(x, out, a), getattr(a, rule.rest, 0))

        if rule.repeats or f"{name}_grad" not in OPS:
            return

        @on(f"{name}_grad")
        def backward(dev: Device, a: Any) -> list[Step]:
            d_x, d_out = getattr(a, f"d_{rule.source}"), getattr(a, f"d_{rule.target}")
            if d_x is None:
                return []
            return copies(dev, d_x, ((at, to) for to, at in rule.pairs(d_x, d_out, a)))

    for name, rule in MOVES.items():
        bind(name, rule)


def fill(dev: Device, array: Any, parts: Sequence[Any], value: Any) -> list[Step]:
    """Return the call that gives every element one value: those of parts, which are written later, too."""
    return [partial(array.fill, value)]


register(partial(kernel, low=True), copied, fill)
