"""HostCall: loops and functions of tensor arrays, which the host runs between the plans of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...graph.ir.replica_program import NodeRecord, ReplicaProgram, ValueRecord
from ...graph.ops.host_call import ARRAY
from ...strategies.errors import CollectiveError, ExecutionError
from ..host.deadline import Deadline
from .hypotheses import beam_search_decode
from .python_call import py_func
from .tensor_array import FUNCTIONS, Entry, NoLevel, Unwritten, as_deep

Values = dict[int, Any]  # by position in a program: a tensor, or an array of tensors
Totals = dict[int, list[np.ndarray]]  # by position: those to which what a segment fetches is added
# Parts, values, number of the round, totals
RunRound = Callable[[Sequence[Any], Values, int, Totals], None]
# Of the seconds of a step: the driver is to hear of a loop before it gives the replica up.
_LOOPS_PART = 0.9
_FUNCTIONS = {**FUNCTIONS, **{each.__name__: each for each in (beam_search_decode, py_func)}}


def add_to(totals: Iterable[np.ndarray], part: np.ndarray) -> None:
    """Add a part to totals, in place; overflows are values, not warnings."""
    with np.errstate(all="ignore"):
        for total in totals:
            np.add(total, part, total)


def fed_to(segment: ReplicaProgram, values: Values) -> list[Any]:
    """Return what a segment is fed.

    Raises:
        ExecutionError: nothing was written to some of it: a branch was not taken, a loop made no round.
    """
    try:
        return [values[i] for i in segment.feeds]
    except KeyError:
        missing = next(i for i in segment.feeds if i not in values)
        reader = next((node for node in segment.nodes if missing in node.touches()), None)
        where = f" (operator {reader.op}, built at {reader.where})" if reader else ""
        refusal = Unwritten(segment.values[missing].name).refusal
        raise ExecutionError(f"{refusal}{where}") from None


class LoopDeadline(Deadline):
    """The end of the loops of a step that may take ``step_s`` seconds from now on."""

    def __init__(self, step_s: float) -> None:
        super().__init__(_LOOPS_PART * step_s)
        self.step_s = step_s


class HostCall:
    """One call. ``body``: the parts of a loop's block, which ``load`` returns."""

    def __init__(
        self,
        record: NodeRecord,
        values: Sequence[ValueRecord],
        load: Callable[[ReplicaProgram], Sequence[Any]],
    ) -> None:
        self.record, self._declared = record, values
        self.function: str = record.attrs["function"]
        block = record.attrs["block"]
        self.program = None if block is None else ReplicaProgram.from_data(block)
        self.body = () if self.program is None else tuple(load(self.program))
        positions = iter(record.inputs.get("X", ()))
        self._groups = [  # of each operand: its levels, its position, and those of its offsets
            (levels, next(positions), tuple(next(positions) for _ in range(max(levels, 0))))
            for levels in record.attrs["operands"]
        ]

    @property
    def reads(self) -> set[int]:
        """Positions of what it reads."""
        return {i for positions in self.record.inputs.values() for i in positions}

    @property
    def goes_back(self) -> bool:
        """Whether it is the gradient of a loop."""
        return self.program is not None and self.function.endswith("_grad")

    @property
    def rounds(self) -> int:
        """The position of what a loop saves of its rounds: it writes that, and its gradient reads it."""
        return self.record.inputs["X"][0] if self.goes_back else self.record.outputs["Out"][-1]

    def fetched_for(self, gradient: HostCall | None) -> set[int]:
        """Return the positions of what is fetched of the block of a loop, less those read for shapes alone.

        ``gradient`` is the call that goes back through the rounds (None: there is none).
        """
        assert self.program is not None, "a loop has a block"
        unread = set[int]()
        if gradient is not None:
            block, options = gradient.program, gradient.record.attrs["options"]
            assert block is not None, "a loop's gradient has a block"
            first = len(self.record.outputs["Out"]) - 1 + options["first"]
            read = set(block.fetches).union(*(part.reads for part in gradient.body))
            unread = {first + k for k in range(options["saved"]) if block.feeds[k] not in read}
        return {i for k, i in enumerate(self.program.fetches) if k not in unread}

    def run(self, values: Values, run_round: RunRound, deadline: LoopDeadline) -> None:
        """Compute from ``values``, and add the results to them.

        Raises:
            ExecutionError: it failed, or is a loop that goes on at the ``deadline``; the message names it, what
                it reads and the user's line.
        """
        try:
            if self.program is None:
                results = _FUNCTIONS[self.function](
                    *self._operands(values), **self.record.attrs["options"]
                )
                flat = list(self._flat(results))
            else:
                if self.function.endswith("_grad"):
                    flat = self._back(self.program, values, run_round)
                else:
                    flat = self._loop(self.program, values, run_round, deadline)
        except (CollectiveError, ExecutionError):
            raise
        except Exception as error:
            raise self._explain(error) from error
        positions = self.record.outputs["Out"]
        values |= {i: each for i, each in zip(positions, flat, strict=True) if each is not None}

    def _operands(self, values: Values) -> Iterator[Any]:
        for levels, position, offsets in self._groups:
            if levels == ARRAY:
                yield values.get(position, ())  # a loop that made no round wrote no entry
            elif position not in values:
                yield Unwritten(self._declared[position].name)
            else:
                own = [values[i] for i in offsets]
                levels = tuple([each for each in own if not isinstance(each, NoLevel)])
                yield Entry(values[position], levels)

    def _value(self, values: Values, position: int) -> Any:
        if position not in values:
            raise Unwritten(self._declared[position].name).refusal
        return values[position]

    def _flat(self, results: Iterable[Any]) -> Iterator[Any]:
        """Return tensors and their offsets side by side, as many as are declared."""
        for levels, result in zip(self.record.attrs["results"], results, strict=True):
            if levels == ARRAY:
                yield result
                continue
            (result,) = as_deep(result, levels)
            yield from (result.elements, *result.levels)

    def _loop(
        self,
        program: ReplicaProgram,
        values: Values,
        run_round: RunRound,
        deadline: LoopDeadline,
    ) -> list[Any]:
        """Run the body while the condition, which is the first value, holds."""
        state: list[Any] = [values.get(i) for i in self.record.inputs["X"]]
        count, rounds = len(self.record.outputs["Out"]) - 1, list[list[Any]]()
        while _holds(state[0]):
            if deadline.over:
                raise TimeoutError(
                    f"it goes on after {len(rounds):,} rounds, {deadline.seconds:.3g} s into a step that may "
                    f"take {deadline.step_s:g} s. See why its condition holds, or raise "
                    f"ClusterConfig.step_deadline_s"
                )
            results = self._round(program, state, run_round, len(rounds), {})
            state[:count] = results[:count]
            rounds.append(results[count:])
        return [*state[:count], rounds]

    def _back(self, program: ReplicaProgram, values: Values, run_round: RunRound) -> list[Any]:
        """Run the body for each round of a loop, from the last to the first, on what was saved of it.

        The last values it computes are parts of totals, of which no other part of the body reads most: those
        are added where their segment left them.
        """
        rounds, *state = (self._value(values, i) for i in self.record.inputs["X"])
        options = self.record.attrs["options"]
        saved = slice(options["first"], options["first"] + options["saved"])
        count = len(program.fetches) - options["totals"]
        last = len(state) - options["totals"]
        totals, state = [np.array(begin) for begin in state[last:]], state[:last]
        in_place: Totals = {}
        apart = self._fetched_only().difference(program.fetches[:count])
        for i, total in zip(program.fetches[count:], totals, strict=True):
            if i in apart:
                in_place.setdefault(i, []).append(total)
        for number, results in reversed(list(enumerate(rounds))):
            fed = [*results[saved], *state]
            computed = self._round(program, fed, run_round, number, in_place)
            state[:count] = computed[:count]
            for total, part in zip(totals, computed[count:], strict=True):
                if part is not None:
                    add_to([total], part)
        return [*state[:count], *totals]

    def _fetched_only(self) -> set[int]:
        """Return the positions of what segments of the body compute and no part of it reads."""
        computed, read = set[int](), set[int]()
        for part in self.body:
            if isinstance(part, HostCall):
                read.update(part.record.inputs.get("X", ()))
            else:
                computed.update(part.program.fetches)
                read.update(part.program.feeds)
        return computed - read

    def _round(
        self,
        program: ReplicaProgram,
        fed: Sequence[Any],
        run_round: RunRound,
        number: int,
        totals: Totals,
    ) -> list[Any]:
        """Return what a round computes; None for what went into totals."""
        values = {i: each for i, each in zip(program.feeds, fed, strict=True) if each is not None}
        run_round(self.body, values, number, totals)
        return [values.get(i) for i in program.fetches]

    def _explain(self, error: Exception) -> ExecutionError:
        positions = (i for i in self.record.inputs.get("X", ()) if i >= 0)
        names = ", ".join(self._declared[i].name for i in positions) or "nothing"
        return ExecutionError(
            f"operator {self.function} failed: {error} (reads {names}; built at {self.record.where})"
        )


def _holds(condition: Any) -> bool:
    """Tell whether a condition is true.

    Raises:
        ValueError: it has not one element, as only a step may tell.
    """
    if np.size(condition) != 1:
        shape = list(np.shape(condition))
        raise ValueError(f"its condition must have one element, and has the shape {shape}")
    return bool(np.ravel(condition)[0])
