"""Read recurrent blocks into a graph: the block is read once for each step of the known length.

What outlives a step is a state, which the next one reads. The gradient block is read for each step, too, from
the last to the first, with the values that the forward step computed; gradients of what every step reads are
added up as they come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ...strategies.errors import Unsupported
from ..ops.registry import Spec
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import EMPTY_VAR, grad_name
from .block_reader import BlockReader, Scope, block_of, finished, node_of
from .graph import Node, Value


class Recurrence(BlockReader):
    """Reads ``recurrent``, ``rnn_memory_helper`` and their gradient ops."""

    def _steps(self, op: Operator) -> range:
        """Return the numbers of the steps, in the order in which they are computed."""
        values = [self._read(op.block, name) for name in op.inputs.get("inputs", ())]
        lengths = {value.spec.shape[0] for value in values if value is not None}
        known = lengths - {-1}
        if len(known) != 1:
            names = ", ".join(op.inputs.get("inputs", ()))
            raise Unsupported(
                f"recurrent: how many steps {names} have does not follow from the shapes that are declared and "
                f"fed (got {sorted(lengths)}): cut or pad sequences to a known number of steps. {op.where}"
            )
        (count,) = known
        return range(count)[::-1] if op.attrs.get("reverse") else range(count)

    def _slices(self, op: Operator, name: str, sequence: Value, step: int) -> Iterator[Node]:
        """Cut the part of a sequence that belongs to a step, and have it go by ``name``."""
        spec = Spec(sequence.spec.shape[1:] or (1,), sequence.spec.dtype)
        part = self._new(f"{name}@SLICE", spec)
        attrs = {
            "axes": [0],
            "starts": [step],
            "ends": [step + 1],
            "infer_flags": [1],
            "decrease_axis": [0],
        }
        yield node_of(op, "slice", {"Input": (sequence,)}, {"Out": (part,)}, attrs)
        self.current[name] = part

    def _stacked(self, op: Operator, name: str, parts: Mapping[int, Value]) -> Iterator[Node]:
        """Join the parts of all steps to a sequence."""
        ordered = tuple(parts[step] for step in sorted(parts))
        sequence = self._write(op.block, name)
        assert sequence is not None
        grads = finished(op, {name: sequence})
        yield node_of(op, "stack", {"X": ordered}, {"Y": (sequence,)}, {"axis": 0}, grads)

    def _recurrent(self, op: Operator) -> Iterator[Node]:
        block, steps = block_of(op), self._steps(op)
        ex_states, states = (list(op.attrs.get(name) or ()) for name in ("ex_states", "states"))
        sequences = {name: self._read(op.block, name) for name in op.inputs.get("inputs", ())}
        carried = {
            ex_state: value
            for ex_state, name in zip(ex_states, op.inputs.get("initial_states", ()), strict=True)
            if (value := self._read(op.block, name)) is not None
        }
        names = [*sequences, *ex_states, *op.inputs.get("parameters", ())]
        for name in op.inputs.get("parameters", ()):
            self._read(op.block, name)
        parts: dict[str, dict[int, Value]] = defaultdict(dict)
        ends: dict[int, Scope] = {}
        for step in steps:
            before = dict(self.current)
            with self._body(f"@BLOCK{block.idx}@STEP{step}", carried):
                for name, sequence in sequences.items():
                    assert sequence is not None
                    yield from self._slices(op, name, sequence, step)
                yield from self._nodes(block)
                ends[step] = scope = self._left(before, names)
            for name in op.outputs.get("outputs", ()):
                parts[name][step] = scope.values[name]
            carried = {ex: scope.values[s] for ex, s in zip(ex_states, states, strict=True)}
            carried |= _outlasting(block, scope)
        for name in op.outputs.get("outputs", ()):
            yield from self._stacked(op, name, parts[name])
        for name in _outlasting(block, ends[steps[-1]]):
            outputs = {"Out": (self._write(op.block, name),)}
            yield node_of(op, "assign", {"X": (carried[name],)}, outputs)
        for name in op.outputs.get("step_scopes", ()):
            self.scopes[name] = [ends[step] for step in sorted(ends)]

    def _recurrent_gradient(self, op: Operator) -> Iterator[Node]:
        block, scopes = block_of(op), self._of(op, "step_scopes")
        steps = range(len(scopes)) if op.attrs.get("reverse") else range(len(scopes))[::-1]
        ex_states, states = (list(op.attrs.get(name) or ()) for name in ("ex_states", "states"))
        above = self._above(op, "outputs")
        gradients = {slot: self._wanted(op, slot) for slot in ("inputs", "parameters")}
        parts: dict[str, dict[int, Value]] = defaultdict(dict)
        sums: dict[str, Value] = {}
        carried: dict[str, Value] = {}
        for step in steps:
            with self._body(f"@BLOCK{block.idx}@STEP{step}", {**scopes[step].values, **carried}):
                self.scopes |= scopes[step].scopes
                for name, sequence in above.items():
                    yield from self._slices(op, name, sequence, step)
                for operand in (*gradients["inputs"], *gradients["parameters"], *ex_states):
                    self.current.pop(grad_name(operand), None)  # those around it are other values
                yield from self._nodes(block)
                inner = self.current
                for operand, (name, _) in gradients["inputs"].items():
                    value = inner.get(grad_name(operand))
                    if value is None:
                        part = scopes[step].values[operand]
                        value = self._new(f"{name}@ZERO", part.spec)
                        yield node_of(op, "fill_zeros_like", {"X": (part,)}, {"Out": (value,)})
                    parts[name][step] = value
                for operand, (name, _) in gradients["parameters"].items():
                    value = inner.get(grad_name(operand))
                    if value is None:
                        continue
                    if name in sums:
                        terms = (sums[name], value)
                        value = self._new(f"{name}@SUM", value.spec)
                        yield node_of(op, "sum", {"X": terms}, {"Out": (value,)})
                    sums[name] = value
                carried = {
                    grad_name(state): inner[grad_name(ex)]
                    for ex, state in zip(ex_states, states, strict=True)
                    if grad_name(ex) in inner
                }
        for name, _ in gradients["inputs"].values():
            yield from self._stacked(op, name, parts[name])
        for name, like in gradients["parameters"].values():
            yield from self._named(op, name, sums.get(name), like)
        starts = op.inputs.get("initial_states", ())
        names = op.outputs.get("initial_states@GRAD", ())
        for state, operand, name in zip(states, starts, names, strict=False):
            start = self._read(op.block, operand)
            if name != EMPTY_VAR and start is not None:
                yield from self._named(op, name, carried.get(grad_name(state)), start)

    def _wanted(self, op: Operator, slot: str) -> dict[str, tuple[str, Value]]:
        """Return the gradients that an op computes of a slot: by operand their name, and what they are like."""
        names = zip(op.inputs.get(slot, ()), op.outputs.get(f"{slot}@GRAD", ()), strict=False)
        likes = {x: (name, self._read(op.block, x)) for x, name in names if name != EMPTY_VAR}
        return {x: (name, like) for x, (name, like) in likes.items() if like is not None}

    def _memory(self, op: Operator) -> Iterator[Node]:
        operand = self._operand(op, "X", op.inputs)
        result = self._write(op.block, op.outputs["Out"][0])
        yield node_of(op, "assign", {"X": (operand,)}, {"Out": (result,)})

    def _memory_gradient(self, op: Operator) -> Iterator[Node]:
        """In the last step a state that no result shows has the gradient 0."""
        (above,) = op.inputs.get("Out@GRAD", [EMPTY_VAR])
        value = self.current.get(above)
        kind = "fill_zeros_like" if value is None else "assign"
        operand = self._operand(op, "X", op.inputs) if value is None else value
        result = self._write(op.block, op.outputs["X@GRAD"][0])
        yield node_of(op, kind, {"X": (operand,)}, {"Out": (result,)})


def _outlasting(block: Block, scope: Scope) -> dict[str, Value]:
    """Return what a step wrote to variables around it that outlive the program's steps."""
    names = [name for op in block.ops for name in op.output_arg_names]
    parent = block.program.block(block.parent_idx)
    outer = {n: parent.find_var_recursive(n) for n in names if n not in block.vars}
    return {n: scope.values[n] for n, v in outer.items() if v is not None and v.persistable}
