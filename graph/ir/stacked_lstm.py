"""Read ``cudnn_lstm`` into a graph: as the ops that compute it, one direction of one layer after another.

These are those of a program of its own, to which ``gradients`` appends those of the gradient op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from .block_reader import BlockReader, Scope, finished, node_of
from .graph import Node, Value

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
            sources = [_variable(program, slot, value.spec) for slot, value in operands.items()]
            results = write_out(*sources, op.attrs)
        around = dict(self.current)
        with self._body(_mark(op), operands):
            yield from self._read_as(op, program, 0)
            scope = self._left(around, _OPERANDS)
        for slot, result in zip(_RESULTS, results, strict=True):
            yield from self._named(op, slot, scope.values[result.name])
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
        wanted = [slot for slot in _OPERANDS if op.outputs.get(grad_name(slot))]
        with program_guard(program, Program()), unique_name.guard("gradient"):
            slopes = gradients(
                [block.var(name) for name, _ in above],
                [block.var(slot) for slot in wanted],
                [_variable(program, slope, block.var(name)) for name, slope in above],
            )
        values = {name: value for (_, name), value in above.items()}
        with self._body(_mark(op), {**known.scope.values, **values}):
            yield from self._read_as(op, program, count)
            computed = [None if slope is None else self.current[slope.name] for slope in slopes]
        for slot, value in zip(wanted, computed, strict=True):
            yield from self._named(op, grad_name(slot), value, known.scope.values[slot])

    def _read_as(self, op: Operator, program: Program, first: int) -> Iterator[Node]:
        """Read a program's ops from one on; errors name the line that built ``op``."""
        block = program.global_block()
        del block.ops[:first]
        for each in block.ops:
            each.attrs |= {
                k: op.attrs[k] for k in (CALLSTACK, DEVICE, NAMESCOPE, ROLE) if k in op.attrs
            }
        yield from self._nodes(block)

    def _named(
        self, op: Operator, slot: str, value: Value | None, like: Value | None = None
    ) -> Iterator[Node]:
        """Have a value go by the name that the program has for it; of none, zeros.

        Paddle declares results of both directions as if there were one.
        """
        for name in op.outputs.get(slot, ()):
            written = self._write(op.block, name)
            if written is None:
                continue
            kind, source = ("fill_zeros_like", like) if value is None else ("assign", value)
            assert source is not None
            self.current[name] = result = replace(written, spec=source.spec)
            grads = finished(op, {name: result})
            yield node_of(op, kind, {"X": (source,)}, {"Out": (result,)}, None, grads)


def _mark(op: Operator) -> str:
    return f"@{op.inputs['Out'][0] if 'Out' in op.inputs else op.outputs['Out'][0]}"


def _variable(program: Program, name: str, like: Spec | Variable) -> Variable:
    block = program.global_block()
    return block.create_var(name=name, shape=like.shape, dtype=like.dtype, stop_gradient=False)
