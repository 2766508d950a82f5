"""Which sequences (LoD) the results of an op have.

A rule is asked twice with the same words: while a program is built, when only the number of levels is known,
and when its graph is read, when a level is a value of the graph that holds offsets. So it computes nothing
itself: it passes levels on, or names an op that computes one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from .operands import Slot

Level = TypeVar("Level")


class Lods(ABC, Generic[Level]):
    """One op and the levels of its operands, outermost first, as a rule for sequences sees them."""

    type: str
    attrs: Mapping[str, Any]
    input_slots: Sequence[Slot]
    output_slots: Sequence[Slot]

    @abstractmethod
    def of(self, slot: str, position: int = 0) -> tuple[Level, ...]:
        """Return the levels of a variable in an input slot; none if it has no sequences, or is not there."""

    @abstractmethod
    def uses(self, slot: str) -> int:
        """Return how many variables stand in an input slot."""

    @abstractmethod
    def as_long(self, slot: str, result: str) -> bool:
        """Tell whether the first dimensions of an operand and of a result are the same, as far as is known."""

    @abstractmethod
    def level(
        self, op: str, inputs: Mapping[str, Sequence[Level]], attrs: Mapping[str, Any] | None = None
    ) -> Level:
        """Return the level that an op computes as its only result."""

    @abstractmethod
    def value(self, slot: str, position: int = 0) -> Level:
        """Return a variable in an input slot, for an op that computes a level from it."""


# Result slot -> the levels of its variables; a list has those of each, where they differ.
LodRule = Callable[[Lods[Any]], Mapping[str, tuple[Any, ...] | list[tuple[Any, ...]]]]


def of_each(
    levels: tuple[Level, ...] | list[tuple[Level, ...]], count: int
) -> list[tuple[Level, ...]]:
    """Return the levels of each of ``count`` variables of a slot, as a rule gives them."""
    return levels if isinstance(levels, list) else [levels] * count


def shared(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """Each result has the sequences of the first operand, if it is as long: the rule of most ops.

    The gradient of an operand has those of the operand.
    """
    levels = {}
    first = next((slot.name for slot in op.input_slots if op.uses(slot.name)), "")
    for slot in op.output_slots:
        source = slot.name.removesuffix("@GRAD")
        source = source if source != slot.name and op.uses(source) else first
        if source and op.as_long(source, slot.name):
            levels[slot.name] = op.of(source)
    return levels


def no_sequences(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """No result has sequences, however long it is."""
    return {}


def like(source: str, *results: str) -> LodRule:
    """Return the rule that some results have the sequences of one operand."""
    return lambda op: {result: op.of(source) for result in results}


def sliced(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """Sequences stay unless they are cut: the rule of ops whose ``axes`` name what they cut."""
    return {} if 0 in op.attrs["axes"] else shared(op)


def joined(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """Operands behind each other along dimension 0 have the sequences of all; else those of the first."""
    if op.attrs["axis"] != 0:
        return shared(op)
    (slot, *_), (result, *_) = op.input_slots, op.output_slots
    operands = [op.of(slot.name, k) for k in range(op.uses(slot.name))]
    depths = {len(levels) for levels in operands}
    if len(depths) > 1 or not all(operands):
        return {}
    levels = zip(*operands, strict=True)
    return {result.name: tuple(op.level("lod_joined", {"X": level}) for level in levels)}
