"""Kernels that draw numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...device.device import Device
from ...device.philox import Stream
from ..registry import Step, kernel


def drawn_with(dev: Device, seed: int) -> Stream:
    """Return the numbers of an op that fills a tensor: the same in each step if it has a seed of its own."""
    return Stream(dev, seed, per_row=False, every_step=not seed)


@kernel("uniform_random")
def uniform_random(
    dev: Device,
    out: Any,
    *,
    min: float,
    max: float,
    seed: int,
    diag_num: int,
    diag_step: int,
    diag_val: float,
) -> Step:
    """Numbers between two; ``diag_num`` of them, ``diag_step`` + 1 apart, are ``diag_val``."""
    stream = drawn_with(dev, seed)

    def draw() -> None:
        values = stream.uniform(out.shape, out.dtype)
        values *= max - min
        values += min
        values.reshape(-1)[: diag_num * (diag_step + 1) : diag_step + 1] = diag_val
        out[...] = dev.xp.asarray(values)

    return draw


@kernel("gaussian_random")
def gaussian_random(dev: Device, out: Any, *, mean: float, std: float, seed: int) -> Step:
    stream = drawn_with(dev, seed)

    def draw() -> None:
        out[...] = dev.xp.asarray(stream.normal(out.shape) * std + mean)

    return draw


@kernel("truncated_gaussian_random")
def truncated_gaussian_random(dev: Device, out: Any, *, mean: float, std: float, seed: int) -> Step:
    stream = drawn_with(dev, seed)

    def draw() -> None:
        out[...] = dev.xp.asarray(stream.truncated_normal(out.shape) * std + mean)

    return draw


@kernel("dropout")
def dropout(
    dev: Device,
    x: Any,
    out: Any,
    mask: Any,
    *,
    dropout_prob: float,
    is_test: bool,
    fix_seed: bool,
    seed: int,
    dropout_implementation: str,
) -> list[Step]:
    """A kept element is x, or x / (1 - p) with upscale_in_train; Srivastava et al., JMLR 15 (2014)."""
    xp = dev.xp
    upscale = dropout_implementation == "upscale_in_train"
    keep = 1.0 - dropout_prob
    if is_test:
        factor = 1.0 if upscale else keep
        fill = [] if mask is None else [partial(mask.fill, 1)]
        return [*fill, partial(xp.multiply, x, factor, out)]
    stream = Stream(dev, seed, per_row=True, every_step=not fix_seed)
    mask = dev.scratch(x.shape, np.uint8) if mask is None else mask
    factor = (1.0 / keep if keep else 0.0) if upscale else 1.0

    def draw() -> None:
        kept = stream.below(x.shape, keep)
        xp.copyto(mask, xp.asarray(kept))

    # where, not a product: a dropped inf or nan is gone
    dropped = dev.scratch(x.shape, np.bool_)
    return [
        draw,
        partial(xp.multiply, x, factor, out),
        partial(xp.equal, mask, 0, dropped),
        partial(xp.copyto, out, 0, where=dropped),
    ]


@kernel("dropout_grad")
def dropout_grad(
    dev: Device,
    mask: Any,
    d_out: Any,
    d_x: Any,
    *,
    dropout_prob: float,
    is_test: bool,
    dropout_implementation: str,
) -> list[Step]:
    if d_x is None:
        return []
    upscale = dropout_implementation == "upscale_in_train"
    keep = 1.0 - dropout_prob
    factor = (1.0 / keep if keep else 0.0) if upscale and not is_test else 1.0
    if is_test and not upscale:
        factor = keep
    return [
        partial(dev.xp.multiply, d_out, mask, d_x),
        *([] if factor == 1.0 else [partial(dev.xp.multiply, d_x, factor, d_x)]),
    ]
