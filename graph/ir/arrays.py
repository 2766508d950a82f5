"""Read arrays of tensors into a graph: entries are values, and which is meant is known when the graph is read.

Gradients of arrays are arrays, too. A read hands its gradient to the entry that it read, beside what other
reads did; a write takes the gradient of its entry away: what stood there before has none from later reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...strategies.errors import InvalidValue, Unsupported
from ...strategies.types import VarType, to_numpy
from ..ops.host_call import no_entry
from ..ops.registry import Spec
from ..program.known import computed
from ..program.operator import Operator
from ..program.role import EMPTY_VAR, GRAD_SUFFIX, differentiated_name
from .block_reader import node_of
from .graph import Node, Value
from .host_calls import HostCalls

Entries = tuple[Value | None, ...]


class Arrays(HostCalls):
    """Reads ops of arrays; ``constants`` holds the elements of values that are known."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: dict[Value, np.ndarray] = {}

    def _learn(self, node: Node) -> None:
        """Note what a node computes, if that is known."""
        operands = [self.constants.get(value) for value in node.reads()]
        if len(node.writes()) == 1 and not any(operand is None for operand in operands):
            (result,) = node.writes()
            elements = computed(node.op, operands, node.attrs, result.spec.dtype)
            if elements is not None:
                self.constants[result] = elements

    def _index(self, op: Operator, array: str, place: Value) -> int | None:
        """Return which entry is meant, whose index is ``place``; None if only a step tells.

        Raises:
            InvalidValue: it is negative.
        """
        index = self.constants.get(place)
        if index is None:
            return None
        number = int(np.ravel(index)[0])
        if number < 0:
            raise InvalidValue(
                f"{op.type}: the array {array!r} has no entry {number}. Built at {op.where}."
            )
        return number

    def _entries(self, op: Operator) -> list[Value]:
        """Return the entries of an array, or the variables of a list.

        Raises:
            Unsupported: there are none, or one was never written.
        """
        names = op.inputs.get("X", [])
        if len(names) == 1 and names[0] in self.arrays:
            entries: Entries = self.arrays[names[0]]
        else:
            entries = tuple(self._read(op.block, name) for name in names)
        if not entries or any(entry is None for entry in entries):
            raise Unsupported(
                f"{op.type}: an entry of {names} was never written. Built at {op.where}."
            )
        return [entry for entry in entries if entry is not None]

    def _array_read(self, op: Operator) -> Iterator[Node]:
        name, place = op.inputs["X"][0], self._place(op)
        index = self._index(op, name, place)
        if index is None or self._is_array(name):
            yield from self._entry_read(op, name, place)
            return
        entries = self.arrays.get(name, ())
        entry = entries[index] if index < len(entries) else None
        (result,) = op.outputs["Out"]
        if op.inputs.get("X_W"):  # the gradient of a write
            if entry is not None:
                self.arrays[name] = (*entries[:index], None, *entries[index + 1 :])
            kind = "fill_zeros_like" if entry is None else "assign"
            entry = self._operand(op, "X_W") if entry is None else entry
        elif entry is None:
            problem = no_entry(index, name, len(entries))
            raise Unsupported(f"{op.type}: {problem}. Built at {op.where}.")
        else:
            kind = "assign"
        if result != EMPTY_VAR:
            value = self._result(op, result)
            self._share_levels(entry, value)
            yield node_of(op, kind, {"X": (entry,)}, {"Out": (value,)})

    def _array_write(self, op: Operator) -> Iterator[Node]:
        name, place = op.outputs["Out"][0], self._place(op)
        index = self._index(op, name, place)
        if index is None or self._is_array(name):
            yield from self._entry_written(op, name, place)
            return
        yield from self._put(op, name, index, self._operand(op, "X"))

    def _entry_read(self, op: Operator, name: str, index: Value) -> Iterator[Node]:
        """Read an entry that is known only when the program runs."""
        yield from self._gathered(op, name)
        (result,) = op.outputs["Out"]
        array = self._value_of(op, name)
        if op.inputs.get("X_W"):  # the gradient of a write
            like = self._operand(op, "X_W")
            rest = self._array(name, array.spec, 0)
            part = self._new(f"{name}@PART", like.spec)
            if result != EMPTY_VAR:
                written = self._write(op.block, result)
                part = part if written is None else written
            yield self._call(op, "take_entry", [array, index, like], [rest, part], bare=True)
            self._share_levels(like, part)
            return
        entry = self._tensor(op.block, result, self.array_levels[array])
        yield self._call(op, op.type, [array, index], [entry], {"array": name})

    def _entry_written(self, op: Operator, name: str, index: Value) -> Iterator[Node]:
        """Write an entry that is known only when the program runs."""
        value = self._operand(op, "X")
        if not self._is_array(name):
            self.arrays.setdefault(name, ())
        yield from self._gathered(op, name)
        before = self.current[name]
        adds = GRAD_SUFFIX in name  # beside what other reads did
        levels = 0 if adds else len(self.sequences.levels.get(value, ()))
        levels = max(levels, self.array_levels[before])
        array, options = self._array(name, value.spec, levels), {"array": name, "adds": adds}
        yield self._call(op, op.type, [before, index, value], [array], options, bare=adds)

    def _put(self, op: Operator, name: str, index: int, value: Value) -> Iterator[Node]:
        """Write an entry; of a gradient, add to it."""
        entries = list(self.arrays.get(name, ()))
        entries += [None] * (index + 1 - len(entries))
        before = entries[index]
        if before is not None and GRAD_SUFFIX in name:
            total = self._new(f"{value.name}@{index}@TOTAL", value.spec)
            yield node_of(op, "sum", {"X": (before, value)}, {"Out": (total,)})
            value = total
        entries[index] = value
        self.arrays[name] = tuple(entries)

    def _array_sum(self, op: Operator) -> Iterator[Node]:
        """Add up gradients of an array, entry by entry, beside what it has; or copy an array."""
        names = op.inputs["X"]
        if any(map(self._is_array, names)):
            for name in names:
                yield from self._gathered(op, name)
            arrays = [self.current[name] for name in names]
            total = self._array(op.outputs["Out"][0], arrays[0].spec, self.array_levels[arrays[0]])
            yield self._call(op, "sum_arrays", arrays, [total], bare=op.type == "sum")
            return
        if op.type == "assign":
            self.arrays[op.outputs["Out"][0]] = self.arrays[op.inputs["X"][0]]
            return
        parts = [(k, v) for name in op.inputs["X"] for k, v in enumerate(self.arrays.get(name, ()))]
        for index, value in parts:
            if value is not None:
                yield from self._put(op, op.outputs["Out"][0], index, value)

    def _array_length(self, op: Operator) -> Iterator[Node]:
        name = op.inputs["X"][0]
        if self._is_array(name):
            length = self._tensor(op.block, op.outputs["Out"][0], 0)
            yield self._call(op, op.type, [self.current[name]], [length])
            return
        count = len(self.arrays.get(name, ()))
        attrs = {"shape": [1], "dtype": int(VarType.INT64), "int64_values": [count]}
        outputs = {"Out": (self._write(op.block, op.outputs["Out"][0]),)}
        yield node_of(op, "assign_value", {}, outputs, attrs)

    def _array_to_tensor(self, op: Operator) -> Iterator[Node]:
        if self._is_array(op.inputs["X"][0]):
            yield from self._array_joined(op)
            return
        entries, axis = self._entries(op), int(op.attrs["axis"])
        out = {"Out": (self._write(op.block, op.outputs["Out"][0]),)}
        if op.attrs["use_stack"]:
            out = {"Y": out["Out"]}
        kind = "stack" if op.attrs["use_stack"] else "concat"
        yield node_of(op, kind, {"X": tuple(entries)}, out, {"axis": axis})
        sizes = []
        name = op.outputs["OutIndex"][0]
        for k, entry in enumerate(entries):
            rank = len(entry.spec.shape)
            at = min(axis % (rank + 1 if op.attrs["use_stack"] else rank), rank - 1)
            shape = self._new(f"{name}@{k}@SHAPE", Spec((rank,), VarType.INT32))
            size = self._new(f"{name}@{k}@SIZE", Spec((1,), VarType.INT32))
            yield node_of(op, "shape", {"Input": (entry,)}, {"Out": (shape,)})
            attrs = {"axes": [0], "starts": [at], "ends": [at + 1], "infer_flags": [1]}
            attrs["decrease_axis"] = []
            yield node_of(op, "slice", {"Input": (shape,)}, {"Out": (size,)}, attrs)
            sizes.append(size)
        outputs = {"Out": (self._write(op.block, name),)}
        yield node_of(op, "concat", {"X": tuple(sizes)}, outputs, {"axis": 0})

    def _array_joined(self, op: Operator) -> Iterator[Node]:
        array = self.current[op.inputs["X"][0]]
        results = [self._tensor(op.block, op.outputs[s][0], 0) for s in ("Out", "OutIndex")]
        options = {name: op.attrs[name] for name in ("axis", "use_stack")}
        yield self._call(op, op.type, [array], results, options)

    def _hypotheses(self, op: Operator) -> Iterator[Node]:
        names = [op.inputs[slot][0] for slot in ("Ids", "Scores")]
        for name in names:
            yield from self._gathered(op, name)
        arrays = [self._read(op.block, name) for name in names]
        outputs = (op.outputs[slot][0] for slot in ("SentenceIds", "SentenceScores"))
        results = [self._tensor(op.block, name, 2) for name in outputs]
        options = {name: op.attrs[name] for name in ("beam_size", "end_id")}
        yield self._call(op, op.type, arrays, results, options)

    def _array_to_tensor_gradient(self, op: Operator) -> Iterator[Node]:
        if self._is_array(op.inputs["X"][0]):
            array, above = self.current[op.inputs["X"][0]], self._operand(op, "Out@GRAD")
            parts = self._array(op.outputs["X@GRAD"][0], array.spec, 0)
            options = {name: op.attrs[name] for name in ("axis", "use_stack")}
            yield self._call(op, op.type, [array, above], [parts], options, bare=True)
            return
        entries, above = self._entries(op), self._operand(op, "Out@GRAD")
        slopes = tuple(
            self._new(f"{above.name}@{k}@PART", entry.spec) for k, entry in enumerate(entries)
        )
        results, axis = {"X@GRAD": slopes}, {"axis": int(op.attrs["axis"])}
        if op.attrs["use_stack"]:
            yield node_of(op, "stack_grad", {"Y@GRAD": (above,)}, results, axis)
        else:
            operands = {"X": tuple(entries), "Out@GRAD": (above,)}
            yield node_of(op, "concat_grad", operands, results, axis)
        names = op.outputs["X@GRAD"]
        for k, slope in enumerate(slopes):
            if op.inputs["X"][0] in self.arrays:
                yield from self._put(op, names[0], k, slope)
            elif names[k] != EMPTY_VAR:
                outputs = {"Out": (self._write(op.block, names[k]),)}
                yield node_of(op, "assign", {"X": (slope,)}, outputs)

    def _sequences_apart(self, op: Operator) -> Iterator[Node]:
        """Make an array of the steps of sequences; a gradient's are those of what it is the gradient of."""
        x, table = (self._operand(op, slot) for slot in ("X", "RankTable"))
        (name,), (result,) = op.inputs["X"], op.outputs["Out"]
        slope = GRAD_SUFFIX in result
        forward = self.current.get(differentiated_name(name))
        if slope and forward is not None:
            self.sequences.levels[x] = self.sequences.levels.get(forward, ())
        levels = self._levels(x)
        if levels < 1:
            raise Unsupported(
                f"{op.type}: {name!r} holds no sequences: declare it with lod_level=1, and feed a LoDTensor. "
                f"{op.where}"
            )
        spec = x.spec._replace(shape=(-1, *x.spec.shape[1:]))
        within = max(levels - self._levels(table) - 1, 0)
        array = self._array(result, spec, 0 if slope else within)
        yield self._call(op, op.type, [x, table], [array], {"bare": slope})

    def _sequences_together(self, op: Operator) -> Iterator[Node]:
        """Make sequences of an array of their steps; as a gradient, those of what was taken apart."""
        (name,), (result,) = op.inputs["X"], op.outputs["Out"]
        table, function = self._operand(op, "RankTable"), op.type
        yield from self._gathered(op, name)
        array = self._value_of(op, name)
        within = self.array_levels[array]
        operands, levels = [array, table], self._levels(table) + 1 + within
        row = [max(size, 0) for size in array.spec.shape[1:]]
        options = {"row": row, "dtype": to_numpy(array.spec.dtype).name, "levels": within}
        if GRAD_SUFFIX in result:
            forward = self._value_of(op, differentiated_name(result))
            operands, levels = [*operands, forward], self._levels(forward)
            function, options = "lod_tensor_to_array_grad", {}
        yield self._call(op, function, operands, [self._tensor(op.block, result, levels)], options)
