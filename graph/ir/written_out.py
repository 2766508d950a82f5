"""Read an op into a graph as the ops that compute it: ``cudnn_lstm`` one direction of one layer after another.

These are those of a program of its own, to which ``gradients`` appends those of the gradient op.
``pyramid_hash`` is a lookup in a table, which its gradient op updates: by the gradient over all places.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...strategies.errors import Unsupported
from ..layers import pyramid_hash, stacked_lstm
from ..ops.registry import OPS, Inference, Spec
from ..program import unique_name
from ..program.operator import Operator
from ..program.program import Program, program_guard
from ..program.role import CALLSTACK, DEVICE, NAMESCOPE, ROLE, OpRole, grad_name
from ..program.variable import Variable
from ..training.backward import gradients
from .block_reader import BlockReader, Scope, node_of
from .graph import Node, Value
from .sequences import level_name


class _Way(NamedTuple):
    """What an op reads and computes, the result that its gradient op reads, too, and the layers for it.

    ``cut``: the results that have sequences.
    """

    operands: Sequence[str]
    results: Sequence[str]
    cut: Sequence[str]
    known_by: str
    write_out: Callable[..., Sequence[Variable]]


_WAYS: Mapping[str, _Way] = {
    "cudnn_lstm": _Way(
        ("Input", "InitH", "InitC", "W"),
        ("Out", "last_h", "last_c"),
        (),
        "Out",
        stacked_lstm.write_out,
    ),
    "pyramid_hash": _Way(
        ("X", "W", "WhiteList", "BlackList"),
        ("Out", "DropPos", "X_Temp_Out"),
        ("Out",),
        "DropPos",
        pyramid_hash.write_out,
    ),
}


class _WrittenOut(NamedTuple):
    """The program that computes an op's results, these, and the values that its ops have."""

    way: _Way
    program: Program
    results: Sequence[Variable]
    scope: Scope


class WrittenOut(BlockReader):
    """Reads ``cudnn_lstm``, ``pyramid_hash``, and their gradient ops."""

    def __init__(self) -> None:
        super().__init__()
        self._slopes: dict[str, list[tuple[Value, Operator]]] = {}  # by table, and their ops

    def _write_out(self, op: Operator) -> Iterator[Node]:
        way = _WAYS[op.type]
        operands = {slot: self._operand(op, slot) for slot in way.operands}
        read = {slot: [value.spec] for slot, value in operands.items()}
        names = {slot: [value.name] for slot, value in operands.items()}
        op.declaration.infer(Inference(op.declaration, read, op.attrs, names, op.where))
        program = Program()
        with program_guard(program, Program()), unique_name.guard():
            variables = [
                _variable(program, slot, value.spec, len(self.sequences.levels.get(value, ())))
                for slot, value in operands.items()
            ]
            results = way.write_out(*variables, op.attrs)
        around = dict(self.current)
        (mark,) = op.outputs[way.known_by]
        with self._body(f"@{mark}", operands):
            yield from self._read_as(op, program, 0)
            scope = self._left(around, way.operands)
        for slot, result in zip(way.results, results, strict=True):
            value = scope.values[result.name]
            for name in op.outputs.get(slot, ()):
                yield from self._named(op, name, value, value)
                if slot in way.cut:
                    self._cut_as(name, value)
        self.scopes[mark] = _WrittenOut(way, program, results, scope)

    def _cut_as(self, name: str, value: Value) -> None:
        """Give a variable the sequences of a value."""
        levels = self.sequences.levels.get(value, ())
        self._forget_levels(name)
        if levels:
            self.sequences.levels[self.current[name]] = levels
            self.levels |= {level_name(name, k): level for k, level in enumerate(levels)}

    def _write_out_gradient(self, op: Operator) -> Iterator[Node]:
        """Gradients that were not computed are zeros, which ``gradients`` leaves out."""
        known: _WrittenOut = self._of(op, "Out")
        targets = [slot for slot in known.way.operands if op.outputs.get(grad_name(slot))]
        computed = yield from self._slopes_of(op, known, targets)
        for slot, value in zip(targets, computed, strict=True):
            for name in op.outputs[grad_name(slot)]:
                yield from self._named(op, name, value, known.scope.values[slot])

    def _slopes_of(
        self, op: Operator, known: _WrittenOut, targets: Sequence[str]
    ) -> Generator[Node, None, list[Value | None]]:
        """Yield what computes the gradients of operands, and return them; None: it is zeros."""
        program = known.program.clone()
        block, count = program.global_block(), len(known.program.global_block().ops)
        above = {
            (result.name, grad_name(slot)): self._operand(op, grad_name(slot))
            for slot, result in zip(known.way.results, known.results, strict=True)
            if op.inputs.get(grad_name(slot))
        }
        with program_guard(program, Program()), unique_name.guard("gradient"):
            slopes = gradients(
                [block.var(name) for name, _ in above],
                [block.var(slot) for slot in targets],
                [_variable(program, slope, block.var(name)) for name, slope in above],
            )
        values = {name: value for (_, name), value in above.items()}
        with self._body(f"@{op.inputs[known.way.known_by][0]}", {**known.scope.values, **values}):
            yield from self._read_as(op, program, count)
            return [None if slope is None else self.current[slope.name] for slope in slopes]

    def _read_as(self, op: Operator, program: Program, first: int) -> Iterator[Node]:
        """Read a program's ops from one on; errors name the line that built ``op``."""
        block = program.global_block()
        del block.ops[:first]
        for each in block.ops:
            each.attrs |= {
                k: op.attrs[k] for k in (CALLSTACK, DEVICE, NAMESCOPE, ROLE) if k in op.attrs
            }
        yield from self._nodes(block)

    # -- tables that gradient ops update ------------------------------------------------------------

    def _table_gradient(self, op: Operator) -> Iterator[Node]:
        """Compute the gradient of the table, which is updated when all gradients of it are known."""
        if self.inside:
            raise Unsupported(
                f"{op.type}: updates its table, which cannot be done in a branch or a loop. {op.where}"
            )
        known: _WrittenOut = self._of(op, "DropPos")
        (slope,) = yield from self._slopes_of(op, known, ["W"])
        for name in op.outputs.get("X@GRAD", ()):
            yield from self._named(op, name, None, known.scope.values["X"])
        if slope is not None:
            rated = self._new(slope.name, slope.spec)
            attrs = {**OPS["scale"].attrs, "scale": op.attrs["lr"]}
            yield node_of(op, "scale", {"X": (slope,)}, {"Out": (rated,)}, attrs)
            self._slopes.setdefault(op.inputs["W"][0], []).append((rated, op))

    def _table_updates(self) -> Iterator[Node]:
        """Take the gradients of each table off it, added up over its uses and over all places."""
        for name, pairs in self._slopes.items():
            slopes, op = tuple(slope for slope, _ in pairs), pairs[-1][1]
            table = self.current[name]
            total = self._new(grad_name(name), table.spec)
            grads = ((name, total),)
            yield node_of(op, "sum", {"X": slopes}, {"Out": (total,)}, OPS["sum"].attrs, grads)
            rate = self._new(f"{name}@RATE", Spec((1,), table.spec.dtype))
            constant = {"shape": [1], "dtype": int(table.spec.dtype), "value": 1.0}
            nodes = [
                node_of(
                    op,
                    "fill_constant",
                    {},
                    {"Out": (rate,)},
                    {**OPS["fill_constant"].attrs, **constant},
                )
            ]
            operands = {"Param": (table,), "Grad": (total,), "LearningRate": (rate,)}
            after = self._write(op.block, name)
            nodes.append(node_of(op, "sgd", operands, {"ParamOut": (after,)}, OPS["sgd"].attrs))
            yield from (replace(node, role=int(OpRole.Optimize)) for node in nodes)


def _variable(program: Program, name: str, like: Spec | Variable, levels: int = 0) -> Variable:
    return program.global_block().create_var(
        name=name, shape=like.shape, dtype=like.dtype, lod_level=levels, stop_gradient=False
    )
