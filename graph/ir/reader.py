"""Read a Program into a Graph: every write becomes a value of its own, and branches become choices.

Paddle's schedules and ``layers.cond`` branch by ``conditional_block``. Its body is read into the graph as ops
like any others; a write to a variable around it becomes a ``where`` between the new value and the old one
(if-conversion: Allen, Kennedy, Porterfield and Warren, "Conversion of control dependence to data dependence",
POPL 1983). Both sides are computed in every step, which suits bodies of a few small ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from ...strategies.errors import InvalidValue, Unsupported
from ...strategies.types import VarType
from ..ops.collective import COLLECTIVES
from ..ops.python_function import PY_FUNC
from ..ops.registry import Spec
from ..program.formats.executable import (
    CONDITIONAL_BLOCK,
    SELECT_INPUT,
    computed_attributes,
    computed_ops,
)
from ..program.known import resolve_numbers
from ..program.operator import Operator
from ..program.program import Block, Program
from ..program.role import DEVICE, EMPTY_VAR, NAMESCOPE, ROLE, ROLE_VAR
from ..program.variable import Variable
from .graph import FEED, STATE, TEMP, Graph, Node, Value

Values = Mapping[str, tuple[Value | None, ...]]


def from_program(program: Program, feed_names: Sequence[str]) -> Graph:
    """Return block 0 of a program as a graph in which ``feed_names`` arrive with each step.

    The program is only read. ``feed`` and ``fetch`` ops of a loaded model are left out: the caller says both.

    Raises:
        Unsupported: an op is not built, or cannot stand in a branch.
    """
    return _Reader(program, feed_names).read()


class _Reader:
    """Follows the program's ops in order and gives every write its own value."""

    def __init__(self, program: Program, feed_names: Sequence[str]) -> None:
        self.block = program.global_block()
        self.current: dict[str, Value] = {}
        self.body: Block | None = None  # the branch that is being read
        self.feeds = tuple(self._value(self.block.var(name), FEED) for name in feed_names)

    def read(self) -> Graph:
        stores = tuple(self._store(value) for value in self.feeds if self._persistable(value))
        nodes = (*stores, *self._nodes(self.block))
        for name, variable in self.block.vars.items():
            if name not in self.current and variable.persistable and variable.shape is not None:
                self._value(variable, STATE)
        return Graph(nodes, self.feeds, dict(self.current))

    def _persistable(self, value: Value) -> bool:
        return self.block.var(value.name).persistable

    def _store(self, fed: Value) -> Node:
        """Return the node that stores a fed persistable's value for later steps."""
        state = self._value(self.block.var(fed.name), STATE, version=1)
        return Node("assign", {"X": (fed,)}, {"Out": (state,)}, {}, 0, f"feed {fed.name!r}")

    def _nodes(self, block: Block) -> Iterator[Node]:
        for op in computed_ops(block.ops):
            if op.type == CONDITIONAL_BLOCK:
                yield from self._branch(op)
            elif op.type == SELECT_INPUT:
                yield from self._selection(op)
            else:
                yield self._node(op)

    def _node(self, op: Operator) -> Node:
        operands, numbers = resolve_numbers(op)
        attrs = computed_attributes(op, numbers)
        inputs = {
            slot: tuple(self._read(op.block, name) for name in names)
            for slot, names in operands.items()
            if names
        }
        outputs = {
            slot: tuple(self._write(op.block, name) for name in names)
            for slot, names in op.outputs.items()
            if names
        }
        pairs = op.attrs.get(ROLE_VAR) or []
        written = {v.name: v for values in outputs.values() for v in values if v is not None}
        grads = tuple(
            (p, written[g]) for p, g in zip(pairs[::2], pairs[1::2], strict=True) if g in written
        )
        return _node(op, op.type, inputs, outputs, attrs, grads)

    def _branch(self, op: Operator) -> Iterator[Node]:
        """Read the body of a ``conditional_block``, then choose the values of the variables around it."""
        block, condition = op.attrs.get("sub_block"), op.inputs.get("Cond", [])
        if not isinstance(block, Block) or not op.attrs.get("is_scalar_condition"):
            raise Unsupported(
                f"{op.type}: branches that each take some rows of a batch (IfElse) are not built. {op.where}"
            )
        taken = self._read(op.block, condition[0]) if len(condition) == 1 else None
        if taken is None or prod(taken.spec.shape) != 1:
            raise Unsupported(
                f"{op.type}: takes one condition of one element, got {condition}. {op.where}"
            )
        _check_body(op, block)
        outer_values, outer_body = dict(self.current), self.body
        self.body = block
        yield from self._nodes(block)
        inner_values = self.current
        read = {name: value for name, value in inner_values.items() if value.kind != TEMP}
        self.body, self.current = outer_body, {**read, **outer_values}
        for name in dict.fromkeys(op.outputs.get("Out", ())):
            value = inner_values.get(name)
            if value is None or value is outer_values.get(name):
                continue
            if name in outer_values or op.block.var_recursive(name).persistable:
                old = self._read(op.block, name)
                inputs = {"Condition": (taken,), "X": (value,), "Y": (old,)}
                yield _node(op, "where", inputs, {"Out": (self._write(op.block, name),)})
            else:  # Nothing may read it unless the branch is taken.
                yield _node(op, "assign", {"X": (value,)}, {"Out": (self._write(op.block, name),)})

    def _selection(self, op: Operator) -> Iterator[Node]:
        """Choose between the results of two branches by a mask of one number, 0 or 1."""
        names, mask = op.inputs.get("X", []), op.inputs.get("Mask", [])
        if len(names) != 2 or len(mask) != 1:
            raise Unsupported(f"{op.type}: takes two variables and one mask. {op.where}")
        number = self._read(op.block, mask[0])
        if number is None:
            raise Unsupported(f"{op.type}: has no mask. {op.where}")
        condition = Value(
            f"{number.name}@{number.version}@BOOL", Spec(number.spec.shape, VarType.BOOL)
        )
        attrs = {"in_dtype": int(number.spec.dtype), "out_dtype": int(VarType.BOOL)}
        yield _node(op, "cast", {"X": (number,)}, {"Out": (condition,)}, attrs)
        no, yes = (self._read(op.block, name) for name in names)
        outputs = {"Out": (self._write(op.block, op.outputs["Out"][0]),)}
        yield _node(op, "where", {"Condition": (condition,), "X": (yes,), "Y": (no,)}, outputs)

    def _read(self, block: Block, name: str) -> Value | None:
        if name == EMPTY_VAR:
            return None
        if name not in self.current:
            variable = block.var_recursive(name)
            # A temporary that nothing wrote becomes a feed the caller forgot; checks name it before the run.
            self._value(variable, STATE if variable.persistable else FEED)
        return self.current[name]

    def _write(self, block: Block, name: str) -> Value | None:
        if name == EMPTY_VAR:
            return None
        variable = block.var_recursive(name)
        old = self.current.get(name)
        if self.body is not None:
            inside = f"{name}@BLOCK{self.body.idx}"
            version = old.version + 1 if old is not None and old.name == inside else 0
            return self._value(variable, TEMP, version, inside)
        kind = STATE if variable.persistable else TEMP
        if old is None:
            return self._value(variable, kind, version=1 if kind == STATE else 0)
        return self._value(variable, kind, version=old.version + 1)

    def _value(self, variable: Variable, kind: str, version: int = 0, name: str = "") -> Value:
        if variable.shape is None or variable.dtype is None:
            raise InvalidValue(
                f"variable {variable.name!r} cannot be computed with: the program lacks its shape or element "
                f"type."
            )
        spec = Spec(variable.shape, variable.dtype)
        value = Value(name or variable.name, spec, kind, version)
        self.current[variable.name] = value
        return value


def _node(
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


def _check_body(op: Operator, block: Block) -> None:
    """Refuse ops with effects beside their results: a branch is computed whether it is taken or not.

    Raises:
        Unsupported: the body calls Python or holds a collective.
    """
    for body_op in block.ops:
        if body_op.type == PY_FUNC or body_op.type in COLLECTIVES:
            raise Unsupported(
                f"{op.type}: {body_op.type!r} cannot stand in a branch, whose both sides are computed. "
                f"{body_op.where or op.where}"
            )
