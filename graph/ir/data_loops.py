"""Read loops whose number of rounds depends on data: each is one node, its block a graph of its own.

Outer variables that the block writes are carried: fed to a round, fetched from it, and fed to the next. Those
that it only reads are fed to every round; it reads persistables from their scope.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...strategies.errors import InvalidType
from ...strategies.types import VarType
from ..ops.registry import Spec
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import EMPTY_VAR, grad_name
from .arrays import Arrays
from .block_reader import Scope, begins_with_write, block_of, node_of
from .graph import FEED, STATE, TEMP, Graph, Node, Value
from .sequences import Levels, Sequences

_ANY = Spec((-1,), VarType.FP32)  # of an array of which no entry is known


@dataclass(frozen=True)
class Body:
    """The graph of a block, and the ``results`` of a round, as names in ``graph.latest``.

    The values for the next round come first, then the values of this round that the gradient needs.
    """

    graph: Graph
    results: list[str]
    latest: dict[str, Value]

    @staticmethod
    def of(nodes: Sequence[Node], feeds: Sequence[Value], results: Sequence[Value]) -> Body:
        """Return the body with these nodes, feeds and results."""
        latest: dict[str, Value] = {}
        body = Body(Graph(tuple(nodes), tuple(feeds), latest), [], latest)
        for value in results:
            body.save(value)
        return body

    def save(self, value: Value) -> None:
        """Add a value to the results of a round."""
        name = f"{value.name}.{value.version}"
        self.latest[name] = value
        self.results.append(name)


@dataclass(frozen=True)
class DataLoop:
    """A loop that was read, for its gradient.

    ``carried`` counts the values for the next round; ``scope`` holds the results of a round; ``outside`` maps
    values of the block that are the same in each round to those around it; ``states`` are the persistables;
    ``rounds`` is the value that holds the saved values of all rounds.
    """

    body: Body
    carried: int
    scope: Scope
    outside: Mapping[Value, Value]
    states: Sequence[Value]
    rounds: Value


@dataclass(frozen=True)
class Rounds:
    """A way to read the rounds of a loop: ``nodes`` reads one, forward or back.

    ``carried``: name of a value that a round reads -> name of the value of this round that the next one reads
    in its place. ``scopes`` is the variable for the results that the gradient reads.
    """

    scopes: str
    carried: Mapping[str, str]
    nodes: Callable[[], Iterable[Node]]


class DataLoops(Arrays):
    """Reads ``while`` and its gradient op as calls.

    ``sources`` has, by the values of persistables that calls compute, the temporaries that are copied there: it
    is at the end of a step that persistables change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[Value, Value] = {}

    def _on_data(self, op: Operator) -> Iterator[Node]:
        block = block_of(op)
        outer_names = yield from self._touched(op)
        (condition,), (scopes,) = op.inputs["Condition"], op.outputs["StepScopes"]
        carried = [condition, *(n for n, w in outer_names.items() if w and n != condition)]
        operands, states = yield from self._fed(op, outer_names, carried)
        rounds = Rounds(scopes, {n: n for n in carried}, lambda: self._nodes(block))
        yield from self._run_loop(op, rounds, operands, states)

    def _touched(self, op: Operator) -> Generator[Node, None, dict[str, bool]]:
        """Return the names outside a block that it reads or writes; make the arrays among them values."""
        names = touched(block_of(op))
        for name in names:
            if name not in self.current and op.block.has_array(name):
                self.arrays.setdefault(name, ())
            yield from self._gathered(op, name)
        return names

    def _fed(
        self, op: Operator, outer_names: Mapping[str, bool], carried: Collection[str]
    ) -> Generator[Node, None, tuple[dict[str, Value | None], list[Value]]]:
        """Return the operands of a round by name, carried ones first, and the persistables that it reads."""
        operands: dict[str, Value | None] = {}
        states: list[Value] = []
        for name in (*carried, *(n for n in outer_names if n not in carried)):
            written = name in carried
            if written and name not in self.current and not _lasts(op.block, name):
                operands[name] = None  # nothing wrote it before the loop
                continue
            value = self._read(op.block, name)
            if value is not None and value.kind == STATE:
                if not written and value.version == 0:
                    states.append(value)
                    continue
                value = yield from self._copied(op, value)
            operands[name] = value
        return operands, states

    def _copied(self, op: Operator, value: Value) -> Generator[Node, None, Value]:
        """Return a persistable's value as one that calls may read; another value as it is."""
        if value.kind != STATE:
            return value
        if value in self.sources:
            return self.sources[value]
        copy = self._new(f"{value.name}@BLOCK{block_of(op).idx}@START", value.spec)
        yield node_of(op, "assign", {"X": (value,)}, {"Out": (copy,)})
        return copy

    def _run_loop(
        self,
        op: Operator,
        rounds: Rounds,
        operands: Mapping[str, Value | None],
        states: Sequence[Value],
    ) -> Iterator[Node]:
        """Read a loop and call it; its names then stand for the values that it carried."""
        block = block_of(op)
        loop, results, levels = self._read_loop(op, rounds, operands, states)
        fed: list[Value | None] = []
        for name, outer in operands.items():
            if outer is None:
                fed += [None] * (1 + levels[name])
            else:
                value, nodes = self._as_deep(op, outer, levels[name])
                yield from nodes
                fed.append(value)
        outputs: list[Value] = []
        lasting: dict[str, Value] = {}
        for name, result in zip(rounds.carried, results, strict=True):
            if result in self.array_levels:
                value = self._array(name, result.spec, self.array_levels[result])
            elif op.block.find_var_recursive(name) is None:  # no name of the program
                value = self.current[name] = self._new(name, result.spec)
            elif _lasts(op.block, name):
                value = lasting[name] = self._new(f"{name}@BLOCK{block.idx}@OUT", result.spec)
            else:
                value = self._tensor(op.block, name, self._levels(result))
            outputs.append(value)
        self.scopes[rounds.scopes] = loop
        outputs.append(loop.rounds)
        yield self._call(op, op.type, fed, outputs, block=loop.body, states=states)
        for name, value in lasting.items():
            state = self._result(op, name)
            self.sources[state] = value
            yield node_of(op, "assign", {"X": (value,)}, {"Out": (state,)})

    def _read_loop(
        self,
        op: Operator,
        rounds: Rounds,
        operands: Mapping[str, Value | None],
        states: Sequence[Value],
    ) -> tuple[DataLoop, list[Value], Mapping[str, int]]:
        """Read the block of a loop; return it, a round's results for the carried names, and levels by name.

        Where a round changes the sizes or deepens the levels of a carried value, the block is read again, with
        unknown sizes and the deeper levels.
        """
        specs = {n: _spec(op, n) if v is None else v.spec for n, v in operands.items()}
        levels = {n: 0 if v is None else self._levels_within(v) for n, v in operands.items()}
        while True:
            loop, results = self._read_round(op, rounds, operands, specs, levels, states)
            by_name = dict(zip(rounds.carried, results, strict=True))
            ends = {n: _joined(specs[n], r.spec) for n, r in by_name.items()}
            deeper = {n: max(levels[n], self._levels_within(r)) for n, r in by_name.items()}
            if ends.items() <= specs.items() and deeper.items() <= levels.items():
                return loop, results, levels
            specs |= ends
            levels |= deeper

    def _levels_within(self, value: Value) -> int:
        """Return how many levels of sequences a value has, or the entries of an array."""
        return self.array_levels.get(value, len(self.sequences.levels.get(value, ())))

    def _as_deep(self, op: Operator, value: Value, levels: int) -> tuple[Value, list[Node]]:
        """Return a value with so many levels, and the nodes that add the outer ones that it lacks."""
        if value in self.array_levels or self._levels(value) >= levels:
            return value, []
        result = self._new(f"{value.name}@DEEP", value.spec)
        self._give_levels(result, levels, TEMP)
        return result, [self._call(op, "as_deep", [value], [result], {"levels": levels})]

    def _read_round(
        self,
        op: Operator,
        rounds: Rounds,
        operands: Mapping[str, Value | None],
        specs: Mapping[str, Spec],
        levels: Mapping[str, int],
        states: Sequence[Value],
    ) -> tuple[DataLoop, list[Value]]:
        """Read the block of a loop, given the specs and levels of a round's operands."""
        block = block_of(op)
        feeds: list[Value] = []
        outside: dict[Value, Value] = {}
        inside: dict[Levels, Value] = {}  # levels of outer values -> the fed value that has them
        saved = self._array(f"{rounds.scopes}@ROUNDS", _ANY, 0)
        with self._alone(f"@BLOCK{block.idx}"):
            self.current |= {state.name: state for state in states}
            for name, outer in operands.items():
                value = self.current[name] = self._new(f"{name}@IN", specs[name], FEED)
                steady = None if name in rounds.carried else outer
                own = () if steady is None else self.sequences.levels.get(steady, ())
                if outer in self.array_levels:
                    self.array_levels[value] = levels[name]
                elif own in inside:
                    self._share_levels(inside[own], value)
                else:
                    self._give_levels(value, levels[name], FEED)
                    inside |= {own: value} if own else {}
                feeds += _flat([value], self.sequences)
                if steady is not None:
                    flat = _flat([value], self.sequences), _flat([steady], self.sequences)
                    outside |= zip(*flat, strict=True)
            nodes = list(rounds.nodes())
            results = []
            scope = self._left({})
            for name, left in rounds.carried.items():
                result, more = self._as_deep(op, self.current[left], levels[name])
                results.append(result)
                nodes += more
        for name, result in zip(rounds.carried, results, strict=True):
            if result not in self.array_levels:
                check_type(op, name, specs[name], result.spec)
        body = Body.of(nodes, feeds, _flat(results, self.sequences))
        loop = DataLoop(body, len(body.results), scope, outside, states, saved)
        return loop, results

    def _gradient_on_data(
        self, op: Operator, loop: DataLoop, slot: str, above: Sequence[tuple[str, str]]
    ) -> Iterator[Node]:
        """Run the gradient block for each round, from the last to the first.

        ``slot`` holds the operands of rounds; ``above`` are the names of their results' gradients, in the
        gradient block and around it.

        A gradient of a variable that rounds overwrite goes on to the round before. Of a variable that all
        rounds read, each round computes a part of the gradient, and the call adds up the parts.
        """
        block = block_of(op)
        for _, name in above:
            if name not in self.current and op.block.has_array(name):
                # Nothing behind the loop reads what it wrote there.
                self.arrays.setdefault(name, ())
            yield from self._gathered(op, name)
        outputs = op.outputs.get(f"{slot}@GRAD", ())
        pairs = zip(op.inputs.get(slot, ()), outputs, strict=False)
        gradients = {x: name for x, name in pairs if name != EMPTY_VAR}
        written = set(op.inputs.get("Out", ()))
        # The values that a round passes to the round before, by their names in the block
        state = {inner: self.current[name] for inner, name in above if name in self.current}
        state |= {n: self.current[n] for n in counters(block)}
        for x in gradients:
            like = self._read(op.block, x)
            if grad_name(x) in state or like is None:
                continue
            if like in self.array_levels:
                zero = self._array(f"{gradients[x]}@ZERO", like.spec, 0)
                yield self._call(op, "array", [], [zero], {"places": [], "count": 0})
            else:
                zero = yield from self._zeros(op, f"{gradients[x]}@ZERO", like)
            state[grad_name(x)] = zero
        totals = dict.fromkeys(grad_name(x) for x in gradients if x not in written)
        rounds = Rounds("", {name: name for name in state}, lambda: self._nodes(block))
        results = yield from self._run_back(op, rounds, loop, state, totals)
        self.current |= {n: results[n] for n in counters(block)}
        self.current |= {n: results[i] for i, n in above if i in results and n not in outputs}
        for x, name in gradients.items():
            value = results.get(grad_name(x))
            if value is not None and value in self.array_levels:
                self.current[name] = value
                continue
            like = self._value_of(op, x)
            yield from self._named(op, name, value, like)
            self._share_levels(like, self.current[name])

    def _run_back(
        self,
        op: Operator,
        rounds: Rounds,
        loop: DataLoop,
        state: Mapping[str, Value],
        totals: Collection[str],
    ) -> Generator[Node, None, dict[str, Value]]:
        """Call the gradient of a loop; return, by name, the last round's results and the ``totals`` of parts.

        Totals begin with their values in ``state``, which are the last operands of the call.
        """
        block = block_of(op)
        sums = {n: state[n] for n in totals if n in state and state[n] not in self.array_levels}
        carried = {name: value for name, value in state.items() if name not in sums}
        nodes, feeds, behind = self._read_back(op, rounds, loop, carried, sums)
        body, captured, options = self._body_back(op, loop, nodes, feeds, list(behind.values()))
        results = {
            name: self._array(f"{name}@TOTAL", value.spec, 0)
            if value in self.array_levels
            else self._new(f"{name}@BLOCK{block.idx}@TOTAL", value.spec)
            for name, value in behind.items()
        }
        begins = [sums[name] for name in results if name in sums]
        operands = [loop.rounds, *carried.values(), *captured, *begins]
        options["totals"] = len(begins)
        yield self._call(
            *(op, op.type, operands, list(results.values()), options),
            block=body,
            states=loop.states,
            bare=True,
        )
        return sums | results

    def _body_back(
        self,
        op: Operator,
        loop: DataLoop,
        nodes: Sequence[Node],
        feeds: Sequence[Value],
        results: Sequence[Value],
    ) -> tuple[Body, list[Value], dict[str, int]]:
        """Return the gradient's body, the outer values that it is fed, and the positions of saved ones.

        Its first feeds are the values that the forward loop saved in each round.
        """
        computed = {value for node in nodes for value in node.writes()} | {*feeds}
        read = dict.fromkeys([*(v for node in nodes for v in node.reads()), *results])
        forward = loop.body.graph
        inner = {value for node in forward.nodes for value in node.writes()} | {*forward.feeds}
        swap: dict[Value, Value] = {}
        saved, captured, first = list[Value](), list[Value](), len(loop.body.results)
        for value in read:
            if value in computed or value.kind == STATE:
                continue
            name = f"{value.name}@BLOCK{block_of(op).idx}@SAVED"
            swap[value] = self._new(name, value.spec, FEED)
            if value in self.array_levels:
                self.array_levels[swap[value]] = self.array_levels[value]
            if value in inner and value not in loop.outside:
                loop.body.save(value)
                saved.append(swap[value])
            else:
                captured.append(value)
        fed = [*saved, *feeds, *(swap[value] for value in captured)]
        body = Body.of(
            [node.reading(swap) for node in nodes], fed, [swap.get(v, v) for v in results]
        )
        options = {"first": first - loop.carried, "saved": len(saved)}
        return body, [loop.outside.get(value, value) for value in captured], options

    def _read_back(
        self,
        op: Operator,
        rounds: Rounds,
        loop: DataLoop,
        state: Mapping[str, Value],
        totals: Collection[str],
    ) -> tuple[list[Node], list[Value], dict[str, Value]]:
        """Read the gradient block; return its nodes, the values of ``state`` that it is fed, and its results.

        These are the state behind it, and then the parts of ``totals`` that it has.
        """
        block = block_of(op)
        fresh = set(map(grad_name, begins_with_write(block)))
        around, nodes = dict(self.current), list[Node]()
        with self._alone(f"@BLOCK{block.idx}"):
            self.current |= {**around, **loop.scope.values}
            self._go_back(loop.scope)
            feeds: dict[str, Value] = {}
            for name, outer in state.items():
                value = feeds[name] = self._new(f"{name}@IN", outer.spec, FEED)
                if outer in self.array_levels:
                    self.array_levels[value] = 0
            counted = counters(block)
            self.current |= {n: v for n, v in feeds.items() if n not in counted}
            for name in totals:
                self.current.pop(name, None)
            nodes += rounds.nodes()
            results: dict[str, Value] = {}
            for name, fed in feeds.items():
                value = results[name] = self.current.get(rounds.carried[name], fed)
                if value in self.array_levels or name in counted:
                    continue
                if value is fed or rounds.carried[name] in fresh:
                    # The round writes the variable without reading what stood there.
                    results[name] = self._new(f"{name}@NONE", fed.spec)
                    operand = {"X": (fed,)}
                    nodes.append(node_of(op, "fill_zeros_like", operand, {"Out": (results[name],)}))
            parts = {name: self.current.get(rounds.carried[name]) for name in totals}
            results |= {name: part for name, part in parts.items() if part is not None}
        return nodes, list(feeds.values()), results

    @contextmanager
    def _alone(self, mark: str) -> Iterator[None]:
        """Read a block of which nothing around it is seen."""
        around = self.current, self.arrays, self.scopes, self.levels, self.inside
        readings, self.readings = self.readings, []
        self.current, self.arrays, self.scopes, self.levels = {}, {}, {}, {}
        self.inside += mark
        try:
            yield
        finally:
            self.current, self.arrays, self.scopes, self.levels, self.inside = around
            self.readings = readings


def _flat(values: Sequence[Value], sequences: Sequences) -> list[Value]:
    """Return values with their levels behind them."""
    return [each for value in values for each in (value, *sequences.levels.get(value, ()))]


def check_type(op: Operator, name: str, before: Spec, behind: Spec) -> None:
    """Refuse a round that changes the type of what is carried.

    Raises:
        InvalidType: the elements have another type behind the round.
    """
    if behind.dtype != before.dtype:
        raise InvalidType(
            f"{op.type}: {name!r} is {before} before a round and {behind} behind it: what is carried keeps "
            f"the type of its elements. {op.where}"
        )


def counters(block: Block) -> set[str]:
    """Return the names that a block counts up, which gradient blocks count back."""
    return {n for op in block.ops if op.type == "increment" for n in op.output_arg_names}


def _lasts(block: Block, name: str) -> bool:
    return block.var_recursive(name).persistable


def touched(block: Block) -> dict[str, bool]:
    """Return the names outside a block that it reads or writes, and whether it writes them."""
    names: dict[str, bool] = {}
    for op in block.ops:
        inner = op.attrs.get("sub_block")
        writes = dict.fromkeys(op.input_arg_names, False)
        writes |= touched(inner) if isinstance(inner, Block) else {}
        writes |= dict.fromkeys(op.output_arg_names, True)
        for name, written in writes.items():
            outside = name != EMPTY_VAR and name not in block.vars
            if outside and block.find_var_recursive(name) is not None:
                names[name] = names.get(name, False) or written
    return names


def _joined(one: Spec, other: Spec) -> Spec:
    """Return a spec whose sizes are unknown where two have others; of another rank it is the first."""
    if len(one.shape) != len(other.shape):
        return one
    sizes = zip(one.shape, other.shape, strict=True)
    return Spec(tuple(n if n == m else -1 for n, m in sizes), one.dtype)


def _spec(op: Operator, name: str) -> Spec:
    """Return the spec of a variable that nothing wrote before the loop."""
    variable = op.block.var_recursive(name)
    return Spec(tuple(variable.shape or ()), variable.dtype or VarType.FP32)
