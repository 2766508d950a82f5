"""Read recurrent blocks into a graph: the block is read once for each step of the known length.

What outlives a step is a state, which the next one reads. The gradient block is read for each step, too, from
the last to the first, with the values that the forward step computed; gradients of what every step reads are
added up as they come.

Where only the running program tells how many steps there are, they are the rounds of a loop
(``data_loops.py``) over arrays of what steps read and compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace

from ...strategies.errors import Unsupported
from ...strategies.types import VarType, to_numpy
from ..ops.registry import OPS, Spec
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import EMPTY_VAR, grad_name
from .block_reader import Scope, block_of, finished, node_of
from .data_loops import DataLoop, DataLoops, Rounds
from .graph import Node, Value

_NUMBER, _FLAG = Spec((1,), VarType.INT64), Spec((1,), VarType.BOOL)


class Recurrence(DataLoops):
    """Reads ``recurrent``, ``rnn_memory_helper`` and their gradient ops."""

    def _steps(self, op: Operator) -> range | None:
        """Return the numbers of the steps, in the order in which they are computed; None if not known.

        Raises:
            Unsupported: sequences have different numbers of steps.
        """
        values = [self._read(op.block, name) for name in op.inputs["inputs"]]
        lengths = {value.spec.shape[0] for value in values if value is not None}
        known = lengths - {-1}
        if not known:
            return None
        if len(known) > 1:
            names = ", ".join(op.inputs["inputs"])
            raise Unsupported(
                f"recurrent: {names} have different numbers of steps: {sorted(known)}. {op.where}"
            )
        (count,) = known
        return range(count)[::-1] if op.attrs.get("reverse") else range(count)

    def _slices(self, op: Operator, name: str, sequence: Value, step: int) -> Iterator[Node]:
        """Cut the part of a sequence that belongs to a step, and have it go by ``name``."""
        part = self._new(f"{name}@SLICE", _part(sequence.spec))
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
        sequence = self._result(op, name)
        grads = finished(op, {name: sequence})
        yield node_of(op, "stack", {"X": ordered}, {"Y": (sequence,)}, {"axis": 0}, grads)

    def _recurrent(self, op: Operator) -> Iterator[Node]:
        block, steps = block_of(op), self._steps(op)
        if steps is None:
            yield from self._recurrent_on_data(op)
            return
        ex_states, states = (list(op.attrs.get(name) or ()) for name in ("ex_states", "states"))
        sequences = {name: self._value_of(op, name) for name in op.inputs.get("inputs", ())}
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
            result = self._result(op, name)
            self._share_levels(carried[name], result)
            yield node_of(op, "assign", {"X": (carried[name],)}, {"Out": (result,)})
        for name in op.outputs.get("step_scopes", ()):
            self.scopes[name] = [ends[step] for step in sorted(ends)]

    def _recurrent_gradient(self, op: Operator) -> Iterator[Node]:
        block, scopes = block_of(op), self._of(op, "step_scopes")
        if isinstance(scopes, DataLoop):
            yield from self._recurrent_gradient_on_data(op, scopes)
            return
        steps = range(len(scopes)) if op.attrs.get("reverse") else range(len(scopes))[::-1]
        ex_states, states = (list(op.attrs.get(name) or ()) for name in ("ex_states", "states"))
        above = self._above(op, "outputs")
        inputs, parameters = (self._wanted(op, slot) for slot in ("inputs", "parameters"))
        sum_names = {operand: name for operand, (name, _) in parameters.items()}
        parts: dict[str, dict[int, Value]] = defaultdict(dict)
        sums: dict[str, Value] = {}
        carried: dict[str, Value] = {}
        for step in steps:
            with self._body(f"@BLOCK{block.idx}@STEP{step}", {**scopes[step].values, **carried}):
                self._go_back(scopes[step])
                for name, sequence in above.items():
                    yield from self._slices(op, name, sequence, step)
                for operand in (*inputs, *parameters, *ex_states):
                    self.current.pop(grad_name(operand), None)  # those around it are other values
                yield from self._nodes(block)
                inner = self.current
                for operand, (name, _) in inputs.items():
                    value = inner.get(grad_name(operand))
                    if value is None:
                        part = scopes[step].values[operand]
                        value = yield from self._zeros(op, f"{name}@ZERO", part)
                    parts[name][step] = value
                yield from self._add_up(op, sums, sum_names)
                carried = {
                    grad_name(state): inner[grad_name(ex)]
                    for ex, state in zip(ex_states, states, strict=True)
                    if grad_name(ex) in inner
                }
        for name, _ in inputs.values():
            yield from self._stacked(op, name, parts[name])
        for name, like in parameters.values():
            yield from self._named(op, name, sums.get(name), like)
        starts = op.inputs.get("initial_states", ())
        names = op.outputs.get("initial_states@GRAD", ())
        for state, operand, name in zip(states, starts, names, strict=False):
            start = self._read(op.block, operand)
            if name != EMPTY_VAR and start is not None:
                yield from self._named(op, name, carried.get(grad_name(state)), start)

    def _recurrent_on_data(self, op: Operator) -> Iterator[Node]:
        """Read the block as that of a loop which counts the parts of its first sequence."""
        (scopes,), reverse = op.outputs["step_scopes"], bool(op.attrs.get("reverse"))
        inputs, outputs = op.inputs["inputs"], op.outputs.get("outputs", ())
        names = yield from self._touched(op)
        lasting = [name for name, written in names.items() if written]
        fed, states = yield from self._fed(op, names, lasting)
        apart: dict[str, Value] = {}
        for name in inputs:
            yield from self._taken_apart(op, name, self._value_of(op, name), reverse)
            apart[_parts(name)] = self.current[_parts(name)]
        index, limit, going = (f"{scopes}@{what}" for what in ("INDEX", "STEPS", "GOING"))
        first, count = self._new(index, _NUMBER), self._new(limit, _NUMBER)
        any_steps = self._new(going, _FLAG)
        zero = {"shape": [1], "dtype": int(VarType.INT64), "int64_values": [0]}
        yield node_of(op, "assign_value", {}, {"Out": (first,)}, zero)
        yield self._call(op, "lod_array_length", [apart[_parts(inputs[0])]], [count])
        yield _less(op, first, count, any_steps)
        operands: dict[str, Value | None] = {going: any_steps, index: first}
        carried = {name: f"{name}@NEXT" for name in operands}
        for ex_state, (state, start) in _states(op).items():
            operands[ex_state] = yield from self._copied(op, self._value_of(op, start))
            carried[ex_state] = state
        for name in outputs:
            operands[_parts(name)] = yield from self._no_parts(op, name)
            carried[_parts(name)] = _parts(name)
        carried |= {name: name for name in lasting}

        def step() -> Iterator[Node]:
            at = self.current[index]
            for name in inputs:
                yield self._part_read(op, name, at)
            yield from self._nodes(block_of(op))
            for name in outputs:
                yield self._part_written(op, name, at, self.current[name])
            after = self.current[carried[index]] = self._new(carried[index], _NUMBER)
            goes_on = self.current[carried[going]] = self._new(carried[going], _FLAG)
            yield node_of(op, "increment", {"X": (at,)}, {"Out": (after,)}, {"step": 1.0})
            yield _less(op, after, self.current[limit], goes_on)

        operands |= {**fed, **apart, limit: count}
        yield from self._run_loop(op, Rounds(scopes, carried, step), operands, states)
        like = yield from self._copied(op, self._value_of(op, inputs[0]))
        for name in outputs:
            yield self._put_together(op, name, self.current[_parts(name)], like, reverse)

    def _recurrent_gradient_on_data(self, op: Operator, loop: DataLoop) -> Iterator[Node]:
        """Read the gradient block as that of the loop's gradient."""
        (scopes,), reverse = op.inputs["step_scopes"], bool(op.attrs.get("reverse"))
        above = self._above(op, "outputs")
        inputs, parameters = (self._wanted(op, slot) for slot in ("inputs", "parameters"))
        for name, sequence in above.items():
            yield from self._taken_apart(op, name, sequence, reverse)
        state: dict[str, Value] = {}
        for x in inputs:
            state[_parts(grad_name(x))] = yield from self._no_parts(op, grad_name(x))
        carried = {name: name for name in state}
        likes = {x: like for x, (_, like) in parameters.items()}
        for ex_state, (name, start) in _states(op).items():
            likes[name] = self._value_of(op, start)
            carried[grad_name(name)] = grad_name(ex_state)
        for name, like in likes.items():
            carried.setdefault(grad_name(name), grad_name(name))
            zeros = f"{grad_name(name)}@ZERO"
            state[grad_name(name)] = yield from self._zeros(op, zeros, like)

        def step() -> Iterator[Node]:
            at = self.current[f"{scopes}@INDEX"]
            for name in (*inputs, *parameters, *_states(op)):
                self.current.pop(grad_name(name), None)  # those around it are other values
            for name in above:
                yield self._part_read(op, name, at)
            yield from self._nodes(block_of(op))
            for x in inputs:
                slope = self.current.get(grad_name(x))
                if slope is None:
                    part = loop.scope.values[x]
                    slope = yield from self._zeros(op, f"{grad_name(x)}@ZERO", part)
                yield self._part_written(op, grad_name(x), at, slope)

        totals = {grad_name(x) for x in parameters}
        rounds = Rounds(scopes, carried, step)
        results = yield from self._run_back(op, rounds, loop, state, totals)
        for x, (name, value) in inputs.items():
            like = yield from self._copied(op, value)
            yield self._put_together(op, name, results[_parts(grad_name(x))], like, reverse)
        for x, (name, like) in parameters.items():
            yield from self._named(op, name, results[grad_name(x)], like)
        slopes = op.outputs.get("initial_states@GRAD", ())
        for name, (state_name, _) in zip(slopes, _states(op).values(), strict=False):
            if name != EMPTY_VAR:
                yield from self._named(op, name, results[grad_name(state_name)], likes[state_name])

    def _taken_apart(
        self, op: Operator, name: str, sequence: Value, reverse: bool
    ) -> Iterator[Node]:
        """Make an array of the parts of a sequence, in the order in which steps read them."""
        sequence = yield from self._copied(op, sequence)
        array = self._array(_parts(name), _part(sequence.spec), 0)
        yield self._call(op, "unstack", [sequence], [array], {"reverse": reverse}, bare=True)

    def _no_parts(self, op: Operator, name: str) -> Generator[Node, None, Value]:
        """Return an array for the parts of a sequence, none of which is computed yet."""
        array = self._array(_parts(name), Spec((-1,), VarType.FP32), 0)
        yield self._call(op, "array", [], [array], {"places": [], "count": 0})
        return array

    def _part_read(self, op: Operator, name: str, at: Value) -> Node:
        """Return the node that reads the part of a sequence, which goes by ``name`` then."""
        array = self.current[_parts(name)]
        part = self.current[name] = self._new(f"{name}@SLICE", array.spec)
        return self._call(op, "read_from_array", [array, at], [part], {"array": name})

    def _part_written(self, op: Operator, name: str, at: Value, part: Value) -> Node:
        """Return the node that adds a part to the array of a sequence."""
        before = self.current[_parts(name)]
        array = self._array(_parts(name), part.spec, 0)
        options = {"array": name, "adds": False}
        return self._call(op, "write_to_array", [before, at, part], [array], options, bare=True)

    def _put_together(
        self, op: Operator, name: str, array: Value, like: Value, reverse: bool
    ) -> Node:
        """Return the node that makes a sequence, as long as another, of an array of its parts.

        Where there are no parts, sizes that only a step would tell are those of the other's parts.
        """
        written = self._result(op, name)
        self._forget_levels(written.name)
        part = array.spec
        spec = Spec((like.spec.shape[0], *part.shape), part.dtype)
        sequence = self.current[name] = replace(written, spec=spec)
        options = {"reverse": reverse, "part": list(part.shape), "dtype": to_numpy(part.dtype).name}
        return self._call(op, "stack", [array, like], [sequence], options, bare=True)

    def _wanted(self, op: Operator, slot: str) -> dict[str, tuple[str, Value]]:
        """Return the gradients that an op computes of a slot: by operand their name, and what they are like."""
        names = zip(op.inputs.get(slot, ()), op.outputs.get(f"{slot}@GRAD", ()), strict=False)
        likes = {x: (name, self._read(op.block, x)) for x, name in names if name != EMPTY_VAR}
        return {x: (name, like) for x, (name, like) in likes.items() if like is not None}

    def _memory(self, op: Operator) -> Iterator[Node]:
        operand = self._operand(op, "X")
        result = self._write(op.block, op.outputs["Out"][0])
        yield node_of(op, "assign", {"X": (operand,)}, {"Out": (result,)})

    def _memory_gradient(self, op: Operator) -> Iterator[Node]:
        """In the last step a state that no result shows has the gradient 0."""
        (above,) = op.inputs.get("Out@GRAD", [EMPTY_VAR])
        value, (name,) = self.current.get(above), op.outputs["X@GRAD"]
        like = self._operand(op, "X") if value is None else value
        yield from self._named(op, name, value, like)


def _states(op: Operator) -> dict[str, tuple[str, str]]:
    """Return, by the name that steps read a state by, the name that they write it by, and its initial value."""
    before, behind = (op.attrs.get(name) or () for name in ("ex_states", "states"))
    pairs = zip(behind, op.inputs.get("initial_states", ()), strict=True)
    return dict(zip(before, pairs, strict=True))


def _parts(name: str) -> str:
    return f"{name}@PARTS"


def _part(sequence: Spec) -> Spec:
    """Return the spec of the part of a sequence that belongs to a step."""
    return Spec(sequence.shape[1:] or (1,), sequence.dtype)


def _less(op: Operator, one: Value, other: Value, result: Value) -> Node:
    slots = {"X": (one,), "Y": (other,)}, {"Out": (result,)}
    return node_of(op, "less_than", *slots, OPS["less_than"].attrs)


def _outlasting(block: Block, scope: Scope) -> dict[str, Value]:
    """Return what a step wrote to variables around it, which the next step reads, and ops behind."""
    names = [name for op in block.ops for name in op.output_arg_names]
    parent = block.program.block(block.parent_idx)
    outer = {n: parent.find_var_recursive(n) for n in names if n not in block.vars}
    return {n: scope.values[n] for n, v in outer.items() if v is not None and n in scope.values}
