"""Kernels that draw integers, choices and orders.

What a sample gets hangs on its index in the batch, whatever place it is on; ``shuffle_batch`` alone draws an
order of the rows that the place has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import draw as ops
from ....graph.ops.operands import Array, Unary
from ....strategies.errors import InvalidValue
from ...device.device import Device
from ...device.philox import Stream
from ..registry import Step, kernel
from .random import drawn_with
from .time_steps import on_host


def of_samples(dev: Device, seed: int = 0) -> Stream:
    """Return numbers that belong to the samples of the batch."""
    return Stream(dev, seed, per_row=True, every_step=not seed)


@kernel("seed", low=True)
def seed(dev: Device, a: ops.Seed) -> Step:
    if a.seed:
        return partial(a.out.fill, a.seed)
    stream = drawn_with(dev, 0)
    return lambda: a.out.fill(int(stream.words((1,))[0, 0]) >> 1)


@kernel("randint", "randint_at", low=True)
def randint(dev: Device, a: ops.Randint) -> Step:
    """A word's share of the range."""
    stream = drawn_with(dev, a.seed)

    def draw() -> None:
        (words,) = stream.words(a.out.shape)
        a.out[...] = dev.xp.asarray(_shares(words, a.high - a.low) + a.low)

    return draw


def _shares(words: Array, number: int) -> Any:
    """Return integers below a number, as many of 2^32 words for each, but for one."""
    return ((words.astype(np.uint64) * np.uint64(number)) >> np.uint64(32)).astype(np.int64)


def order(stream: Stream, count: int) -> Any:
    """Return the integers below ``count`` in the order of words drawn for them."""
    high, low = stream.words((count,), draws=2)
    return np.argsort((high.astype(np.uint64) << np.uint64(32)) | low, kind="stable")


@kernel("randperm", low=True)
def randperm(dev: Device, a: ops.Randperm) -> Step:
    stream = drawn_with(dev, a.seed)
    return lambda: a.out.__setitem__(..., dev.xp.asarray(order(stream, a.n)))


def rows_first(a: ops.UniformLike | ops.GaussianLike) -> Any:
    """View the result with the dimension of the batch in front."""
    rest = (i for i in range(a.out.ndim) if i != a.output_dim_idx)
    return a.out.transpose(a.output_dim_idx, *rest)


@kernel("uniform_random_batch_size_like")
def uniform_like(dev: Device, a: ops.UniformLike) -> Step:
    """``uniform_random``, for the samples of a batch."""
    stream, out = of_samples(dev, a.seed), rows_first(a)

    def draw() -> None:
        values = stream.uniform(out.shape, a.out.dtype) * (a.max - a.min) + a.min
        out[...] = dev.xp.asarray(values)
        a.out.reshape(-1)[: a.diag_num * (a.diag_step + 1) : a.diag_step + 1] = a.diag_val

    return draw


@kernel("gaussian_random_batch_size_like")
def gaussian_like(dev: Device, a: ops.GaussianLike) -> Step:
    """``gaussian_random``, for the samples of a batch."""
    stream, out = of_samples(dev, a.seed), rows_first(a)

    def draw() -> None:
        out[...] = dev.xp.asarray(stream.normal(out.shape) * a.std + a.mean)

    return draw


def levels_of(dev: Device, a: ops.SamplingId) -> Callable[[], Array]:
    """Return the function that draws a number between ``min`` and ``max`` for each sample: float64 [N, 1]."""
    stream = of_samples(dev, a.seed)
    return lambda: stream.uniform((len(a.x), 1), np.dtype(np.float64)) * (a.max - a.min) + a.min


@kernel("sampling_id")
def sampling_id(dev: Device, a: ops.SamplingId) -> Step:
    """The first index up to which probabilities sum to more than a number between ``min`` and ``max``."""
    levels, last = levels_of(dev, a), a.x.shape[1] - 1

    def draw() -> None:
        sums = np.cumsum(on_host(a.x), axis=1, dtype=np.float64)
        index = np.minimum((sums <= levels()).sum(1), last)
        a.out[...] = dev.xp.asarray(index)

    return draw


@kernel("random_crop", low=True)
def random_crop(dev: Device, a: ops.RandomCrop) -> list[Step]:
    """A window of each sample, at a place of its own."""
    xp, rank = dev.xp, len(a.shape)
    front = a.x.shape[: a.x.ndim - rank]
    stream = of_samples(dev, a.startup_seed)
    room = [n - size + 1 for n, size in zip(a.x.shape[-rank:], a.shape, strict=True)]

    def draw() -> None:
        words = stream.words(front, draws=rank)
        starts = [_shares(word, n) for word, n in zip(words, room, strict=True)]
        for place in np.ndindex(front):
            corner = (slice(s[place], s[place] + n) for s, n in zip(starts, a.shape, strict=True))
            a.out[place] = a.x[(*place, *corner)]

    return [draw, *([] if a.seed_out is None else [partial(xp.copyto, a.seed_out, a.seed)])]


@kernel("shuffle_batch", low=True)
def shuffle_batch(dev: Device, a: ops.ShuffleBatch) -> list[Step]:
    xp, width = dev.xp, a.x.shape[-1]
    rows, out = a.x.reshape(-1, width), a.out.reshape(-1, width)
    stream = drawn_with(dev, a.startup_seed)

    def draw() -> None:
        index = xp.asarray(order(stream, len(rows)))
        out[...] = rows[index]
        if a.shuffle_idx is not None:
            a.shuffle_idx[...] = index

    return [draw, *([] if a.seed_out is None else [partial(xp.copyto, a.seed_out, a.seed)])]


@kernel("shuffle_batch_grad", low=True)
def shuffle_batch_grad(dev: Device, a: ops.ShuffleBatchGrad) -> list[Step]:
    """Each row back to where it came from."""
    width = a.d_out.shape[-1]
    return [
        partial(a.d_x.reshape(-1, width).__setitem__, a.shuffle_idx, a.d_out.reshape(-1, width))
    ]


@kernel("bernoulli")
def bernoulli(dev: Device, a: Unary) -> Step:
    stream = of_samples(dev)

    def draw() -> None:
        (words,) = stream.words(a.x.shape)
        a.out[...] = dev.xp.asarray(words * 2.0**-32) < a.x

    return draw


@kernel("multinomial")
def multinomial(dev: Device, a: ops.Multinomial) -> Step:
    """By sums of the weights; without replacement the first arrivals (Efraimidis and Spirakis, 2006)."""
    vector = a.x.ndim == 1
    out = a.out.reshape(-1, a.num_samples)
    stream = drawn_with(dev, 0) if vector else of_samples(dev)

    def draw() -> None:
        weights = on_host(a.x).reshape(len(out), -1).astype(np.float64)
        usable = (weights > 0).sum(axis=1).min(initial=weights.shape[1])
        if (weights < 0).any() or usable < (1 if a.replacement else a.num_samples):
            raise InvalidValue(
                f"multinomial: the weights in X must not be below 0, and a row has {usable} above it, too "
                f"few for {a.num_samples} samples."
            )
        shape = (len(out), a.num_samples) if a.replacement else weights.shape
        numbers = (stream.words(shape)[0] + 0.5) * 2.0**-32
        if a.replacement:
            sums = np.cumsum(weights, axis=1)
            below = numbers * sums[:, -1:]
            index = np.stack([s.searchsorted(b, "right") for s, b in zip(sums, below, strict=True)])
        else:
            with np.errstate(divide="ignore"):
                arrivals = -np.log(numbers) / weights
            index = np.argsort(arrivals, axis=1, kind="stable")[:, : a.num_samples]
        out[...] = dev.xp.asarray(index)

    return draw
