"""Read loops into a graph: the block is read once for each round, where constants tell how many there are.

Each round reads the values that the round before wrote. The gradient block is read for each round, too, from
the last to the first: a gradient of a variable that rounds overwrite goes on to the round before, gradients of
a variable that all rounds read are added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..program.operator import Operator
from ..program.role import EMPTY_VAR, grad_name
from .block_reader import Scope, begins_with_write, block_of, node_of
from .data_loops import DataLoop, DataLoops, check_type, counters, touched
from .graph import Node, Value

_ROUNDS = 10_000  # rounds of a loop that are read at most


class Loops(DataLoops):
    """Reads ``while`` and its gradient op."""

    def _goes_on(self, op: Operator) -> bool | None:
        """Tell whether there is another round; None if only a step tells."""
        condition = self.constants.get(self._operand(op, "Condition"))
        return None if condition is None else bool(np.ravel(condition)[0])

    def _while(self, op: Operator) -> Iterator[Node]:
        state = self.current, self.arrays, self.scopes, self.levels
        self.current, self.arrays = dict(self.current), dict(self.arrays)
        self.scopes, self.levels = dict(self.scopes), dict(self.levels)
        nodes = self._unrolled(op)
        if nodes is not None:
            yield from nodes
            return
        self.current, self.arrays, self.scopes, self.levels = state
        yield from self._on_data(op)

    def _unrolled(self, op: Operator) -> list[Node] | None:
        """Read each round; return None if constants do not tell how many there are."""
        block, rounds, nodes = block_of(op), list[Scope](), list[Node]()
        if any(map(self._is_array, touched(block))):
            return None
        for name in op.inputs.get("X", ()):
            if name not in self.arrays:
                self._read(op.block, name)
        inside, first, readings = self.inside, dict(self.current), self.readings
        while goes_on := self._goes_on(op):
            if len(rounds) == _ROUNDS:
                self.readings = readings
                return None
            before = dict(self.current)
            self.inside, self.readings = f"{inside}@BLOCK{block.idx}@ROUND{len(rounds)}", []
            nodes += self._nodes(block)
            self.inside = inside
            for name, former in before.items():
                check_type(op, name, former.spec, self.current[name].spec)
            scope = self._left(before, op.inputs.get("X", ()))
            rounds.append(scope)
            self.current = {n: v for n, v in self.current.items() if n not in block.vars}
        self.readings = readings
        if goes_on is None or any(map(self._is_array, op.outputs.get("Out", ()))):
            return None
        for name in dict.fromkeys(op.outputs.get("Out", ())):
            value = self.current.get(name)
            if name not in self.arrays and value is not None and value is not first.get(name):
                result = self._result(op, name)
                self._share_levels(value, result)
                nodes.append(node_of(op, "assign", {"X": (value,)}, {"Out": (result,)}))
        self.scopes[op.outputs["StepScopes"][0]] = rounds
        return nodes

    def _while_gradient(self, op: Operator) -> Iterator[Node]:
        loop = self._of(op, "StepScopes")
        names = op.inputs.get("Out@GRAD", [])
        inner_names = op.attrs.get("original_output_grad") or names
        above = list(zip(inner_names, names, strict=True))
        if isinstance(loop, DataLoop):
            yield from self._gradient_on_data(op, loop, "X", above)
        else:
            yield from self._gradient_of_rounds(op, loop, above)

    def _gradient_of_rounds(
        self, op: Operator, rounds: Sequence[Scope], above: Sequence[tuple[str, str]]
    ) -> Iterator[Node]:
        block = block_of(op)
        arrays = {inner: self.arrays[name] for inner, name in above if name in self.arrays}
        carried = {inner: self.current[name] for inner, name in above if name in self.current}
        gradients = [
            (x, name)
            for x, name in zip(op.inputs["X"], op.outputs.get("X@GRAD", ()), strict=False)
            if name != EMPTY_VAR
        ]
        written = list(dict.fromkeys(op.inputs.get("Out", ())))
        fresh = set(map(grad_name, begins_with_write(block)))
        sum_names = {x: grad_name(x) for x, _ in gradients if x not in written}
        sums: dict[str, Value] = {}
        counted: dict[str, Value] = {}
        for number in range(len(rounds))[::-1]:
            scope = rounds[number]
            mark = f"@BLOCK{block.idx}@ROUND{number}"
            with self._body(mark, {**scope.values, **carried}, arrays):
                self._go_back(scope)
                start = dict(self.current)
                for name in sum_names.values():
                    self.current.pop(name, None)  # those around it are other values
                yield from self._nodes(block)
                arrays = {n: a for n, a in self.arrays.items() if n not in block.vars}
                counted = {n: self.current[n] for n in counters(block)}
                yield from self._add_up(op, sums, sum_names)
                for name in map(grad_name, written):
                    yield from self._carry(op, name, carried, start.get(name), name in fresh)
        # Counted back, they say again where entries were written before the loop.
        self.current |= counted
        outputs = op.outputs.get("X@GRAD", ())
        self.current |= {n: carried[i] for i, n in above if i in carried and n not in outputs}
        for x, name in gradients:
            if grad_name(x) in arrays:
                self.arrays[name] = arrays[grad_name(x)]
                continue
            if x in self.arrays:
                continue
            value = (carried if x in written else sums).get(grad_name(x))
            like = self._value_of(op, x)
            yield from self._named(op, name, value, like)
            self._share_levels(like, self.current[name])

    def _carry(
        self, op: Operator, name: str, carried: dict[str, Value], start: Value | None, fresh: bool
    ) -> Iterator[Node]:
        """Note the gradient that a round leaves to the round before, if it began with ``start``.

        It is 0 where the round writes the variable without reading it (``fresh``), or leaves it alone.
        """
        value = self.current.get(name)
        untouched = value is not None and value is start
        if name in carried and (untouched or fresh):
            value = yield from self._zeros(op, f"{name}@NONE", carried[name])
        if value is not None and value is not start:
            carried[name] = value
