"""Evaluators of Paddle 1.x: measures that the program itself adds up in persistables.

On several places each adds up what it is fed; ``eval`` reads the first place's sums. ``fluid.metrics`` adds up
on the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.layers.binary import elementwise_sub, equal
from ...graph.layers.helper import LayerHelper
from ...graph.layers.initializer import ConstantInitializer
from ...graph.layers.sequence_metric import chunk_eval, edit_distance
from ...graph.layers.shape import cast, fill_constant, reduce_sum, sums
from ...graph.program import unique_name
from ...graph.program.program import Program, program_guard
from ...graph.program.variable import Variable
from ...graph.program.where import warn_user
from ...strategies.errors import InvalidState, InvalidValue
from .metrics import chunk_measures


class Evaluator:
    """Sums over batches, held by ``states``; ``metrics`` are variables that measure one batch."""

    def __init__(self, name: str, **keywords: Any) -> None:
        kind = type(self).__name__
        warn_user(f"fluid.evaluator.{kind} is deprecated; use fluid.metrics.{kind}.")
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []
        self.helper = LayerHelper(name, **keywords)
        if self.helper.block.idx:
            raise InvalidValue(f"{kind}: must be built in the program's first block.")

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Set all sums to zero: a new pass begins."""
        program = reset_program or Program()
        with program_guard(program):
            for state in self.states:
                zeros = program.current_block()._clone_variable(state)
                fill_constant(zeros.shape, zeros.dtype, 0.0, out=zeros)
        executor.run(program)

    def _add(self, suffix: str, dtype: str, value: Variable) -> None:
        """Add a batch's value to a new state, which is 0 from the startup program on."""
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_global(name, [1], dtype, ConstantInitializer(0.0))
        self.states.append(state)
        sums([state, value], out=state)

    def _sums(self, executor: Any, eval_program: Program | None) -> list[float]:
        """Return what the states hold."""
        program = eval_program or Program()
        block = program.current_block()
        states = [block._clone_variable(state) for state in self.states]
        return [np.asarray(value).item() for value in executor.run(program, fetch_list=states)]


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of chunks over batches (``layers.chunk_eval``)."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: Sequence[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        *ratios, num_infer, num_label, num_correct = chunk_eval(
            input, label, chunk_scheme, num_chunk_types, excluded_chunk_types
        )
        for suffix, count in (("infer", num_infer), ("label", num_label), ("correct", num_correct)):
            self._add(f"num_{suffix}_chunks", "int64", count)
        self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks = self.states
        self.metrics += ratios

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[np.ndarray, ...]:
        """Return precision, recall and F1, float32 [1]."""
        measures = chunk_measures(*self._sums(executor, eval_program))
        return tuple(np.array([value], np.float32) for value in measures)


class EditDistance(Evaluator):
    """The mean edit distance over batches, and the share of pairs that differ (``layers.edit_distance``)."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        ignored_tokens: Sequence[int] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__("edit_distance", **keywords)
        distances, count = edit_distance(input, label, ignored_tokens=ignored_tokens)
        zero = fill_constant([1], "float32", 0.0)
        right = reduce_sum(cast(equal(distances, zero), "int64"))
        total, wrong = reduce_sum(distances), elementwise_sub(count, right)
        self._add("total_distance", "float32", total)
        self._add("seq_num", "int64", count)
        self._add("instance_error", "int64", wrong)
        self.total_distance, self.seq_num, self.instance_error = self.states
        self.metrics += [total, wrong]

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[np.ndarray, ...]:
        """Return the mean distance, and the share of pairs that differ, float32 [1].

        Raises:
            InvalidState: no pair was measured.
        """
        total, count, wrong = self._sums(executor, eval_program)
        if not count:
            raise InvalidState("EditDistance: no pair was measured, so there is no mean.")
        return np.array([total / count], np.float32), np.array([wrong / count], np.float32)
