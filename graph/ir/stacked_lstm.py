"""Read ``cudnn_lstm`` into a graph: as the ops that compute it, one direction of one layer after another.

These are those of a program of its own, to which ``gradients`` appends those of the gradient op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..layers.stacked_lstm import write_out
from ..ops.registry import Inference, Spec
from ..ops.stacked_lstm import CudnnLstm
from ..program import unique_name
from ..program.operator import Operator
from ..program.program import Program, program_guard
from ..program.role import CALLSTACK, DEVICE, NAMESCOPE, ROLE, grad_name
from ..program.variable import Variable
from ..training.backward import gradients
from .block_reader import BlockReader, Scope
from .graph import Node

_OPERANDS = ("Input", "InitH", "InitC", "W")
_RESULTS = tuple(slot.name for slot in CudnnLstm.declared().outputs)


class _WrittenOut(NamedTuple):
    """The program that computes an op's results, these, and the values that its ops have."""

    program: Program
    results: Sequence[Variable]
    scope: Scope


class StackedLstm(BlockReader):
    """Reads ``cudnn_lstm`` and its gradient op."""

    def _lstm(self, op: Operator) -> Iterator[Node]:
        operands = {slot: self._operand(op, slot, op.inputs) for slot in _OPERANDS}
        read = {slot: [value.spec] for slot, value in operands.items()}
        names = {slot: [value.name] for slot, value in operands.items()}
        op.declaration.infer(Inference(op.declaration, read, op.attrs, names, op.where))
        program = Program()
        with program_guard(program, Program()), unique_name.guard():
            x, h, c, w = (_variable(program, slot, value.spec) for slot, value in operands.items())
            results = write_out(x, h, c, w, op.attrs)
        around = dict(self.current)
        with self._body(_mark(op), operands):
            yield from self._read_as(op, program, 0)
            scope = self._left(around, _OPERANDS)
        for slot, result in zip(_RESULTS, results, strict=True):
            value = scope.values[result.name]
            for name in op.outputs.get(slot, ()):
                yield from self._named(op, name, value, value)
        self.scopes[op.outputs["Out"][0]] = _WrittenOut(program, results, scope)

    def _lstm_gradient(self, op: Operator) -> Iterator[Node]:
        """Gradients that were not computed are zeros, which ``gradients`` leaves out."""
        known: _WrittenOut = self._of(op, "Out")
        program = known.program.clone()
        block, count = program.global_block(), len(known.program.global_block().ops)
        above = {
            (result.name, grad_name(slot)): self._operand(op, grad_name(slot), op.inputs)
            for slot, result in zip(_RESULTS, known.results, strict=True)
            if op.inputs.get(grad_name(slot))
        }
        targets = [slot for slot in _OPERANDS if op.outputs.get(grad_name(slot))]
        with program_guard(program, Program()), unique_name.guard("gradient"):
            slopes = gradients(
                [block.var(name) for name, _ in above],
                [block.var(slot) for slot in targets],
                [_variable(program, slope, block.var(name)) for name, slope in above],
            )
        values = {name: value for (_, name), value in above.items()}
        with self._body(_mark(op), {**known.scope.values, **values}):
            yield from self._read_as(op, program, count)
            computed = [None if slope is None else self.current[slope.name] for slope in slopes]
        for slot, value in zip(targets, computed, strict=True):
            for name in op.outputs[grad_name(slot)]:
                yield from self._named(op, name, value, known.scope.values[slot])

    def _read_as(self, op: Operator, program: Program, first: int) -> Iterator[Node]:
        """Read a program's ops from one on; errors name the line that built ``op``."""
        block = program.global_block()
        del block.ops[:first]
        for each in block.ops:
            each.attrs |= {
                k: op.attrs[k] for k in (CALLSTACK, DEVICE, NAMESCOPE, ROLE) if k in op.attrs
            }
        yield from self._nodes(block)


def _mark(op: Operator) -> str:
    return f"@{op.inputs['Out'][0] if 'Out' in op.inputs else op.outputs['Out'][0]}"


def _variable(program: Program, name: str, like: Spec | Variable) -> Variable:
    block = program.global_block()
    return block.create_var(name=name, shape=like.shape, dtype=like.dtype, stop_gradient=False)
