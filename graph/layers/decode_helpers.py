"""Helpers that give a BasicDecoder its next input: the words of a target, or its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...strategies.errors import InvalidType
from ...strategies.types import VarType
from ..program.variable import Variable
from .binary import equal, less_equal
from .decoding import Decoder
from .draws import sampling_id
from .nest import map_structure
from .shape import argmax, cast, fill_constant, fill_constant_batch_size_like, slice, squeeze
from .tensors import pad
from .unary import softmax


class DecodeHelper:
    """Base of the helpers of :class:`BasicDecoder`; define all three methods."""

    def initialize(self) -> Any:
        """Return (inputs of the first step, which sequences are finished before it)."""

    def sample(self, time: Variable, outputs: Any, states: Any) -> Any:
        """Return words [N], chosen by the outputs of a step."""

    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Any) -> Any:
        """Return (finished, inputs of the next step, states)."""


class TrainingHelper(DecodeHelper):
    """Reads a target, whatever the decoder writes.

    Args:
        inputs: [N, T, ...], or [T, N, ...] if ``time_major``; a Variable or a structure of them.
        sequence_length: int32 or int64 [N].
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        self.inputs, self.sequence_length, self.time_major = inputs, sequence_length, time_major
        # Behind the last step another is read, though not used.
        self.inputs_ = map_structure(lambda x: pad(x, self._one_more(x.ndim)), inputs)

    def _one_more(self, rank: int) -> list[int]:
        paddings = [0] * (2 * rank)
        paddings[1 if self.time_major else 3] = 1
        return paddings

    def initialize(self) -> tuple[Any, Variable]:
        """Return the first inputs; sequences of no length are finished."""
        zero = fill_constant([1], self.sequence_length.dtype, 0)
        finished = equal(self.sequence_length, zero)
        return map_structure(lambda x: x[0] if self.time_major else x[:, 0], self.inputs), finished

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """Return the most probable words."""
        return argmax(outputs, axis=-1)

    def next_inputs(
        self, time: Variable, outputs: Any, states: Any, sample_ids: Any
    ) -> tuple[Variable, Any, Any]:
        """Return the inputs at ``time + 1``."""
        time = time if time.dtype == VarType.INT32 else cast(time, "int32")
        if self.sequence_length.dtype != time.dtype:
            self.sequence_length = cast(self.sequence_length, time.dtype)
        next_time = time + 1
        finished = less_equal(self.sequence_length, next_time)
        axes = [0 if self.time_major else 1]

        def step(x: Variable) -> Variable:
            return squeeze(slice(x, axes, [next_time], [next_time + 1]), axes)

        return finished, map_structure(step, self.inputs_), states


class GreedyEmbeddingHelper(DecodeHelper):
    """Reads the most probable word of the step before.

    Args:
        embedding_fn: makes inputs of words [N].
        start_tokens: int64 [N].
        end_token: finishes a sequence.
    """

    def __init__(
        self, embedding_fn: Callable[..., Any], start_tokens: Variable, end_token: int
    ) -> None:
        if not callable(embedding_fn):
            raise InvalidType(
                f"{type(self).__name__}: embedding_fn must be callable, got {embedding_fn!r}."
            )
        self.embedding_fn, self.start_tokens = embedding_fn, start_tokens
        self.end_token = fill_constant([1], "int64", end_token)

    def initialize(self) -> tuple[Any, Variable]:
        """Return the inputs of ``start_tokens``; nothing is finished."""
        finished = fill_constant_batch_size_like(
            self.start_tokens, [-1], "bool", False, force_cpu=True
        )
        return self.embedding_fn(self.start_tokens), finished

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """Return the most probable words."""
        return argmax(outputs, axis=-1)

    def next_inputs(
        self, time: Variable, outputs: Any, states: Any, sample_ids: Any
    ) -> tuple[Variable, Any, Any]:
        """Return the inputs of the words."""
        finished = equal(sample_ids, self.end_token)
        return finished, self.embedding_fn(sample_ids), states


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Reads a word that is drawn by the probabilities of the step before.

    Args:
        softmax_temperature: outputs are divided by it; above 1 words are drawn more evenly.
        seed: of the draws; None or 0 for one of the program's.
    """

    def __init__(
        self,
        embedding_fn: Callable[..., Any],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        self.softmax_temperature = None
        if softmax_temperature is not None:
            self.softmax_temperature = fill_constant([1], "float32", softmax_temperature)
        self.seed = seed

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """Return words that are drawn."""
        logits = outputs if self.softmax_temperature is None else outputs / self.softmax_temperature
        probs = softmax(logits)
        probs.stop_gradient = True
        return sampling_id(probs, seed=self.seed or 0, dtype=self.start_tokens.dtype)


class BasicOutput(NamedTuple):
    """Outputs [N, ...] and words [N] of a step."""

    cell_outputs: Any
    sample_ids: Any


class BasicDecoder(Decoder):
    """Runs a cell, one word a step, which a helper chooses.

    Args:
        cell: called with (inputs, states, **kwargs), returns (outputs, new states).
        helper: a :class:`DecodeHelper`.
        output_fn: makes of the cell's outputs those of a step.
    """

    OutputWrapper = BasicOutput

    def __init__(
        self, cell: Callable[..., Any], helper: Any, output_fn: Callable[..., Any] | None = None
    ) -> None:
        if not callable(cell):
            raise InvalidType(f"BasicDecoder: cell must be callable, got {cell!r}.")
        self.cell, self.helper, self.output_fn = cell, helper, output_fn

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Return the helper's first inputs, and the cell's states ``inits``."""
        inputs, finished = self.helper.initialize()
        return inputs, inits, finished

    def step(
        self, time: Variable, inputs: Any, states: Any, **kwargs: Any
    ) -> tuple[BasicOutput, Any, Any, Variable]:
        """Run the cell, and let the helper choose words and the next inputs."""
        outputs, states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        words = self.helper.sample(time=time, outputs=outputs, states=states)
        words.stop_gradient = True
        finished, inputs, states = self.helper.next_inputs(
            time=time, outputs=outputs, states=states, sample_ids=words
        )
        return BasicOutput(outputs, words), states, inputs, finished
