"""Convolutions whose windows are bent by data.

Dai and others, "Deformable convolutional networks", arXiv 1703.06211; with a mask: Zhu and others,
arXiv 1811.11168.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import formula as f
from .operands import Array, Input, Operands, Output, Positive
from .registry import define, slope
from .samples import Draw, normal, sample, uniform
from .sampling import neighbours
from .shapes import Sized, numbers


class DeformableConvV1(Operands):
    input: Input
    offset: Input
    filter: Input
    output: Output
    strides: Sequence[int] = [1, 1]
    paddings: Sequence[int] = [0, 0]
    dilations: Sequence[int] = [1, 1]
    groups: Positive = 1
    deformable_groups: Positive = 1
    im2col_step: Positive = 64


class DeformableConv(DeformableConvV1):
    mask: Input


def deformable_conv_v1(a: DeformableConvV1) -> f.Results:
    """Weigh the four elements around each position of each window, then one product."""
    return {"output": _product(a, _windows(a))}


def deformable_conv(a: DeformableConv) -> f.Results:
    """As without a mask; what lies at a position counts by its share."""
    taps_NGKPC = _windows(a)
    mask = a.mask.reshape(*taps_NGKPC.shape[:4], 1)
    return {"output": _product(a, taps_NGKPC * mask)}


def _windows(a: DeformableConvV1) -> Array:
    """Return what lies where the windows lead: [images, groups, taps, pixels, channels of a group]."""
    n, c, height, width = a.input.shape
    kernel, image = a.filter.shape[2:], a.output.shape[2:]
    groups, taps = a.deformable_groups, kernel[0] * kernel[1]
    x = a.input.reshape(n, groups, c // groups, -1).transpose(0, 1, 3, 2).reshape(-1, c // groups)
    offset = a.offset.reshape(n, groups, taps, 2, *image)
    places = []
    for k in range(2):
        starts = np.arange(image[k]) * a.strides[k] - a.paddings[k]
        # [taps, rows or columns]
        tap = np.indices(kernel)[k].reshape(-1, 1) * a.dilations[k] + starts
        tap = tap[:, :, None] if k == 0 else tap[:, None, :]
        places.append(offset[:, :, :, k] + f.table(tap, a.input.dtype))
    first = f.table(np.arange(n * groups).reshape(n, groups, 1, 1, 1) * (height * width), np.int64)
    total = None
    for row, y_share in neighbours(places[0], height):
        for column, x_share in neighbours(places[1], width):
            index = first + row * width + column
            term = f.take(x, index.reshape(-1)) * (y_share * x_share).reshape(-1, 1)
            total = term if total is None else total + term
    assert total is not None
    return total.reshape(n, groups, taps, -1, c // groups)


def _product(a: DeformableConvV1, taps_NGKPC: Array) -> Array:
    """Multiply windows and filters, by group."""
    n, pixels = taps_NGKPC.shape[0], taps_NGKPC.shape[3]
    windows = taps_NGKPC.transpose(0, 1, 4, 2, 3).reshape(n, a.groups, -1, pixels)
    filters = a.filter.reshape(a.groups, a.filter.shape[0] // a.groups, -1)
    return (filters @ windows).reshape(n, a.filter.shape[0], *a.output.shape[2:])


def _operands(
    x: tuple[int, ...], w: tuple[int, ...], image: tuple[int, int], parts: int, mask: bool
) -> dict[str, Draw]:
    taps = parts * w[2] * w[3]
    operands = {
        "Input": normal(*x),
        "Offset": uniform(x[0], 2 * taps, *image, low=-1.4, high=1.4),
        "Filter": normal(*w),
    }
    return {**operands, "Mask": uniform(x[0], taps, *image)} if mask else operands


for _v1 in (True, False):
    _one = _operands((2, 3, 5, 4), (4, 3, 3, 2), (3, 3), 1, not _v1)
    _some = _operands((2, 4, 5, 6), (6, 2, 3, 3), (3, 3), 2, not _v1)
    define(
        "deformable_conv_v1" if _v1 else "deformable_conv",
        DeformableConvV1 if _v1 else DeformableConv,
        Sized(
            "Input [N C H W], Filter [O I kh kw], Offset [N 2*taps rows columns], Mask [N taps rows columns] "
            "-> Output [N O rows columns]",
            "len(Input) == len(Filter) == 4; Input must be [N, C, H, W] and Filter [O, C / groups, kh, kw]",
            *numbers(2, 1, "strides", "dilations"),
            *numbers(2, 0, "paddings"),
            "Input[1] == Filter[1] * groups; Filter takes other channels than Input has",
            "Filter[0] % groups == 0; filters do not split in groups",
            "Input[1] % deformable_groups == 0; channels do not split in deformable_groups",
            "N <= im2col_step or N % im2col_step == 0; the images are no multiple of im2col_step",
            "sides = zip(Input[2:], paddings, dilations, Filter[2:], strides)",
            "rows, columns = ((n + 2 * p - d * (k - 1) - 1) // step + 1 for n, p, d, k, step in sides)",
            "rows > 0; the windows are larger than images",
            "columns > 0; the windows are larger than images",
            "taps = deformable_groups * Filter[2] * Filter[3]",
        ),
        formula=deformable_conv_v1 if _v1 else deformable_conv,
        samples=(
            sample(_one),
            sample(
                _some, groups=2, deformable_groups=2, strides=[2, 2], paddings=[1, 1], im2col_step=2
            ),
            sample(
                _operands((1, 2, 5, 5), (2, 2, 2, 2), (5, 4), 1, not _v1),
                dilations=[2, 3],
                paddings=[1, 1],
            ),
        ),
        refuses=(
            sample(_one, strides=[2, 2]),
            sample(_one, groups=2),
            sample(_one, deformable_groups=2),
            sample(_one, "Offset [2 6 3 3]"),
        ),
        slope=slope(
            "input offset filter d_output" + " mask" * (not _v1),
            "d_input d_offset d_filter" + " d_mask" * (not _v1),
        ),
    )
