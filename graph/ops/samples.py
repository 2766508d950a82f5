"""Example operands that a declaration brings along for the conformance suite.

A text tells slots and sizes, as a line of a shape rule does (``shapes.py``)::

    sample("X [3 4], Label 0:5 [3 1], Rate 0.1:2.0 [1], Terms* [3] [4], X@LOD [2 1]", axis=1)

Elements are normal, or as the word before the sizes says: ``0:5`` are integers below 5, ``0.1:2.0`` floats in
between; a word of ``_KINDS`` names a function of this module. ``table [1 2; 3 4]`` are these numbers, in rows
if there is a semicolon. A slot that takes any number of variables has a star; of ``@LOD`` brackets hold the
lengths of sequences, a level each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Draw:
    """An array to draw: ``kind`` is normal, uniform (``low`` to ``high``), distribution, integers or bool.

    ``definite`` matrices are symmetric, with eigenvalues of 1 and more.

    ``special`` is a normal array that begins with nan, inf and -inf.

    ``away_from`` lists values near which an element is moved off by 0.1 (kinks have no gradient).

    ``single`` is a normal array of float32, whatever the type of the other floats.

    ``offsets`` and ``lengths`` are those of sequences of these ``lengths``, a ``table`` of these ``numbers``.
    """

    shape: tuple[int, ...]
    kind: str = "normal"
    low: float = 0.0
    high: float = 1.0
    away_from: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    numbers: Any = ()

    def array(self, rng: np.random.Generator, dtype: Any) -> np.ndarray:
        """Return the array; ``dtype`` applies to the kinds that make floats."""
        if self.kind == "offsets":
            return np.cumsum([0, *self.lengths], dtype=np.int64)
        if self.kind == "table":
            return np.array(
                self.numbers, dtype if isinstance(np.ravel(self.numbers)[0], float) else np.int64
            )
        if self.kind == "lengths":
            return np.array(self.lengths, np.int64).reshape(self.shape)
        if self.kind == "integers":
            return rng.integers(int(self.low), int(self.high), self.shape).astype(np.int64)
        if self.kind == "bool":
            return rng.random(self.shape) < 0.5
        if self.kind in ("uniform", "distribution"):
            values = rng.uniform(self.low, self.high, self.shape)
            if self.kind == "distribution":
                values /= values.sum(-1, keepdims=True)
        else:
            values = rng.standard_normal(self.shape)
        if self.kind == "definite":
            values = values @ values.swapaxes(-1, -2) + np.eye(self.shape[-1])
        if self.kind == "special":
            values.flat[:3] = np.nan, np.inf, -np.inf
        for kink in self.away_from:
            values = np.where(np.abs(values - kink) < 0.1, kink + 0.2, values)
        return np.asarray(values, np.float32 if self.kind == "single" else dtype)


def normal(*shape: int, away_from: tuple[float, ...] = ()) -> Draw:
    """Standard normal floats."""
    return Draw(shape, "normal", away_from=away_from)


def single(*shape: int) -> Draw:
    """Standard normal float32, of an operand that has no other type."""
    return Draw(shape, "single")


def definite(*shape: int) -> Draw:
    """Symmetric positive definite matrices [..., N, N]."""
    return Draw(shape, "definite")


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Draw:
    """Floats between ``low`` and ``high``."""
    return Draw(shape, "uniform", low, high)


def distribution(*shape: int) -> Draw:
    """Positive floats that sum to 1 along the last dimension."""
    return Draw(shape, "distribution", 0.1, 1.0)


def integers(*shape: int, low: int = 0, high: int) -> Draw:
    """int64 from ``low`` up to but without ``high``."""
    return Draw(shape, "integers", low, high)


def offsets(*lengths: int) -> Draw:
    """Return the offsets of sequences of these lengths, int64."""
    return Draw((len(lengths) + 1,), "offsets", lengths=lengths)


def lengths(*lengths: int) -> Draw:
    """Return lengths of sequences, int64."""
    return Draw((len(lengths),), "lengths", lengths=lengths)


def table(numbers: Any) -> Draw:
    """These numbers: floats, or int64."""
    return Draw(np.shape(numbers), "table", numbers=numbers)


def booleans(*shape: int) -> Draw:
    """True and false, evenly."""
    return Draw(shape, "bool")


# Words before sizes -> how elements are drawn
_KINDS: Mapping[str, Callable[..., Draw]] = {
    "": normal,
    "bool": booleans,
    "definite": definite,
    "distribution": distribution,
    "lengths": lengths,
    "offsets": offsets,
    "single": single,
    "uniform": uniform,
}


def _drawn(kind: str, sizes: str) -> Draw:
    """Return what a word and the sizes behind it stand for."""
    if kind == "table":
        number = float if "." in sizes else int
        rows = [[number(n) for n in row.split()] for row in sizes.split(";") if row.strip()]
        return table(rows if ";" in sizes else rows[0])
    shape = tuple(map(int, sizes.split()))
    low, colon, high = kind.partition(":")
    if not colon:
        return _KINDS[kind](*shape)
    if "." in kind:
        return uniform(*shape, low=float(low), high=float(high))
    return integers(*shape, low=int(low), high=int(high))


def draws(text: str) -> dict[str, Any]:
    """Return operands by slot from a text (see above)."""
    operands: dict[str, Any] = {}
    for operand in text.split(", "):
        head, *brackets = operand.removesuffix("]").split(" [")
        slot, _, kind = head.partition(" ")
        levels = slot.endswith("@LOD")
        several = [_drawn("offsets" if levels else kind, b.rstrip("]")) for b in brackets]
        operands[slot.rstrip("*")] = several if levels or slot.endswith("*") else several[0]
    return operands


@dataclass(frozen=True)
class Sample:
    """One call to try: operands, as texts or by slot (a list where it takes several), and attributes.

    Of operands of one slot the last counts.
    """

    operands: tuple[str | Mapping[str, Any], ...]
    attrs: Mapping[str, Any]

    # Processes import all samples and use none of them.
    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """The operands by slot."""
        inputs: dict[str, Any] = {}
        for part in self.operands:
            inputs |= draws(part) if isinstance(part, str) else part
        return inputs


def sample(*operands: str | Mapping[str, Any], **attrs: Any) -> Sample:
    """Return a sample: ``sample("X [3 4]", axis=1)``, ``sample(_OPERANDS, "Y [4]")``."""
    return Sample(operands, attrs)
