"""Sizes: the numbers from which the specs of all values of a program follow."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate, count, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...graph.ops.registry import Spec
from ...strategies.bounded_dict import BoundedDict
from ...strategies.types import to_var_type
from ..host.numbered import packer

Source = tuple[int, bytes]  # a kind, and int64 numbers
_shape_and_type = attrgetter("shape", "dtype")
_FORMS_KNOWN = 1 << 12
_kinds = count()
_widths: dict[int, int] = {}  # how many numbers a source of each kind has


class Sizes(NamedTuple):
    """The ``kinds`` of some sources of sizes, and the ``numbers`` of all of them (int64).

    Loops over 0 and 1 elements have forms of their own: a source with such a size is of another kind.
    """

    kinds: tuple[int, ...]
    numbers: bytes

    @classmethod
    def of(cls, sources: Iterable[Source]) -> Sizes:
        """Return the sizes of these sources."""
        kinds, numbers = list(zip(*sources, strict=True)) or ((), ())
        return cls(kinds, b"".join(numbers))

    @property
    def point(self) -> np.ndarray:
        """The numbers as an array."""
        return np.frombuffer(self.numbers, np.int64)


class Form:
    """The shape and type of an array: its ``spec``, and the ``source`` of its sizes. Alike arrays share one."""

    __slots__ = ("source", "spec")

    def __init__(self, spec: Spec) -> None:
        self.spec, self.source = spec, source_of(spec)


def forms_of(arrays: Iterable[Any]) -> tuple[Form, ...]:
    """Return the forms of arrays. Each round of a loop asks for them."""
    return tuple(map(_forms.__getitem__, map(_shape_and_type, arrays)))


def spans(kinds: Sequence[int]) -> list[int]:
    """Return which numbers of :class:`Sizes` are those of each source, as bits."""
    ends = [0, *accumulate(_widths[kind] for kind in kinds)]
    return [(1 << end) - (1 << begin) for begin, end in pairwise(ends)]


@lru_cache(maxsize=1 << 12)
def source_of(spec: Spec) -> Source:
    """Return the source of a spec: the length of each axis, and their product."""
    shape = spec.shape
    kind = spec.dtype, *[min(n, 2) for n in shape]
    return _kind(kind, len(shape) + 1), packer(len(shape) + 1)(*shape, math.prod(shape))


@lru_cache(maxsize=1 << 12)
def source_of_numbers(numbers: tuple[int, ...] | None) -> Source:
    """Return the source of numbers that an op takes from elements; None: it takes none in this step."""
    if numbers is None:
        return _kind(None, 0), b""
    width = len(numbers)
    return _kind((None, *[min(n, 2) for n in numbers]), width), packer(width)(*numbers)


def joined(sources: Iterable[Source]) -> Source:
    """Return one source that has the numbers of several."""
    kinds, numbers = Sizes.of([(_kind(Source, 0), b""), *sources])
    return _kind((Source, kinds), sum(_widths[kind] for kind in kinds)), numbers


@cache
def _kind(key: Hashable, width: int) -> int:
    """Return the number of a kind of sources, the same for the same key: its hash is cheap."""
    number = next(_kinds)
    _widths[number] = width
    return number


class _Forms(BoundedDict[tuple[tuple[int, ...], Any], Form]):
    """Forms by shape and type."""

    def __missing__(self, key: tuple[tuple[int, ...], Any]) -> Form:
        shape, dtype = key
        form = self[key] = Form(Spec(tuple(shape), to_var_type(dtype)))
        return form


_forms = _Forms(_FORMS_KNOWN)
