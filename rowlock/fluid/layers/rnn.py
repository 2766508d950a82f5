"""``fluid.layers.rnn``: recurrent nets and their cells."""

from __future__ import annotations

from typing import Any

from ...graph.layers import shape as layers
from ...graph.layers.arguments import check_float, check_variable, integer
from ...graph.layers.beam import beam_search, beam_search_decode
from ...graph.layers.decode_helpers import (
    BasicDecoder,
    DecodeHelper,
    GreedyEmbeddingHelper,
    SampleEmbeddingHelper,
    TrainingHelper,
)
from ...graph.layers.decoding import BeamSearchDecoder, Decoder, dynamic_decode
from ...graph.layers.nest import map_structure
from ...graph.layers.recurrence import dynamic_gru, dynamic_lstm, dynamic_lstmp
from ...graph.layers.rnn import gru_unit, lstm_unit, rnn
from ...graph.layers.stacked_lstm import lstm
from ...graph.program.variable import Variable
from ...names import publish_listed
from ...nn.layer.basic_units import BasicGRUUnit, BasicLSTMUnit
from ...strategies.errors import InvalidType, require_type

__all__ = [
    "BasicDecoder",
    "BeamSearchDecoder",
    "DecodeHelper",
    "Decoder",
    "GRUCell",
    "GreedyEmbeddingHelper",
    "LSTMCell",
    "RNNCell",
    "SampleEmbeddingHelper",
    "TrainingHelper",
    "beam_search",
    "beam_search_decode",
    "dynamic_decode",
    "dynamic_gru",
    "dynamic_lstm",
    "dynamic_lstmp",
    "gru_unit",
    "lstm",
    "lstm_unit",
    "rnn",
]


class _Shape:
    """A state's shape as a leaf of a structure, with a batch in front."""

    def __init__(self, sizes: Any) -> None:
        self.sizes = list(sizes) if sizes[0] == -1 else [-1, *sizes]


def _shapes(nest: Any) -> Any:
    """Return a structure of shapes: lists of numbers are its leaves."""
    if all(isinstance(item, int) for item in nest):
        return _Shape(nest)
    if isinstance(nest, dict):
        return type(nest)((key, _shapes(item)) for key, item in nest.items())
    return type(nest)(_shapes(item) for item in nest)


class RNNCell:
    """Base of cells, which compute outputs and new states; define ``call`` and ``state_shape``."""

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return (outputs, new states); new states are a structure like the states."""
        raise NotImplementedError("RNNCell must implement the call function.")

    def __call__(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Return what ``call`` does."""
        return self.call(inputs, states, **kwargs)

    def get_initial_states(
        self,
        batch_ref: Variable,
        shape: Any = None,
        dtype: Any = "float32",
        init_value: float = 0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """Return states of one value, in the structure of ``shape`` (``state_shape``), a batch in front.

        The batch is that of ``batch_ref``, its dimension ``batch_dim_idx``.

        Raises:
            InvalidType: ``batch_ref`` is no Variable, or ``shape`` no list or tuple.
        """
        check_variable(batch_ref, "batch_ref", "RNNCell.get_initial_states")
        if shape is not None and not isinstance(shape, (list, tuple, int)):
            raise InvalidType(f"RNNCell.get_initial_states: shape must be a list, got {shape!r}.")
        shape = [shape] if isinstance(shape, int) else shape

        def filled(one: _Shape) -> Variable:
            return layers.fill_constant_batch_size_like(
                batch_ref, one.sizes, dtype or "float32", init_value, batch_dim_idx
            )

        return map_structure(filled, _shapes(self.state_shape if shape is None else shape))

    @property
    def state_shape(self) -> Any:
        """The shape of a state without its batch, or a structure of shapes."""
        raise NotImplementedError("Please add implementation for `state_shape` in the used cell.")

    @property
    def state_dtype(self) -> Any:
        """The element type of states."""
        raise NotImplementedError("Please add implementation for `state_dtype` in the used cell.")


def _check_cell(hidden_size: Any, dtype: Any, cell: str) -> None:
    integer(hidden_size, "hidden_size", cell)
    if dtype not in ("float32", "float64"):
        raise InvalidType(f"{cell}: dtype must be float32 or float64, got {dtype!r}.")


class GRUCell(RNNCell):
    """A cell of BasicGRUUnit: h' = u h + (1 - u) c."""

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Any = None,
        activation: Any = None,
        dtype: Any = "float32",
        name: str = "GRUCell",
    ) -> None:
        _check_cell(hidden_size, dtype, "GRUCell")
        self.hidden_size = hidden_size
        self.gru_unit = BasicGRUUnit(
            name, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype
        )

    def call(self, inputs: Variable, states: Variable) -> tuple[Variable, Variable]:  # type: ignore[override]
        """Return the new hidden state [N, hidden_size], as the output and as the state."""
        check_float(inputs, "inputs", "GRUCell")
        check_float(states, "states", "GRUCell")
        hidden = self.gru_unit(inputs, states)
        return hidden, hidden

    @property
    def state_shape(self) -> Any:
        """The shape of the hidden state without its batch."""
        return [self.hidden_size]


class LSTMCell(RNNCell):
    """A cell of BasicLSTMUnit; its states are [hidden, cell]."""

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Any = None,
        activation: Any = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
        name: str = "LSTMCell",
    ) -> None:
        _check_cell(hidden_size, dtype, "LSTMCell")
        self.hidden_size = hidden_size
        self.lstm_unit = BasicLSTMUnit(
            name,
            hidden_size,
            param_attr,
            bias_attr,
            gate_activation,
            activation,
            forget_bias,
            dtype,
        )

    def call(self, inputs: Variable, states: list[Variable]) -> tuple[Variable, list[Variable]]:  # type: ignore[override]
        """Return the new hidden state [N, hidden_size], and the states [hidden, cell]."""
        check_float(inputs, "inputs", "LSTMCell")
        require_type(states, list, "LSTMCell: states must be a list [hidden, cell]")
        for state in states:
            check_float(state, "states", "LSTMCell")
        hidden, cell = self.lstm_unit(inputs, *states)
        return hidden, [hidden, cell]

    @property
    def state_shape(self) -> Any:
        """The shapes of hidden state and cell without their batch."""
        return [[self.hidden_size], [self.hidden_size]]


publish_listed(__name__)
