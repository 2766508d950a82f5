"""Decoders with a cell that the user writes: TrainingDecoder reads the target, BeamSearchDecoder searches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...strategies.errors import InvalidState, InvalidType, InvalidValue, NotFound, nearest
from ...strategies.types import VarType
from ..program import unique_name
from ..program.variable import Variable
from .arguments import check_variable
from .arrays import array_read, array_write
from .beam import beam_search, beam_search_decode, check_beam
from .binary import elementwise_add, less_than, logical_and, logical_not, logical_or
from .dynamic_rnn import DynamicRNN
from .helper import LayerHelper
from .loops import While
from .matrices import is_empty
from .nn import embedding, fc
from .sequence import lod_reset, sequence_expand
from .shape import fill_constant, fill_constant_batch_size_like, increment, reshape, topk
from .unary import log


class InitState:
    """The initial value of a state: ``init``, or ``value`` for each row of ``init_boot``, of a ``shape``.

    ``need_reorder``: its rows follow the order of sequences as they are fed.

    Raises:
        InvalidValue: neither ``init`` nor ``init_boot`` is given.
    """

    def __init__(
        self,
        init: Variable | None = None,
        shape: Any = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: str = "float32",
    ) -> None:
        if init is None:
            if init_boot is None:
                raise InvalidValue(
                    "InitState: init_boot must be provided to infer the shape of the state."
                )
            init = fill_constant_batch_size_like(init_boot, shape or [-1, 1], dtype, value)
        check_variable(init, "init", "InitState")
        self.value, self.need_reorder = init, need_reorder


class _Decoder(ABC):
    """Holds the states of a cell while a decoder's block is built."""

    def __init__(self, state_cell: StateCell) -> None:
        if not isinstance(state_cell, StateCell):
            raise InvalidType(
                f"{type(self).__name__}: state_cell must be a StateCell, got {state_cell!r}."
            )
        self.state_cell = state_cell

    @abstractmethod
    def remember(self, state: InitState) -> tuple[Variable, Callable[[Variable], None]]:
        """Return a state as the step before left it, and what sets it for the next."""


class StateCell:
    """The states of a recurrent cell, and how a step changes them::

        cell = StateCell({"word": None}, {"h": InitState(context, need_reorder=True)}, out_state="h")

        @cell.state_updater
        def update(cell):
            both = [cell.get_state("h"), cell.get_input("word")]
            cell.set_state("h", fluid.layers.fc(both, 32, act="tanh"))

    ``inputs`` may be None: a decoder gives them. ``out_state`` names the state from which it writes.

    Raises:
        InvalidType: a state is no InitState.
        NotFound: ``out_state`` is no state.
    """

    def __init__(
        self,
        inputs: Mapping[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        self.helper = LayerHelper("state_cell", name)
        for own, state in states.items():
            if not isinstance(state, InitState):
                raise InvalidType(f"StateCell: state {own!r} must be an InitState, got {state!r}.")
        self.inputs, self.states = dict(inputs), dict(states)
        self._check(out_state, self.states, "state")
        self._out_state = out_state
        self._updater: Callable[[StateCell], None] | None = None
        self._decoder: _Decoder | None = None
        self._values: dict[str, Variable] = {}
        self._setters: dict[str, Callable[[Variable], None]] = {}

    def _check(self, name: str, names: Mapping[str, Any], what: str) -> None:
        if name not in names:
            raise NotFound(f"StateCell: there is no {what} {name!r}.{nearest(name, names)}")

    @contextmanager
    def inside(self, decoder: _Decoder) -> Iterator[None]:
        """Belong to a decoder while its block is built.

        Raises:
            InvalidState: the cell belongs to another.
        """
        if self._decoder is not None:
            raise InvalidState(
                "StateCell: it belongs to another decoder, whose block is not complete."
            )
        self._decoder, self._values, self._setters = decoder, {}, {}
        try:
            yield
        finally:
            self._decoder = None

    def state_updater(self, updater: Callable[[StateCell], None]) -> Callable[[StateCell], None]:
        """Have ``updater(cell)`` compute the states of a step; a decorator."""
        self._updater = updater
        return updater

    def get_state(self, state_name: str) -> Variable:
        """Return a state as it is now.

        Raises:
            InvalidState: outside the block of a decoder.
            NotFound: there is no such state.
        """
        self._check(state_name, self.states, "state")
        if self._decoder is None:
            raise InvalidState("StateCell.get_state: must be called inside the block of a decoder.")
        if state_name not in self._values:
            value, setter = self._decoder.remember(self.states[state_name])
            self._values[state_name], self._setters[state_name] = value, setter
        return self._values[state_name]

    def get_input(self, input_name: str) -> Variable:
        """Return an input of the step.

        Raises:
            NotFound: there is none of the name, or no decoder gave it.
        """
        self._check(input_name, self.inputs, "input")
        value = self.inputs[input_name]
        if value is None:
            raise NotFound(
                f"StateCell: input {input_name!r} is not given: pass it to compute_state."
            )
        return value

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Set a state as it is within the step.

        Raises:
            NotFound: there is no such state.
        """
        self.get_state(state_name)
        self._values[state_name] = state_value

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Compute the states of a step from these inputs.

        Raises:
            NotFound: an input is none of the cell.
            InvalidState: the cell has no updater.
        """
        for name, value in inputs.items():
            self._check(name, self.inputs, "input")
            self.inputs[name] = value
        if self._updater is None:
            raise InvalidState(
                "StateCell: it has no updater: decorate a function with state_updater."
            )
        self._updater(self)

    def update_states(self) -> None:
        """Hand the states on to the next step."""
        for name in self.states:
            value = self.get_state(name)
            self._setters[name](value)

    def out_state(self) -> Variable:
        """Return the state from which a decoder writes."""
        return self.get_state(self._out_state)


class TrainingDecoder(_Decoder):
    """Runs a cell over sequences that it is taught::

    decoder = TrainingDecoder(cell)
    with decoder.block():
        word = decoder.step_input(words)
        decoder.state_cell.compute_state({"word": word})
        decoder.output(fluid.layers.fc(decoder.state_cell.get_state("h"), 1000, act="softmax"))
        decoder.state_cell.update_states()
    scores = decoder()
    """

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        super().__init__(state_cell)
        self.dynamic_rnn = DynamicRNN(name)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Have ops built inside compute one step, see :meth:`DynamicRNN.block`."""
        with self.dynamic_rnn.block(), self.state_cell.inside(self):
            yield

    def remember(self, state: InitState) -> tuple[Variable, Callable[[Variable], None]]:
        """Return a memory of the net, and what updates it."""
        memory = self.dynamic_rnn.memory(init=state.value, need_reorder=state.need_reorder)
        return memory, lambda value: self.dynamic_rnn.update_memory(memory, value)

    def step_input(self, x: Variable) -> Variable:
        """Return the rows of sequences that belong to the step, see :meth:`DynamicRNN.step_input`."""
        return self.dynamic_rnn.step_input(x)

    def static_input(self, x: Variable) -> Variable:
        """Return what all steps read, see :meth:`DynamicRNN.static_input`."""
        return self.dynamic_rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """Have the decoder return what these are in each step."""
        self.dynamic_rnn.output(*outputs)

    def __call__(self) -> Any:
        """Return the outputs, as sequences."""
        return self.dynamic_rnn()


class BeamSearchDecoder(_Decoder):
    """Searches for the words that a cell finds most likely, in beams::

        decoder = BeamSearchDecoder(cell, init_ids, init_scores, 1000, 32, beam_size=4, max_len=50)
        decoder.decode()
        ids, scores = decoder()

    Hypotheses are sequences of two levels, as ``beam_search`` has them. :meth:`decode` builds the usual step;
    another can be written in :meth:`block`.

    Args:
        init_ids, init_scores: the first word of each source, with two levels of sequences, and its score.
        target_dict_dim, word_dim: words, and how wide their embedding is.
        input_var_dict: inputs of the cell that a source has, and each of its hypotheses reads.
        topk_size: of so many words a hypothesis may choose.
        max_len: so many steps are made at most.
        end_id: the word that ends a hypothesis.
    """

    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: int,
        word_dim: int,
        input_var_dict: Mapping[str, Variable] | None = None,
        topk_size: int = 50,
        sparse_emb: bool = True,
        max_len: int = 100,
        beam_size: int = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        super().__init__(state_cell)
        check_beam(beam_size, end_id, "BeamSearchDecoder")
        self.helper = LayerHelper("beam_search_decoder", name)
        self._ids, self._scores = init_ids, init_scores
        self._words, self._width, self._sparse = target_dict_dim, word_dim, sparse_emb
        self._inputs, self._topk = dict(input_var_dict or {}), topk_size
        self._beam_size, self._end_id = beam_size, end_id
        self._zero = fill_constant([1], "int64", 0, force_cpu=True)
        self._counter = fill_constant([1], "int64", 0, force_cpu=True)
        self._limit = fill_constant([1], "int64", max_len)
        self._going = less_than(self._counter, self._limit, force_cpu=True)
        self._stopped = fill_constant([1], "bool", 0)
        self._loop = While(self._going)
        self._arrays: dict[str, Variable] = {}  # by the name of what was read of one
        self._updates: list[tuple[Variable, Variable]] = []
        self._hypotheses: list[Variable | None] = [None, None]  # arrays of ids and of scores
        self._inside = self._complete = False

    @contextmanager
    def block(self) -> Iterator[None]:
        """Have ops built inside compute one step.

        Raises:
            InvalidValue: it was built already.
        """
        if self._inside or self._complete:
            raise InvalidValue("BeamSearchDecoder: block can be built only once.")
        self._inside = True
        try:
            with self._loop.block(), self.state_cell.inside(self):
                yield
                increment(self._counter)
                for value, array in self._updates:
                    array_write(value, self._counter, array)
                longer = less_than(self._counter, self._limit, force_cpu=True)
                logical_and(longer, logical_not(self._stopped), out=self._going)
        finally:
            self._inside = False
        self._complete = True

    def _check_inside(self, method: str) -> None:
        if not self._inside:
            raise InvalidState(f"BeamSearchDecoder.{method}: must be called inside its block.")

    def early_stop(self) -> None:
        """Have this step be the last; in a branch, where that is taken."""
        self._check_inside("early_stop")
        fill_constant([1], "bool", 1, out=self._stopped)

    def remember(self, state: InitState) -> tuple[Variable, Callable[[Variable], None]]:
        """Return a state of each hypothesis, and what writes it for the next step."""
        value = self.read_array(state.value)
        return value, lambda after: self.update_array(value, after)

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """Return what the step before wrote to an array whose first entry is ``init``.

        Raises:
            InvalidValue: it is said to hold ids and scores, or another array does so already.
        """
        self._check_inside("read_array")
        check_variable(init, "init", "BeamSearchDecoder.read_array")
        block, name = self.helper.block, unique_name.generate("beam_search_decoder_array")
        parent = block.program.block(block.parent_idx)
        array = parent.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=init.dtype)
        parent.append_op("write_to_array", {"X": init, "I": self._zero}, {"Out": array})
        roles = [k for k, role in enumerate((is_ids, is_scores)) if role]
        if len(roles) > 1 or any(self._hypotheses[k] is not None for k in roles):
            raise InvalidValue(
                "BeamSearchDecoder.read_array: one array has the ids, another the scores."
            )
        for k in roles:
            self._hypotheses[k] = array
        value = array_read(array, self._counter)
        self._arrays[value.name] = array
        return value

    def update_array(self, array: Variable, value: Variable) -> None:
        """Write ``value`` for the next step to the array of which ``array`` was read.

        Raises:
            InvalidValue: it was read of none.
        """
        self._check_inside("update_array")
        if array.name not in self._arrays:
            raise InvalidValue(
                f"BeamSearchDecoder.update_array: {array.name!r} was read of no array."
            )
        self._updates.append((value, self._arrays[array.name]))

    def decode(self) -> None:
        """Build the step: each hypothesis goes on with the words that its cell finds most likely."""
        with self.block():
            ids = self.read_array(self._ids, is_ids=True)
            scores = self.read_array(self._scores, is_scores=True)
            sizes = [self._words, self._width]
            word = embedding(ids, sizes, is_sparse=self._sparse, dtype="float32")
            inputs, sources = self._inputs_of(scores)
            cell = self.state_cell
            for name in cell.states:
                cell.set_state(name, sequence_expand(cell.get_state(name), scores))
            cell.compute_state({**dict.fromkeys(cell.inputs, word), **inputs})
            state = lod_reset(cell.out_state(), scores)
            best, words = topk(fc(state, self._words, act="softmax"), self._topk)
            total = elementwise_add(log(best), reshape(scores, [-1]), axis=0)
            beam_ids, beam_scores = beam_search(
                ids, scores, words, total, self._beam_size, self._end_id, level=0
            )
            logical_or(self._stopped, is_empty(beam_ids), out=self._stopped)
            cell.update_states()
            self.update_array(ids, beam_ids)
            self.update_array(scores, beam_scores)
            for name, source in sources.items():
                self.update_array(source, inputs[name])

    def _inputs_of(self, scores: Variable) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Return the inputs that a source has: for each hypothesis, and as they were read."""
        sources: dict[str, Variable] = {}
        for name, variable in self._inputs.items():
            if name not in self.state_cell.inputs:
                raise NotFound(
                    f"BeamSearchDecoder: the cell has no input {name!r} (input_var_dict)."
                )
            sources[name] = self.read_array(variable)
        return {name: sequence_expand(source, scores) for name, source in sources.items()}, sources

    def __call__(self) -> tuple[Variable, Variable]:
        """Return the words of all hypotheses, and their scores.

        Raises:
            InvalidState: the block is not complete, or reads no ids or scores.
        """
        ids, scores = self._hypotheses
        if not self._complete or ids is None or scores is None:
            raise InvalidState(
                "BeamSearchDecoder: call decode first, or read ids and scores of arrays in a block of your own."
            )
        return beam_search_decode(ids, scores, self._beam_size, self._end_id)
