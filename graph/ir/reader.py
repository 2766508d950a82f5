"""Read a Program into a Graph: every write becomes a value of its own.

Ops that hold blocks are read by ``branches.py`` and ``recurrent.py``, as if their ops stood in block 0; and
``cudnn_lstm`` and ``pyramid_hash`` by ``written_out.py``, as if those stood there that compute them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import count, zip_longest
from typing import Any

from ...strategies.errors import InvalidValue
from ..ops.operands import lod_slot
from ..ops.python_function import function_of
from ..ops.registry import OFFSETS, OPS, Spec
from ..program.block import Block
from ..program.formats.executable import computed_attributes, computed_ops
from ..program.known import READ_IN_STEPS, numbers_in_use
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import EMPTY_VAR, GRAD_SUFFIX, OpRole, differentiated_name
from ..program.variable import Variable
from .block_reader import Reading, Values, finished, node_of
from .branches import Branches
from .graph import FEED, STATE, TEMP, Graph, Node, Value, infer_node
from .loops import Loops
from .recurrent import Recurrence
from .sequences import level_name, sequence_of
from .trainer_ops import READERS as TRAINER_READERS
from .trainer_ops import TrainerOps
from .written_out import WrittenOut


def from_program(program: Program, feed_names: Sequence[str]) -> Graph:
    """Return block 0 of a program as a graph in which ``feed_names`` arrive with each step.

    The program is only read. ``feed`` and ``fetch`` ops of a loaded model are left out: the caller says both.
    The offsets of fed sequences are fed by names of their own, outermost first (see ``sequences.py``).

    Raises:
        Unsupported: an op is not built, or cannot stand in a branch.
    """
    return _Reader(program, feed_names).read()


def _computes(op: Operator) -> bool:
    return op.role & 0xFF == OpRole.Forward


class _Reader(Branches, Recurrence, Loops, WrittenOut, TrainerOps):
    """Follows the program's ops in order and gives every write its own value."""

    def __init__(self, program: Program, feed_names: Sequence[str]) -> None:
        super().__init__()
        self.block = program.global_block()
        written = Counter(n for b in program.blocks for op in b.ops for n in op.output_arg_names)
        self._rewritten = {name for name, times in written.items() if times > 1}
        lasting = {name for name, v in self.block.vars.items() if v.persistable}
        forward = {
            n for b in program.blocks for op in b.ops if _computes(op) for n in op.output_arg_names
        }
        # Names that do not have one value alone while the forward ops run.
        self._overwritten = self._rewritten | forward & {*feed_names, *lasting}
        # By the identity of a reading, which must live as long
        self._differentiated: dict[tuple[int, int, int], Reading] = {}
        # A parameter's value from before an update -> its value behind it
        self._updated: dict[Value | None, Value] = {}
        self.feeds = tuple(map(self._feed, feed_names))

    def read(self) -> Graph:
        stores = tuple(self._store(value) for value in self.feeds if self._persistable(value))
        nodes = (*stores, *self._nodes(self.block), *self._table_updates())
        for name, variable in self.block.vars.items():
            if name not in self.current and variable.persistable and variable.shape is not None:
                self._before(variable)
        return Graph(nodes, self.feeds, {**self.levels, **self.current})

    def _feed(self, name: str) -> Value:
        source = sequence_of(name)
        if source is None or name in self.block.vars:
            variable = self.block.var(name)
            value = self._new(name, self._before_views(variable), FEED)
            self.current[name] = value
            return value
        level = self.levels[name] = self._new(name, OFFSETS, FEED)
        self.sequences.feed(self.current[source], level)
        return level

    def _persistable(self, value: Value) -> bool:
        variable = self.block.vars.get(value.name)
        return variable is not None and variable.persistable

    def _store(self, fed: Value) -> Node:
        """Return the node that stores a fed persistable's value for later steps."""
        state = self._value(self.block.var(fed.name), STATE)
        return Node("assign", {"X": (fed,)}, {"Out": (state,)}, {}, 0, f"feed {fed.name!r}")

    def _nodes(self, block: Block) -> Iterator[Node]:
        for op in computed_ops(block.ops):
            kind = "array sum" if self._sums_arrays(op) else op.type
            nodes = _READERS[kind](self, op) if kind in _READERS else self._node(op)
            for node in nodes:
                self._learn(node)
                yield node

    def _sums_arrays(self, op: Operator) -> bool:
        names = op.inputs.get("X", ())
        arrays = (name in self.arrays or self._is_array(name) for name in names)
        return op.type in ("sum", "assign") and any(arrays)

    def _python_function(self, op: Operator) -> Iterator[Node]:
        """Read a call of Python; one that decides the sizes of its results stands between plans."""
        number = op.attrs["forward_callable_id"]
        if not function_of(number, op.where).decides:
            yield from self._node(op)
            return
        operands = [self._read(op.block, name) for name in op.inputs.get("X", ())]
        names = op.outputs["Out"]
        levels = [max(op.block.var_recursive(name).lod_level, 1) for name in names]
        results = [self._tensor(op.block, *each) for each in zip(names, levels, strict=True)]
        yield self._call(op, op.type, operands, results, {"number": number})

    def _node(self, op: Operator) -> Iterator[Node]:
        """Read one op; the nodes that compute the offsets of its results come before its own."""
        operands, numbers = op.resolve_numbers()
        attrs = computed_attributes(op, numbers)
        # Numbers that are operands are known only when the program runs.
        kind = READ_IN_STEPS[op.type] if numbers_in_use(op.declaration, operands) else op.type
        inputs = {
            slot: tuple(self._read(op.block, name) for name in names)
            for slot, names in operands.items()
            if names
        }
        inputs |= self._as_then(op)
        outputs = self._outputs(op, inputs, attrs)
        names = (*op.input_arg_names, *op.output_arg_names)
        if not op.role & OpRole.Backward and not self._overwritten.isdisjoint(names):
            self.readings.append(Reading(op, dict(inputs), outputs))
        levels, newest = self.sequences.write(
            op.declaration, inputs, outputs, attrs, op.role, op.where
        )
        self.levels |= newest
        yield from levels
        inputs |= self.sequences.read(op.declaration, inputs, outputs, self._forward)
        for slot in OPS[kind].sequences_of:
            if lod_slot(slot) in inputs:
                inputs.pop(slot, None)
        for slot in OPS[kind].values_read(attrs, inputs):
            inputs[slot] = yield from self._copied_states(op, inputs[slot])
        by_name = {v.name: v for values in outputs.values() for v in values if v is not None}
        yield node_of(op, kind, inputs, outputs, attrs, finished(op, by_name))

    def _outputs(
        self, op: Operator, inputs: Values, attrs: Mapping[str, Any]
    ) -> dict[str, tuple[Value | None, ...]]:
        """Return new values for the results of an op."""
        updates = op.output_arg_names if op.role & OpRole.Optimize else ()
        before = {name: v for name in updates if (v := self.current.get(name)) and v.kind == STATE}
        outputs = {
            slot: tuple(self._write(op.block, name) for name in names)
            for slot, names in op.outputs.items()
            if names
        }
        written = [v for values in outputs.values() for v in values if v is not None]
        derives = self.inside or any(v in self.unlike for vs in inputs.values() for v in vs)
        if derives or any(not v.spec.shape or v.name in self._rewritten for v in written):
            outputs = self._with_shapes(op, inputs, outputs, attrs)
        self._updated |= {value: self.current[name] for name, value in before.items()}
        for value in written:
            self._forget_levels(value.name)
        return outputs

    def _copied_states(
        self, op: Operator, values: Sequence[Value | None]
    ) -> Generator[Node, None, tuple[Value | None, ...]]:
        """Return operands with copies of persistables, whose elements are known once a segment made them."""
        copies: dict[Value | None, Value] = {}
        for state in dict.fromkeys(v for v in values if v is not None and v.kind == STATE):
            copies[state] = self._new(f"{state.name}@{op.type}", state.spec)
            yield node_of(op, "assign", {"X": (state,)}, {"Out": (copies[state],)})
        return tuple(copies.get(value, value) for value in values)

    def _with_shapes(
        self, op: Operator, inputs: Values, outputs: Values, attrs: Mapping[str, Any]
    ) -> dict[str, tuple[Value | None, ...]]:
        """Return results with the specs that follow from the operands.

        A variable has that of the op which wrote it last; files leave out those of some.
        """
        levels = self.sequences.read(op.declaration, inputs, outputs, self._forward)
        node = node_of(op, op.type, {**inputs, **levels}, outputs, attrs)
        derived = infer_node(node, lambda value: value.spec)
        shaped: dict[str, tuple[Value | None, ...]] = {}
        for slot, values in outputs.items():
            specs = derived.get(slot, ())
            pairs = zip_longest(values, specs[: len(values)])
            shaped[slot] = tuple(
                v if v is None or s is None else self._with_spec(v, s) for v, s in pairs
            )
            for name, value in zip(op.outputs[slot], shaped[slot], strict=True):
                if value is not None:
                    self.current[name] = value
        return shaped

    def _forward(self, gradient: Value) -> Value:
        """Return the value of which another is the gradient, or that itself."""
        return self.current.get(differentiated_name(gradient.name), gradient)

    def _as_then(self, op: Operator) -> dict[str, tuple[Value | None, ...]]:
        """Return by slot the values that the forward op had, where names that a gradient op reads have several.

        It reads the new values of parameters that were updated since, as in Paddle.
        """
        if not op.role & OpRole.Backward or self._overwritten.isdisjoint(op.input_arg_names):
            return {}
        results = {differentiated_name(name) for name in op.input_arg_names if GRAD_SUFFIX in name}
        passes = max(name.count("grad/") for name in op.input_arg_names)
        for reading in reversed(self.readings):
            forward, grad = reading.op, reading.op.declaration.grad
            done = (id(reading), op.block.idx, passes)
            if grad is None or grad.type != op.type or results.isdisjoint(forward.output_arg_names):
                continue
            # One differentiated before is another op of these names, unless it has several gradient ops.
            if grad.each or done not in self._differentiated:
                self._differentiated[done] = reading
                break
        else:
            return {}
        names = forward.outputs | forward.inputs
        values = {**reading.outputs, **reading.inputs}
        return {
            slot: tuple(map(self._as_updated, values[source]))
            for slot, source in grad.reads().items()
            if source in values and op.inputs.get(slot) == names[source]
        }

    def _place(self, op: Operator) -> Value:
        """Return the index of an entry: around loops, which count it back, a gradient op has that of its op."""
        place = self._operand(op, "I")
        if op.block.idx or self._overwritten.isdisjoint(op.inputs["I"]):
            return place
        if not op.role & OpRole.Backward:
            self.readings.append(Reading(op, {"I": (place,)}, {}))
        (then,) = self._as_then(op).get("I", (place,))
        return then or place

    def _as_updated(self, value: Value | None) -> Value | None:
        """Return the value that updates gave a parameter, or the value itself."""
        while value in self._updated:
            value = self._updated[value]
        return value

    def _forget_levels(self, name: str) -> None:
        """Forget the sequences of a variable that is written again."""
        for level in count():
            if self.levels.pop(level_name(name, level), None) is None:
                return

    def _read(self, block: Block, name: str) -> Value | None:
        if name == EMPTY_VAR:
            return None
        if name not in self.current:
            variable = block.var_recursive(name)
            # A temporary that nothing wrote becomes a feed the caller forgot; checks name it before the run.
            self._before(variable)
        return self.current[name]

    def _write(self, block: Block, name: str) -> Value | None:
        if name == EMPTY_VAR:
            return None
        variable = block.var_recursive(name)
        lasts = variable.persistable and not self.inside
        return self._value(variable, STATE if lasts else TEMP)

    def _before(self, variable: Variable) -> None:
        """Note the value of a variable from before the step."""
        kind = STATE if variable.persistable else FEED
        self.current[variable.name] = Value(variable.name, self._spec(variable), kind)

    def _value(self, variable: Variable, kind: str) -> Value:
        value = self._new(variable.name, self._spec(variable), kind)
        self.current[variable.name] = value
        return value

    def _before_views(self, variable: Variable) -> Spec:
        """Return the spec of what is fed, to which ops may give another shape in place (``reshape2``)."""
        spec = self._spec(variable)
        if variable.name not in self._overwritten:
            return spec
        for op in self.block.ops:
            if variable.name in op.output_arg_names:
                for shape in op.output("XShape") if "XShape" in op.output_names else ():
                    return Spec(self._spec(self.block.var(shape)).shape[1:], spec.dtype)
                break
        return spec

    def _spec(self, variable: Variable) -> Spec:
        if variable.shape is None or variable.dtype is None:
            raise InvalidValue(
                f"variable {variable.name!r} cannot be computed with: the program lacks its shape or element "
                f"type."
            )
        return Spec(variable.shape, variable.dtype)


_READERS: Mapping[str, Callable[[_Reader, Operator], Iterator[Node]]] = {
    "array sum": _Reader._array_sum,
    "conditional_block": _Reader._branch,
    "conditional_block_grad": _Reader._branch_gradient,
    "select_input": _Reader._selection,
    "select_output": _Reader._selection_gradient,
    "array_to_lod_tensor": _Reader._sequences_together,
    "beam_search_decode": _Reader._hypotheses,
    "cudnn_lstm": _Reader._write_out,
    "cudnn_lstm_grad": _Reader._write_out_gradient,
    "lod_array_length": _Reader._array_length,
    "lod_tensor_to_array": _Reader._sequences_apart,
    "py_func": _Reader._python_function,
    "pyramid_hash": _Reader._write_out,
    "pyramid_hash_grad": _Reader._table_gradient,
    "read_from_array": _Reader._array_read,
    "recurrent": _Reader._recurrent,
    "recurrent_grad": _Reader._recurrent_gradient,
    "rnn_memory_helper": _Reader._memory,
    "rnn_memory_helper_grad": _Reader._memory_gradient,
    "tensor_array_to_tensor": _Reader._array_to_tensor,
    "tensor_array_to_tensor_grad": _Reader._array_to_tensor_gradient,
    "while": _Reader._while,
    "while_grad": _Reader._while_gradient,
    "write_to_array": _Reader._array_write,
    **TRAINER_READERS,
}
