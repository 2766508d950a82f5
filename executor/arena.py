"""Memory for a plan's temporaries: one block, whose pages stay while temporaries come and go."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from ..graph.ops.registry import Spec
from ..strategies.types import to_numpy
from .device import ALIGNMENT, aligned_bytes


class Arena:
    """Hands out arrays from one block; ``count`` and ``nbytes`` tell what a step leaves alive."""

    def __init__(self, xp: ModuleType, specs: dict[int, Spec]) -> None:
        sizes = {
            key: math.prod(spec.shape) * to_numpy(spec.dtype).itemsize
            for key, spec in specs.items()
        }
        offsets: dict[int, int] = {}
        total = 0
        for key, size in sizes.items():
            offsets[key] = total
            total += -(-size // ALIGNMENT) * ALIGNMENT
        block = aligned_bytes(xp, total)
        self.count = len(specs)
        self.nbytes = sum(sizes.values())
        self.arrays: dict[int, Any] = {
            key: block[offsets[key] : offsets[key] + sizes[key]]
            .view(to_numpy(spec.dtype))
            .reshape(spec.shape)
            for key, spec in specs.items()
        }


def view(buffer: Any, offset: int, spec: Spec) -> tuple[Any, int]:
    """Return the array of ``spec`` at ``offset`` of a byte buffer, and the offset behind it."""
    size = math.prod(spec.shape) * to_numpy(spec.dtype).itemsize
    return buffer[offset : offset + size].view(to_numpy(spec.dtype)).reshape(
        spec.shape
    ), offset + size


def bytes_of(specs: list[Spec]) -> int:
    """Return the bytes that arrays of these specs take, side by side."""
    return sum(math.prod(spec.shape) * np.dtype(to_numpy(spec.dtype)).itemsize for spec in specs)
