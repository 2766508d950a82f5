"""Sequences (LoD) in a graph: each level is a value of its own, int64 offsets, beside the value that it cuts.

``x@LOD0`` holds the outermost level of ``x``. It is fed beside ``x``, or computed; nodes whose kernels need
offsets read it like any operand, and what a user fetches is fetched with its levels. Nothing behind the reader
knows of sequences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ..ops.lod import Lods, of_each
from ..ops.operands import LOD_SUFFIX
from ..ops.registry import OPS, Inference, Op
from .graph import Node, Value, ValueMaker

Levels = tuple[Value, ...]
Slots = Mapping[str, Sequence[Value | None]]
Forward = Callable[[Value], Value]

_LEVEL = re.compile(rf"(.+){LOD_SUFFIX}(\d+)")


def level_name(name: str, level: int) -> str:
    """Return the name of the offsets of a variable's sequences at a level; 0 is the outermost."""
    return f"{name}{LOD_SUFFIX}{level}"


def sequence_of(name: str) -> str | None:
    """Return the variable whose offsets have this name, or None."""
    match = _LEVEL.fullmatch(name)
    return match[1] if match else None


class Sequences:
    """The levels of each value of a graph that is being read, and the nodes that compute them."""

    def __init__(self, maker: ValueMaker) -> None:
        self.levels: dict[Value, Levels] = {}
        # By op, operands and attributes: what two variables have alike is computed once
        self.computed: dict[Hashable, Value] = {}
        self.maker = maker

    def feed(self, source: Value, level: Value) -> None:
        """Add a level that is fed, the next one inwards, to a value."""
        self.levels[source] = (*self.levels.get(source, ()), level)

    def read(self, op: Op, inputs: Slots, outputs: Slots, forward: Forward) -> dict[str, Levels]:
        """Return the levels that an op's kernel reads, by slot.

        Of a slot that takes any number of variables it is the last level of each. ``forward`` finds the value
        of which another is the gradient: that has the same sequences.
        """
        several = {slot.name for slot in op.input_slots if slot.duplicable}
        read: dict[str, Levels] = {}
        for slot in op.lod_slots:
            source = slot.name.removesuffix(LOD_SUFFIX)
            values = [v for v in (inputs.get(source) or outputs.get(source, ())) if v is not None]
            levels = [self.levels.get(v) or self.levels.get(forward(v), ()) for v in values]
            if source in several:
                read[slot.name] = tuple(own[-1] for own in levels if own)
            elif levels:
                read[slot.name] = levels[0]
        return {slot: levels for slot, levels in read.items() if levels}

    def write(
        self, op: Op, inputs: Slots, outputs: Slots, attrs: Mapping[str, Any], role: int, where: str
    ) -> tuple[list[Node], dict[str, Value]]:
        """Note the levels of an op's results; return the nodes that compute some, and all levels by name."""
        lods = _GraphLods(self, op, inputs, outputs, attrs, role, where)
        by_name: dict[str, Value] = {}
        for slot, rule in op.lod(lods).items():
            values = outputs.get(slot, ())
            for value, levels in zip(values, of_each(rule, len(values)), strict=False):
                if value is not None and levels:
                    self.levels[value] = levels
                    by_name |= {level_name(value.name, k): v for k, v in enumerate(levels)}
        return lods.nodes, by_name


class _GraphLods(Lods[Value]):
    """The levels of one op's values."""

    def __init__(
        self,
        sequences: Sequences,
        op: Op,
        inputs: Slots,
        outputs: Slots,
        attrs: Mapping[str, Any],
        role: int,
        where: str,
    ) -> None:
        self._sequences, self._role, self._where = sequences, role, where
        self._inputs, self._outputs, self.attrs = inputs, outputs, attrs
        self.type, self.input_slots, self.output_slots = op.type, op.input_slots, op.output_slots
        self.nodes: list[Node] = []

    def of(self, slot: str, position: int = 0) -> Levels:
        """Return the levels of what an input slot reads."""
        values = self._inputs.get(slot, ())
        value = values[position] if position < len(values) else None
        return () if value is None else self._sequences.levels.get(value, ())

    def uses(self, slot: str) -> int:
        """Return how many variables stand in an input slot."""
        return len(self._inputs.get(slot, ()))

    def as_long(self, slot: str, result: str) -> bool:
        """Compare the declared shapes; a step tells where unknown sizes differ.

        Files of Paddle have no sizes, or a size of 0, for what a beam search found and what is made of that.
        """
        pair = (*self._inputs.get(slot, ())[:1], *self._outputs.get(result, ())[:1])
        shapes = [value.spec.shape for value in pair if value is not None]
        if len(shapes) < 2:
            return False
        rows, others = (shape[0] if shape and shape[0] else None for shape in shapes)
        return rows == others or (rows is None and others == -1)

    def level(
        self, op: str, inputs: Mapping[str, Sequence[Value]], attrs: Mapping[str, Any] | None = None
    ) -> Value:
        """Return a level that a node computes: of an earlier op, or one that is appended."""
        slot = OPS[op].output_slots[0].name
        operands = {slot: tuple(values) for slot, values in inputs.items() if values}
        values = {**OPS[op].attrs, **(attrs or {})}
        key = op, tuple(operands.items()), repr(values)
        if key in self._sequences.computed:
            return self._sequences.computed[key]
        (name, *_) = (v.name for v in self._outputs_in_use())
        name = f"{name}{LOD_SUFFIX}"
        read = {slot: [value.spec for value in group] for slot, group in operands.items()}
        (spec,) = OPS[op].infer(Inference(OPS[op], read, values, where=self._where))[slot]
        value = self._sequences.maker.value(name, spec)
        self.nodes.append(Node(op, operands, {slot: (value,)}, values, self._role, self._where))
        self._sequences.computed[key] = value
        return value

    def value(self, slot: str, position: int = 0) -> Value:
        """Return one of the values that an input slot reads."""
        return [value for value in self._inputs[slot] if value is not None][position]

    def _outputs_in_use(self) -> list[Value]:
        return [value for values in self._outputs.values() for value in values if value is not None]
