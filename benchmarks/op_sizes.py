"""How the sizes of drawn cases are drawn."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.op_cases import Case

WORK = 3e8  # multiplications of a case, at most
ELEMENTS = 20_000, 2_000_000  # of its largest operand: below, what is timed is how an op is called

Rng = np.random.Generator
Drawn = tuple[Case, list[int], float]  # sizes of the operands that count, and multiplications


def about(rng: Rng, low: int, high: int) -> int:
    """Draw a size, small ones as often as large ones; every other is a multiple of eight, or a power of two."""
    size = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    if rng.random() < 0.5 and size >= 8:
        size -= size % 8
    return int(size)


def shape_of(rng: Rng) -> list[int]:
    """Draw a shape of two to four dimensions."""
    rank = int(rng.integers(2, 5))
    return [about(rng, 1, int(ELEMENTS[1] ** (1.2 / rank))) for _ in range(rank)]
