"""Kernels that draw numbers."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops import random as ops
from ...device.device import Device
from ...device.philox import Stream
from ..registry import Step, kernel


def drawn_with(dev: Device, seed: int) -> Stream:
    """Return the numbers of an op that fills a tensor: the same in each step if it has a seed of its own."""
    return Stream(dev, seed, per_row=False, every_step=not seed)


@kernel("uniform_random", "uniform_random_at")
def uniform_random(dev: Device, a: ops.UniformRandom) -> Step:
    """Numbers between two; ``diag_num`` of them, ``diag_step`` + 1 apart, are ``diag_val``."""
    stream = drawn_with(dev, a.seed)

    def draw() -> None:
        values = stream.uniform(a.out.shape, a.out.dtype)
        values *= a.max - a.min
        values += a.min
        values.reshape(-1)[: a.diag_num * (a.diag_step + 1) : a.diag_step + 1] = a.diag_val
        a.out[...] = dev.xp.asarray(values)

    return draw


@kernel("gaussian_random", "gaussian_random_at")
def gaussian_random(dev: Device, a: ops.GaussianRandom) -> Step:
    stream = drawn_with(dev, a.seed)

    def draw() -> None:
        a.out[...] = dev.xp.asarray(stream.normal(a.out.shape) * a.std + a.mean)

    return draw


@kernel("truncated_gaussian_random")
def truncated_gaussian_random(dev: Device, a: ops.TruncatedGaussianRandom) -> Step:
    stream = drawn_with(dev, a.seed)

    def draw() -> None:
        a.out[...] = dev.xp.asarray(stream.truncated_normal(a.out.shape) * a.std + a.mean)

    return draw


@kernel("dropout")
def dropout(dev: Device, a: ops.Dropout) -> list[Step]:
    """A kept element is x, or x / (1 - p) with upscale_in_train; Srivastava et al., JMLR 15 (2014)."""
    xp = dev.xp
    factor = ops.factor_of(a.dropout_prob, a.is_test, a.dropout_implementation)
    if a.is_test:
        fill = [] if a.mask is None else [partial(a.mask.fill, 1)]
        return [*fill, partial(xp.multiply, a.x, factor, a.out)]
    stream = Stream(dev, a.seed, per_row=True, every_step=not a.fix_seed)
    mask = dev.array_or_scratch(a.mask, a.x.shape, np.uint8)

    def draw() -> None:
        xp.copyto(mask, xp.asarray(stream.below(a.x.shape, 1.0 - a.dropout_prob)))

    # where, not a product: a dropped inf or nan is gone
    dropped = dev.scratch(a.x.shape, np.bool_)
    return [
        draw,
        partial(xp.multiply, a.x, factor, a.out),
        partial(xp.equal, mask, 0, dropped),
        partial(xp.copyto, a.out, 0, where=dropped),
    ]
