"""Write nodes that run between the plans of a step: see ``graph/ops/host_call.py``.

An array of tensors whose entries are known only when the program runs is one value of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...strategies.types import VarType
from ..ops.host_call import ARRAY, HOST_CALL, plain
from ..ops.python_function import PY_FUNC
from ..ops.registry import OFFSETS, Spec
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import GRAD_SUFFIX
from .block_reader import BlockReader, Values, finished, node_of
from .graph import TEMP, Graph, Node, Value
from .sequences import level_name

# Whose results may have fewer levels than are declared
_SHALLOW = {
    *("read_from_array", "array_to_lod_tensor", "as_deep"),
    *("while", "recurrent", "conditional_block", "select_input", PY_FUNC),
}


class HostCalls(BlockReader):
    """Values that are arrays (``array_levels``: how many levels entries have at most), and calls on them."""

    def __init__(self) -> None:
        super().__init__()
        self.array_levels: dict[Value, int] = {}

    def _is_array(self, name: str) -> bool:
        """Tell whether a name stands for an array whose entries are not known."""
        return self.current.get(name) in self.array_levels

    def _levels(self, value: Value) -> int:
        """Return how many levels follow a value among operands and results."""
        return ARRAY if value in self.array_levels else len(self.sequences.levels.get(value, ()))

    def _group(
        self, values: Sequence[Value | None], bare: bool = False
    ) -> tuple[tuple[Value | None, ...], list[int]]:
        """Return operands with their levels behind them, and how many these are."""
        flat: list[Value | None] = []
        for value in values:
            flat.append(value)
            flat += () if value is None or bare else self.sequences.levels.get(value, ())
        levels = [0 if value is None else self._levels(value) for value in values]
        return tuple(flat), [min(level, 0) if bare else level for level in levels]

    def _call(
        self,
        op: Operator,
        function: str,
        operands: Sequence[Value | None],
        results: Sequence[Value],
        options: Mapping[str, Any] | None = None,
        block: Any = None,
        states: Sequence[Value] = (),
        bare: bool = False,
    ) -> Node:
        """Return the node of a call; ``bare``: operands and results go without their levels."""
        read, operand_levels = self._group(operands, bare)
        written, result_levels = self._group(results, bare)
        inputs: Values = {"X": read, "States": tuple(states)}
        attrs = {
            "function": function,
            "operands": operand_levels,
            "results": result_levels,
            "options": dict(options or {}),
            "specs": [plain(value.spec) for value in written if value is not None],
            "block": block,
        }
        by_name = {name: v for name, v in self.current.items() if v in results}
        pairs = finished(op, by_name)
        slots = {slot: values for slot, values in inputs.items() if values}
        return node_of(op, HOST_CALL, slots, {"Out": written}, attrs, pairs)

    def _tensor(self, block: Block, name: str, levels: int) -> Value:
        """Return a new value for a name, with sequences of so many levels that the call computes."""
        value = self._write(block, name)
        assert value is not None
        self._forget_levels(value.name)
        self._give_levels(value, levels, TEMP)
        return value

    def _give_levels(self, value: Value, levels: int, kind: str) -> None:
        own = []
        for k in range(levels):
            name = level_name(value.name, k)
            own.append(self.maker.value(name, OFFSETS, kind))
            self.levels[name] = own[-1]
        if own:
            self.sequences.levels[value] = tuple(own)

    def _share_levels(self, source: Value, value: Value) -> None:
        """Note that a value has the sequences of another."""
        self._forget_levels(value.name)
        levels = self.sequences.levels.get(source, ())
        if levels:
            self.sequences.levels[value] = levels
            self.levels |= {level_name(value.name, k): level for k, level in enumerate(levels)}

    def _array(self, name: str, spec: Spec, levels: int) -> Value:
        """Return a new value for an array of entries with this spec and so many levels."""
        value = self.current[name] = self._new(name, spec)
        self.array_levels[value] = levels
        return value

    def _gathered(self, op: Operator, name: str) -> Iterator[Node]:
        """Make an array, whose entries were known so far, a value."""
        if name not in self.arrays:
            return
        entries = self.arrays.pop(name)
        values = [entry for entry in entries if entry is not None]
        places = [k for k, entry in enumerate(entries) if entry is not None]
        bare = GRAD_SUFFIX in name
        depths = [] if bare else [len(self.sequences.levels.get(value, ())) for value in values]
        spec = values[0].spec if values else Spec((-1,), VarType.FP32)
        array = self._array(name, spec, max(depths, default=0))
        options = {"places": places, "count": len(entries)}
        yield self._call(op, "array", values, [array], options, bare=bare)


def with_levels_told(graph: Graph, names: Sequence[str]) -> Graph:
    """Return a graph in which levels of these names have no offsets where a call's result lacks the level."""
    substitutes: dict[Value, Value] = {}
    nodes: list[Node] = []
    wanted = {graph.latest[name] for name in names}
    for node in graph.nodes:
        nodes.append(node)
        if node.op != HOST_CALL or node.attrs["function"] not in _SHALLOW:
            continue
        for level in (value for value in node.writes() if value in wanted):
            substitutes[level] = replace(level, name=f"{level.name}@TOLD", version=0)
            attrs: dict[str, Any] = {"function": "told_level", "operands": [0], "results": [0]}
            attrs |= {"options": {}, "specs": [plain(OFFSETS)], "block": None}
            slots = {"X": (level,)}, {"Out": (substitutes[level],)}
            nodes.append(replace(node, inputs=slots[0], outputs=slots[1], attrs=attrs, grads=()))
    latest = {n: substitutes.get(v, v) if n in names else v for n, v in graph.latest.items()}
    return replace(graph, nodes=tuple(nodes), latest=latest) if substitutes else graph
