"""The base of readers of ops that hold blocks: values by name, and what each block computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...strategies.errors import Unsupported
from ..ops.registry import Spec
from ..ops.rules import merge_dims
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import DEVICE, NAMESCOPE, ROLE, ROLE_VAR, grad_name
from .graph import TEMP, Node, Value, ValueMaker
from .sequences import Sequences

Values = Mapping[str, tuple[Value | None, ...]]


class Reading(NamedTuple):
    """The values by slot that an op read and wrote: those its gradient op reads, whatever has their names."""

    op: Operator
    inputs: Values
    outputs: Values


@dataclass(frozen=True)
class Scope:
    """The results of a block, once: values by name, results of inner blocks by scope variable, and readings."""

    values: dict[str, Value]
    scopes: Mapping[str, Any]
    readings: Sequence[Reading] = ()


class BlockReader(ABC):
    """Follows ops in order; ``current`` holds the value of each name.

    ``inside`` is added to the names of a block's results, so that no two steps or branches share one.
    ``scopes`` holds the results of each block, by step, under the variable that stands for it in the program;
    ``arrays`` holds the entries of arrays of tensors, ``levels`` the newest offsets of sequences by name.
    ``unlike`` are values of other shapes than the program declares; results computed from them differ, too.
    ``readings`` are those of this block's ops that read or write names with several values.
    """

    def __init__(self) -> None:
        self.maker = ValueMaker()
        self.sequences = Sequences(self.maker)
        self.levels: dict[str, Value] = {}
        self.current: dict[str, Value] = {}
        self.scopes: dict[str, Any] = {}
        self.arrays: dict[str, tuple[Value | None, ...]] = {}
        self.unlike: set[Value] = set()
        self.inside = ""
        self.readings: list[Reading] = []

    @abstractmethod
    def _nodes(self, block: Block) -> Iterator[Node]:
        """Read the ops of a block."""

    @abstractmethod
    def _read(self, block: Block, name: str) -> Value | None:
        """Return the value of a name that ``block`` sees."""

    @abstractmethod
    def _write(self, block: Block, name: str) -> Value | None:
        """Return a new value for a name that ``block`` sees."""

    @abstractmethod
    def _place(self, op: Operator) -> Value:
        """Return the index of the entry of an array that an op reads or writes."""

    @abstractmethod
    def _forget_levels(self, name: str) -> None:
        """Forget the sequences of a variable that is written again."""

    def _operand(self, op: Operator, slot: str) -> Value:
        """Return the only value that an op reads in a slot.

        Raises:
            Unsupported: it holds none, or several.
        """
        values = [self._read(op.block, name) for name in op.inputs.get(slot, ())]
        if len(values) != 1 or values[0] is None:
            raise Unsupported(f"{op.type}: takes one variable as {slot}, got {values}. {op.where}")
        return values[0]

    def _value_of(self, op: Operator, name: str) -> Value:
        """Return the value of a name that an op reads, which is a variable."""
        value = self._read(op.block, name)
        assert value is not None, f"{op.type} reads a variable"
        return value

    def _result(self, op: Operator, name: str) -> Value:
        """Return a new value for a name that an op writes, which is a variable."""
        value = self._write(op.block, name)
        assert value is not None, f"{op.type} writes a variable"
        return value

    @contextmanager
    def _body(
        self,
        mark: str,
        values: Mapping[str, Value],
        arrays: Mapping[str, tuple[Value | None, ...]] | None = None,
    ) -> Iterator[None]:
        """Read a block with these values and arrays beside those around it, which it leaves as they are.

        Raises:
            Unsupported: it writes another array that stands around it.
        """
        around, scopes, inside = self.current, self.scopes, self.inside
        outer_arrays, own_arrays = self.arrays, arrays or {}
        self.current, self.scopes = {**around, **values}, dict(scopes)
        readings, self.readings = self.readings, []
        self.arrays = {**outer_arrays, **own_arrays}
        self.inside = inside + mark
        try:
            yield
            for name, entries in outer_arrays.items():
                if name not in own_arrays and self.arrays[name] is not entries:
                    raise Unsupported(
                        f"the array {name!r} cannot be written in a branch or in a step of a recurrent net: "
                        f"which entries it has must be known before the program runs."
                    )
        finally:
            # What it read that outlives steps, or that is fed, is the same around it.
            read = {n: v for n, v in self.current.items() if v.kind != TEMP}
            self.current, self.scopes, self.inside = {**read, **around}, scopes, inside
            self.arrays, self.readings = outer_arrays, readings

    def _left(self, around: Mapping[str, Value], names: Sequence[str] = ()) -> Scope:
        """Return what the body being read computed, and the values that it found for ``names``."""
        own = {n: v for n, v in self.current.items() if around.get(n) is not v or n in names}
        return Scope(own, dict(self.scopes), tuple(self.readings))

    def _go_back(self, scope: Scope) -> None:
        """Have gradient ops find what the ops of a block left."""
        self.scopes |= scope.scopes
        self.readings = list(scope.readings)

    def _new(self, name: str, spec: Spec, kind: str = TEMP) -> Value:
        """Return a value that the program has no variable for."""
        return self.maker.value(f"{name}{self.inside}", spec, kind)

    def _zeros(self, op: Operator, name: str, like: Value) -> Generator[Node, None, Value]:
        """Return zeros like another value."""
        zeros = self._new(name, like.spec)
        yield node_of(op, "fill_zeros_like", {"X": (like,)}, {"Out": (zeros,)})
        return zeros

    def _add_up(
        self, op: Operator, sums: dict[str, Value], names: Mapping[str, str]
    ) -> Iterator[Node]:
        """Add the gradients of operands that a block computed to ``sums``, under the ``names`` of operands."""
        for operand, name in names.items():
            value = self.current.get(grad_name(operand))
            if value is None:
                continue
            if name in sums:
                total = self._new(f"{name}@SUM", value.spec)
                yield node_of(op, "sum", {"X": (sums[name], value)}, {"Out": (total,)})
                value = total
            sums[name] = value

    def _named(self, op: Operator, name: str, value: Value | None, like: Value) -> Iterator[Node]:
        """Have a value go by a name of the program; of none, zeros like another.

        The variable may have been declared for what another op writes to it.
        """
        written = self._write(op.block, name)
        if written is None:
            return
        kind, source = ("fill_zeros_like", like) if value is None else ("assign", value)
        self.current[name] = result = self._with_spec(written, source.spec)
        grads = finished(op, {name: result})
        yield node_of(op, kind, {"X": (source,)}, {"Out": (result,)}, None, grads)

    def _with_spec(self, value: Value, spec: Spec) -> Value:
        """Return a value that has another spec than its variable."""
        result = replace(value, spec=spec)
        pairs = zip(value.spec.shape, spec.shape, strict=False)
        other_rank = len(value.spec.shape) != len(spec.shape)
        if other_rank or any(merge_dims(one, other) is None for one, other in pairs):
            self.unlike.add(result)
        return result

    def _above(self, op: Operator, slot: str) -> dict[str, Value]:
        """Return the gradients of a slot's variables that were computed, by the names they have in a block."""
        pairs = zip(op.inputs.get(slot, ()), op.inputs.get(f"{slot}@GRAD", ()), strict=False)
        return {grad_name(x): self.current[name] for x, name in pairs if name in self.current}

    def _of(self, op: Operator, scope: str) -> Any:
        """Return what the forward op of a gradient op left.

        Raises:
            Unsupported: the program does not hold that op.
        """
        (name,) = op.inputs.get(scope, [""])
        if name not in self.scopes:
            raise Unsupported(
                f"{op.type}: the program does not hold the op whose gradient it is. {op.where}"
            )
        return self.scopes[name]


def finished(op: Operator, written: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """Return those of an op's pairs (parameter, gradient) whose gradient is ``written``, by its name."""
    pairs = op.attrs.get(ROLE_VAR) or []
    return tuple(
        (p, written[g]) for p, g in zip(pairs[::2], pairs[1::2], strict=True) if g in written
    )


def node_of(
    op: Operator,
    type: str,
    inputs: Values,
    outputs: Values,
    attrs: Mapping[str, Any] | None = None,
    grads: tuple[tuple[str, Value], ...] = (),
) -> Node:
    """Return a node that stands for an op of the program."""
    role, scope = int(op.attrs.get(ROLE, 0)), str(op.attrs.get(NAMESCOPE, ""))
    host = op.attrs.get(DEVICE) == "cpu"
    return Node(type, inputs, outputs, attrs or {}, role, op.where, grads, scope=scope, host=host)


def block_of(op: Operator) -> Block:
    """Return the block that an op holds.

    Raises:
        Unsupported: it holds none.
    """
    block = op.attrs.get("sub_block")
    if not isinstance(block, Block):
        raise Unsupported(f"{op.type}: holds no block. {op.where}")
    return block


def begins_with_write(block: Block) -> set[str]:
    """Return the names that a block writes before it reads them, given the block of its gradient ops.

    No gradient goes to what stood there before.
    """
    block = block.program.block(block.forward_block_idx)
    fresh: set[str] = set()
    read: set[str] = set()
    for op in block.ops:
        read.update(op.input_arg_names)
        fresh.update(op.overwritten() - read)
    return fresh
