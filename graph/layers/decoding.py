"""Decoders, which write sequences word by word, and the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import VarType
from ..program.program import default_main_program
from ..program.variable import Variable
from . import binary, matrices
from . import shape as shapes
from .arguments import check_variable
from .arrays import array_read, array_write, create_array, tensor_array_to_tensor
from .beam import check_beam
from .loops import While
from .nest import assert_same_structure, flatten, map_structure
from .rnn import masked, swap
from .tensors import gather_nd, reduce_all
from .trees import gather_tree
from .unary import log, softmax

_LEAST = -1e9  # the logarithm of no probability


class Decoder:
    """Base of decoders that :func:`dynamic_decode` runs; define ``initialize`` and ``step``."""

    tracks_own_finished = False  # finished sequences stay so, and are counted here

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Return inputs and states of the first step, and which sequences are finished before it."""
        raise NotImplementedError("Decoder must implement the initialize function.")

    def step(
        self, time: Variable, inputs: Any, states: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any, Variable]:
        """Return (outputs, next states, next inputs, finished); states keep their structure."""
        raise NotImplementedError("Decoder must implement the step function.")

    def finalize(
        self, outputs: Any, final_states: Any, sequence_lengths: Variable
    ) -> tuple[Any, Any]:
        """Return (outputs, states) from the outputs of all steps [T, N, ...]; without it they stay."""
        raise NotImplementedError("Decoder need not implement the finalize function.")


class BeamOutput(NamedTuple):
    """The choices of a step: scores, words and the beams they continue, each [N, beam]."""

    scores: Variable
    predicted_ids: Variable
    parent_ids: Variable


class BeamState(NamedTuple):
    """States of the cell [N, beam, ...], and of each beam its log probability, end and length [N, beam]."""

    cell_states: Any
    log_probs: Variable
    finished: Variable
    lengths: Variable


class BeamSearchDecoder(Decoder):
    """Keeps the ``beam_size`` most probable sequences of each sample.

    Args:
        cell: called with (inputs, states, **kwargs), returns (outputs, new states); its rows are [N * beam].
        start_token, end_token: the words that sequences begin and end with.
        embedding_fn: makes inputs of words [N, beam]; without it they are the inputs.
        output_fn: makes logits [N, beam, vocabulary] of the cell's outputs; without it they are the logits.

    Raises:
        InvalidType: ``cell`` is not callable, or a number is no int.
        InvalidValue: there is no such beam or end.
    """

    OutputWrapper, StateWrapper = BeamOutput, BeamState

    def __init__(
        self,
        cell: Callable[..., Any],
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[..., Any] | None = None,
        output_fn: Callable[..., Any] | None = None,
    ) -> None:
        if not callable(cell):
            raise InvalidType(f"BeamSearchDecoder: cell must be callable, got {cell!r}.")
        check_beam(beam_size, end_token, "BeamSearchDecoder", "end_token")
        self.cell, self.embedding_fn, self.output_fn = cell, embedding_fn, output_fn
        self.start_token, self.end_token, self.beam_size = start_token, end_token, beam_size

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """Repeat each row of x [N, ...] for all beams: [N * beam_size, ...]."""
        check_variable(x, "x", "BeamSearchDecoder.tile_beam_merge_with_batch")
        tiled = _repeated(x, beam_size)
        inner = list(range(2, tiled.ndim))
        last = shapes.reshape(shapes.transpose(tiled, [*inner, 0, 1]), [*[0] * len(inner), -1])
        return shapes.transpose(last, [len(inner), *range(len(inner))])

    def _split(self, x: Variable) -> Variable:
        """[N * beam, ...] to [N, beam, ...]."""
        return shapes.reshape(x, (-1, self.beam_size, *(x.shape or ())[1:]))

    def _merge(self, x: Variable) -> Variable:
        """[N, beam, ...] to [N * beam, ...]."""
        return shapes.reshape(x, (-1, *(x.shape or ())[2:]))

    def _gather(self, x: Variable, indices: Variable) -> Variable:
        """Return what x [N, K, ...] has at the indices [N, beam] of each sample."""
        batch = shapes.cast(self.batch_size, indices.dtype)
        batch.stop_gradient = True
        rows = matrices.range(0, batch, 1, indices.dtype)
        rows = shapes.expand(shapes.unsqueeze(rows, [1]), [1, self.beam_size])
        coordinates = shapes.stack([rows, indices], axis=2)
        coordinates.stop_gradient = True
        return gather_nd(x, coordinates)

    def _inputs(self, words: Variable) -> Any:
        return self.embedding_fn(words) if self.embedding_fn else words

    def initialize(self, inits: Any) -> tuple[Any, BeamState, Variable]:
        """Start all beams of a sample alike, of which only the first is probable; ``inits``: cell states."""
        first = flatten(inits)[0]
        check_variable(first, "initial_cell_states", "BeamSearchDecoder.initialize")
        self.batch_size = shapes.shape(first)[0]
        start = shapes.fill_constant([1], "int64", self.start_token)
        self._end = shapes.fill_constant([1], "int64", self.end_token)
        cell_states = map_structure(lambda x: _repeated(x, self.beam_size), inits)
        words = shapes.unsqueeze(shapes.expand(start, [self.batch_size]), [1])
        words = shapes.expand(words, [1, self.beam_size])
        chances = np.array([[0.0] + [_LEAST] * (self.beam_size - 1)], "float32")
        log_probs = shapes.expand(shapes.assign(chances), [self.batch_size, 1])
        finished = shapes.fill_constant_batch_size_like(
            first, [-1, self.beam_size], "bool", False, force_cpu=True
        )
        lengths = shapes.zeros_like(words)
        return self._inputs(words), BeamState(cell_states, log_probs, finished, lengths), finished

    def _log_probs(self, logits: Variable, state: BeamState, vocabulary: int) -> Variable:
        """Return the log probabilities of beams with each next word; a finished beam has but the end."""
        ends = np.full(vocabulary, _LEAST, "float32")
        ends[self.end_token] = 0
        only_end, probs = shapes.assign(ends), log(softmax(logits))
        finished = shapes.cast(state.finished, probs.dtype)
        mask = shapes.expand(shapes.unsqueeze(finished, [2]), [1, 1, vocabulary])
        probs = binary.elementwise_mul(mask, only_end) - binary.elementwise_mul(
            probs, finished - 1, axis=0
        )
        return binary.elementwise_add(probs, state.log_probs, axis=0)

    def _search(
        self, logits: Variable, next_cell_states: Any, state: BeamState
    ) -> tuple[BeamOutput, BeamState]:
        vocabulary = (logits.shape or (-1,))[-1]
        if not self.end_token < vocabulary:
            raise InvalidValue(
                f"BeamSearchDecoder: end_token {self.end_token} is outside the vocabulary of {vocabulary} "
                f"words, the last dimension of logits {logits.name!r} {logits.shape}."
            )
        words_in_all = shapes.fill_constant([1], "int64", vocabulary)
        log_probs = self._log_probs(logits, state, vocabulary)
        candidates = [-1, self.beam_size * vocabulary]
        scores, indices = shapes.topk(shapes.reshape(log_probs, candidates), self.beam_size)
        beams = binary.elementwise_floordiv(indices, words_in_all)
        words = binary.elementwise_mod(indices, words_in_all)
        next_log_probs = self._gather(shapes.reshape(log_probs, candidates), indices)
        cell_states = map_structure(lambda x: self._gather(x, beams), next_cell_states)
        finished = self._gather(state.finished, beams)
        lengths = self._gather(state.lengths, beams)
        lengths = lengths + shapes.cast(binary.logical_not(finished), state.lengths.dtype)
        finished = binary.logical_or(finished, binary.equal(words, self._end))
        next_state = BeamState(cell_states, next_log_probs, finished, lengths)
        return BeamOutput(scores, words, beams), next_state

    def step(
        self, time: Variable, inputs: Any, states: BeamState, **kwargs: Any
    ) -> tuple[BeamOutput, BeamState, Any, Variable]:
        """Choose the most probable continuations of all beams of a sample.

        Raises:
            InvalidValue: ``end_token`` is outside the vocabulary, or the cell's states change in structure.
        """
        inputs = map_structure(self._merge, inputs)
        cell_states = map_structure(self._merge, states.cell_states)
        outputs, next_cell_states = self.cell(inputs, cell_states, **kwargs)
        _check_alike(cell_states, next_cell_states, "BeamSearchDecoder: cell")
        logits = map_structure(self._split, outputs)
        next_cell_states = map_structure(self._split, next_cell_states)
        if self.output_fn is not None:
            logits = self.output_fn(logits)
        output, state = self._search(logits, next_cell_states, states)
        output.predicted_ids.stop_gradient = True
        return output, state, self._inputs(output.predicted_ids), state.finished

    def finalize(
        self, outputs: BeamOutput, final_states: BeamState, sequence_lengths: Variable
    ) -> tuple[Variable, BeamState]:
        """Follow the beams back: words [T, N, beam]."""
        return gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states


def _repeated(x: Variable, count: int) -> Variable:
    """[N, ...] to [N, count, ...]."""
    x = shapes.unsqueeze(x, [1])
    return shapes.expand(x, [1, count, *[1] * (x.ndim - 2)])


def _check_alike(states: Any, next_states: Any, what: str) -> None:
    """Refuse new states that cannot take the place of those before.

    Raises:
        InvalidType: an element type changes.
        InvalidValue: the structure or a rank changes.
    """
    try:
        assert_same_structure(states, next_states, check_types=False)
    except InvalidValue as error:
        raise InvalidValue(
            f"{what} must return new states in the structure of the states it gets: {error}"
        ) from None
    for state, new in zip(flatten(states), flatten(next_states), strict=True):
        if state.dtype != new.dtype:
            kinds = " to ".join(each.dtype.name if each.dtype else "none" for each in (state, new))
            raise InvalidType(
                f"{what} changes a state from {kinds}: {state.name!r} becomes {new.name!r}. Cast it back."
            )
        if state.shape and new.shape and len(state.shape) != len(new.shape):
            raise InvalidValue(
                f"{what} changes the rank of a state: {state.name!r} {state.shape} becomes {new.name!r} "
                f"{new.shape}."
            )


def _frozen(state: Variable, new_state: Variable, finished: Variable) -> Variable:
    """Return the state where a sequence is finished, else the new one."""
    kind = state.dtype
    if kind == VarType.BOOL:
        state, new_state = shapes.cast(state, "float32"), shapes.cast(new_state, "float32")
    if finished.dtype != state.dtype:
        finished = shapes.cast(finished, state.dtype)
        finished.stop_gradient = True
    result = masked(new_state, state, finished)
    return shapes.cast(result, kind) if kind == VarType.BOOL else result


def _array_outside(dtype: Any) -> Variable:
    """Return a new array of the block around the one that is being built."""
    program = default_main_program()
    inside = program.current_block_idx
    program.current_block_idx = program.current_block().parent_idx
    try:
        return create_array(dtype)
    finally:
        program.current_block_idx = inside


def _progress(
    finished: Variable, next_finished: Variable, lengths: Variable
) -> tuple[Variable, Variable]:
    """Return which sequences are finished behind a step, and their lengths: those under way are one longer."""
    next_finished = binary.logical_or(next_finished, finished)
    steps = shapes.cast(binary.logical_not(finished), lengths.dtype)
    return next_finished, binary.elementwise_add(lengths, steps)


def _decide(going: Variable, finished: Variable, time: Variable, limit: Variable | None) -> None:
    """Write to ``going`` whether another step begins: some sequence is not finished, and there is time."""
    if limit is None:
        binary.logical_not(reduce_all(finished), going)
    else:
        unfinished = binary.logical_not(reduce_all(finished))
        binary.logical_and(unfinished, binary.less_equal(time, limit), going)


def dynamic_decode(
    decoder: Decoder,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Run a decoder's steps until all sequences are finished.

    Args:
        inits: what ``decoder.initialize`` takes.
        max_step_num: no step begins behind this number, counted from 0: there are ``max_step_num + 1`` at most.
        output_time_major: outputs are [T, N, ...], else [N, T, ...].
        impute_finished: states of finished sequences stay as they are.
        is_test: states of steps are overwritten, not stored; there are no gradients then.
        return_length: also return how many steps each sequence has.
        kwargs: are passed to ``decoder.step``.

    Returns:
        Outputs, final states, and with ``return_length`` lengths.

    Raises:
        InvalidType: ``decoder`` is none, or a state's type changes.
        InvalidValue: states change their structure or rank.
    """
    if not (hasattr(decoder, "initialize") and hasattr(decoder, "step")):
        raise InvalidType(f"dynamic_decode: decoder must be a Decoder, got {decoder!r}.")
    first_inputs, first_states, finished = decoder.initialize(inits)
    finished.stop_gradient = True
    time = shapes.fill_constant([1], "int64", 0)
    going = binary.logical_not(reduce_all(finished))
    limit = None if max_step_num is None else shapes.fill_constant([1], "int64", max_step_num)
    loop = While(going, is_test)
    lengths = shapes.cast(shapes.zeros_like(finished), "int64")
    lengths.stop_gradient = True
    first = (first_inputs, first_states)
    carried = first if is_test else map_structure(lambda x: array_write(x, time), first)
    with loop.block():
        inputs, states = (
            map_structure(lambda x: x, first)
            if is_test
            else map_structure(lambda array: array_read(array, time), carried)
        )
        outputs, next_states, next_inputs, next_finished = decoder.step(
            time, inputs, states, **kwargs
        )
        _check_alike(states, next_states, f"{type(decoder).__name__}.step")
        next_lengths = getattr(next_states, "lengths", lengths)
        if not getattr(decoder, "tracks_own_finished", False):
            next_finished, next_lengths = _progress(finished, next_finished, lengths)
            if impute_finished:
                next_states = map_structure(
                    lambda state, new: _frozen(state, new, finished), states, next_states
                )
        arrays = map_structure(lambda x: _array_outside(x.dtype), outputs)
        map_structure(lambda x, array: array_write(x, time, array), outputs, arrays)
        shapes.increment(time)
        following = (next_inputs, next_states)
        if is_test:
            map_structure(shapes.assign, following, carried)
        else:
            map_structure(lambda x, array: array_write(x, time, array), following, carried)
        shapes.assign(next_finished, finished)
        shapes.assign(next_lengths, lengths)
        _decide(going, finished, time, limit)
    final_outputs = map_structure(
        lambda array: tensor_array_to_tensor(array, axis=0, use_stack=True)[0], arrays
    )
    final_states = first_states
    if not is_test:
        final_states = map_structure(lambda array: array_read(array, time), carried[1])
    with suppress(NotImplementedError):
        final_outputs, final_states = decoder.finalize(final_outputs, final_states, lengths)
    if not output_time_major:
        final_outputs = map_structure(swap, final_outputs)
    return (final_outputs, final_states, *([lengths] if return_length else []))
