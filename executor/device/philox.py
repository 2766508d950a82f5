"""Counter-based random numbers: Philox4x64-10 (Salmon et al., SC 2011).

The numbers depend on the key (seed, name of the variable written) and the counter (step, element), so a step
can be replayed, and a sample's mask does not depend on the replica that holds the sample. The stream of a step
is 64-bit words cut into 32-bit ones, low half first; element e is the e-th of them. A GPU that computes the
same blocks gets the same numbers; until one does, they are drawn on the host and copied.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from ...graph.program.role import original_name
from .device import Device

_WORDS = 8  # 32-bit words in one counter's block


class Stream:
    """The numbers of one op. ``per_row``: element indices count from the replica's first sample.

    ``seed`` 0 means the program's. Without ``every_step`` the numbers are the same in each step.
    ``name``: draw the numbers of the op that writes this variable, not the op's own.
    """

    def __init__(
        self, dev: Device, seed: int, *, per_row: bool, every_step: bool = True, name: str = ""
    ) -> None:
        self.clock = dev.clock
        self.per_row = per_row
        self.every_step = every_step
        drawn = original_name(name or dev.output)  # recomputation draws the same again
        digest = hashlib.blake2b(drawn.encode(), digest_size=8).digest()
        own = seed if seed else dev.seed
        self.key = np.array([own & (2**64 - 1), int.from_bytes(digest, "little")], np.uint64)

    def words(self, shape: tuple[int, ...], draws: int = 1) -> np.ndarray:
        """Return 32-bit words (uint32), ``draws`` an element: [draws, *shape]."""
        count, row = math.prod(shape), math.prod(shape[1:])
        columns = [self._span(0, count, row, draw).reshape(shape) for draw in range(draws)]
        return np.stack(columns) if draws > 1 else columns[0][None]

    def _span(self, start: int, count: int, row: int, draw: int = 0) -> np.ndarray:
        """Return the words of ``count`` elements from ``start`` of the replica's; a sample has ``row``."""
        block, skipped, step = self.place(row, start)
        counter = np.array([block, draw, step, 0], np.uint64)
        source = np.random.Philox(counter=counter, key=self.key)
        blocks = -(-(skipped + count) // _WORDS)
        words = source.random_raw(blocks * 4).astype("<u8").view("<u4")
        return words[skipped : skipped + count]

    def place(self, row: int, start: int = 0) -> tuple[int, int, int]:
        """Return where the words of elements from ``start`` begin now: block, words to skip in it, step."""
        first = start + (self.clock.row * row if self.per_row else 0)
        return *divmod(first, _WORDS), self.clock.step if self.every_step else 0

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return floats in [0, 1): the word's upper 24 bits (float32), or all 32 (float64)."""
        (words,) = self.words(shape)
        if dtype == np.float64:
            return words * 2.0**-32
        return ((words >> np.uint32(8)) * np.float32(2.0**-24)).astype(dtype)

    def below(self, shape: tuple[int, ...], probability: float) -> np.ndarray:
        """Return booleans that are true with ``probability``."""
        return self.part_below(0, shape, math.prod(shape[1:]), probability)

    def part_below(
        self, start: int, shape: tuple[int, ...], row: int, probability: float
    ) -> np.ndarray:
        """Return :meth:`below` for the elements from ``start``; a sample has ``row`` elements."""
        if probability >= 1.0:
            return np.ones(shape, bool)
        words = self._span(start, math.prod(shape), row).reshape(shape)
        return words < np.uint32(probability * 2**32)

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return float64 standard normals (Box and Muller, 1958)."""
        radius, angle = self.words(shape, draws=2)
        return np.sqrt(-2.0 * np.log((radius + 1.0) * 2.0**-32)) * np.cos(
            angle * (2.0 * np.pi * 2.0**-32)
        )

    def truncated_normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return float64 standard normals within two deviations: those outside are drawn again."""
        count = math.prod(shape)
        numbers = self.normal((2 * count + 16,))
        inside = numbers[np.abs(numbers) <= 2.0][:count]  # 95 % are, so twice as many suffice
        assert len(inside) == count
        return inside.reshape(shape)
