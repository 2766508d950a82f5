"""Cuts variables by rows, so that servers share them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class VarBlock:
    """A part of a variable: which one, and how many elements it has."""

    name: str
    number: int
    elements: int

    def __str__(self) -> str:
        return f"{self.name}:{self.number}:{self.elements}"


def row_width(shape: Sequence[int]) -> int:
    """Return how many elements a row has: all dimensions but the first."""
    return math.prod(shape[1:])


def part_sizes(shape: Sequence[int], slice_count: int, min_block_size: int) -> list[int]:
    """Return the elements of each part: whole rows, at most ``slice_count`` parts, none much too small."""
    elements = math.prod(shape)
    count = min(slice_count, max(1, elements // min_block_size))
    size = math.ceil(elements / count)
    if len(shape) >= 2:
        width = row_width(shape)
        size = math.ceil(size / width) * width
    return [min(size, elements - begin) for begin in range(0, elements, size)]


def slice_variable(
    var_list: Iterable[Any], slice_count: int, min_block_size: int
) -> list[VarBlock]:
    """Return the parts of variables of known shapes; each prints as ``name:number:elements``."""
    return [
        VarBlock(variable.name, number, size)
        for variable in var_list
        for number, size in enumerate(part_sizes(variable.shape, slice_count, min_block_size))
    ]
