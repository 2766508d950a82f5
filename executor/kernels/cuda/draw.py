"""Integers, choices and numbers for the samples of a batch, drawn by the GPU as the host would."""

from __future__ import annotations

import math

from ....graph.ops.draw import GaussianLike, Randint, UniformLike
from ....graph.ops.operands import Unary
from ...codegen.cuda_random import Place, bind_draws
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.draw import of_samples, rows_first
from ..array.random import drawn_with
from .random import drawn_normal, drawn_uniform, no_diagonal
from .support import cuda, floating

_INTEGER = "out = ({kind})(low + (long long)((w0 * span) >> 32));"
_BELOW = "out = element<{kind}>((double)w0 * 0x1p-32 < (double)wide(x) ? 1 : 0);"


@cuda("randint", "randint_at")
def randint(dev: Device, a: Randint) -> list[Step]:
    """A word's share of the range."""
    place = Place("out", a.out)
    numbers = [("unsigned long long span", a.high - a.low), ("long long low", a.low)]
    stream = drawn_with(dev, a.seed)
    return bind_draws(dev, stream, [place], _INTEGER.format(kind=place.kind), numbers, sample=0)


@cuda("bernoulli", takes=floating)
def bernoulli(dev: Device, a: Unary) -> list[Step]:
    """Ones where a number below 1 lies below x."""
    places = [Place("x", a.x, written=False), Place("out", a.out)]
    text = _BELOW.format(kind=places[1].kind)
    return bind_draws(dev, of_samples(dev), places, text, sample=math.prod(a.x.shape[1:]))


@cuda("uniform_random_batch_size_like", takes=no_diagonal)
def uniform_like(dev: Device, a: UniformLike) -> list[Step]:
    """``uniform_random``, for the samples of a batch."""
    out = rows_first(a)
    row = math.prod(out.shape[1:])
    return drawn_uniform(dev, of_samples(dev, a.seed), out, a.min, a.max, row)


@cuda("gaussian_random_batch_size_like", takes=floating)
def gaussian_like(dev: Device, a: GaussianLike) -> list[Step]:
    """``gaussian_random``, for the samples of a batch."""
    out = rows_first(a)
    row = math.prod(out.shape[1:])
    return drawn_normal(dev, of_samples(dev, a.seed), out, a.mean, a.std, row)
