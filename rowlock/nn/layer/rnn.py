"""Cells of recurrent networks, one step each, and the networks that run them over sequences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

from ...functions.framework import get_default_dtype
from ...functions.math import matmul
from ...functions.signatures import reordered
from ...graph.layers import shape as layers
from ...graph.layers import tensors, unary
from ...graph.layers.arguments import check_variable
from ...graph.layers.initializer import ConstantInitializer, UniformInitializer
from ...graph.layers.nest import flatten, map_structure
from ...graph.layers.rnn import rnn
from ...graph.layers.sequence import sequence_mask
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidArgument, InvalidValue
from ..common import dropout
from .container import LayerList
from .layers import Layer


class RNNCellBase(Layer):
    """Base of cells, which compute an output and a new state from an input and a state."""

    def get_initial_states(
        self,
        batch_ref: Variable,
        shape: Any = None,
        dtype: Any = None,
        init_value: float = 0.0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """Return states of one value: for each shape of ``shape`` (``state_shape``) one with a batch in front.

        The batch is that of ``batch_ref``, its dimension ``batch_dim_idx``.
        """
        check_variable(batch_ref, "batch_ref", "get_initial_states")
        shape = self.state_shape if shape is None else shape
        if shape and isinstance(shape[0], (list, tuple)):
            return tuple(
                self.get_initial_states(batch_ref, size, dtype, init_value, batch_dim_idx)
                for size in shape
            )
        sizes = list(shape)[1:] if shape[0] == -1 else list(shape)
        return layers.fill_constant_batch_size_like(
            batch_ref, [-1, *sizes], dtype or get_default_dtype(), init_value, batch_dim_idx, 0
        )

    @property
    def state_shape(self) -> Any:
        """The shape of a state without its batch, or a tuple of shapes."""
        raise NotImplementedError(f"{type(self).__name__} has no state_shape: define the property.")

    @property
    def state_dtype(self) -> Any:
        """The element type of a state."""
        raise NotImplementedError(f"{type(self).__name__} has no state_dtype: define the property.")


class _Cell(RNNCellBase):
    """Cells whose gates, ``_gates`` of them, are sums of two products and two biases."""

    _gates: int

    def __init__(
        self, input_size: int, hidden_size: int, attrs: Sequence[Any], state_size: int | None = None
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        if hidden_size <= 0:
            kind = type(self).__name__
            raise InvalidValue(f"{kind}: hidden_size must be above 0, got {hidden_size}.")
        self.input_size, self.hidden_size = input_size, hidden_size
        rows, state_size = self._gates * hidden_size, state_size or hidden_size
        shapes = ([rows, input_size], [rows, state_size], [rows], [rows])
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for name, shape, attr in zip(names, shapes, attrs, strict=True):
            setattr(self, name, self._uniform(shape, attr, name.startswith("bias")))

    def _uniform(self, shape: list[int], attr: Any, is_bias: bool = False) -> Any:
        """Create a parameter; False is ones or, of a bias, zeros that stay as they are."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        start: Any = UniformInitializer(-bound, bound)
        if attr is False:
            start = ConstantInitializer(0.0 if is_bias else 1.0)
        parameter = self.create_parameter(
            shape, None if attr is False else attr, is_bias=is_bias, default_initializer=start
        )
        if parameter is not None and attr is False:
            parameter.stop_gradient = True
        return parameter

    def _products(self, inputs: Variable, hidden: Variable) -> tuple[Variable, Variable]:
        check_variable(inputs, "inputs", type(self).__name__)
        check_variable(hidden, "states", type(self).__name__)
        return (
            matmul(inputs, self.weight_ih, transpose_y=True) + self.bias_ih,
            matmul(hidden, self.weight_hh, transpose_y=True) + self.bias_hh,
        )

    @property
    def state_shape(self) -> Any:
        """The shape of a state without its batch."""
        return (self.hidden_size,)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return f"{self.input_size}, {self.hidden_size}"


class SimpleRNNCell(_Cell):
    """h' = act(W_ih x + b_ih + W_hh h + b_hh). Elman, Finding Structure in Time, 1990."""

    _gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        activation: Literal["tanh", "relu"] = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, attrs)
        self.activation = activation

    def forward(
        self, inputs: Variable, states: Variable | None = None
    ) -> tuple[Variable, Variable]:
        """Return the output [N, hidden_size] for inputs [N, input_size], and again as the new state."""
        hidden = self.get_initial_states(inputs) if states is None else states
        left, right = self._products(inputs, hidden)
        act = unary.tanh if self.activation == "tanh" else unary.relu
        h = act(left + right)
        return h, h

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        act = "" if self.activation == "tanh" else f", activation={self.activation}"
        return super().extra_repr() + act


class LSTMCell(_Cell):
    """Hochreiter and Schmidhuber's cell, with its gates in the order input, forget, cell, output.

    ``proj_size`` above 0 has a product follow the output. Sak et al., arXiv 1402.1128.
    """

    _gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        proj_size: int = 0,
        name: str | None = None,
    ) -> None:
        if not 0 <= proj_size < max(hidden_size, 1):
            raise InvalidValue(
                f"LSTMCell: proj_size is at least 0 and below hidden_size, got {proj_size}."
            )
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, attrs, proj_size)
        self.proj_size = proj_size
        if proj_size:
            self.weight_ho = self._uniform([hidden_size, proj_size], weight_hh_attr)

    def forward(self, inputs: Variable, states: Any = None) -> tuple[Variable, Any]:
        """Return the output [N, hidden_size], or [N, proj_size], and the new state (output, cell)."""
        hidden, cell = self.get_initial_states(inputs) if states is None else states
        left, right = self._products(inputs, hidden)
        i, f, g, o = layers.split(left + right, 4, -1)
        cell = unary.sigmoid(f) * cell + unary.sigmoid(i) * unary.tanh(g)
        h = unary.sigmoid(o) * unary.tanh(cell)
        h = matmul(h, self.weight_ho) if self.proj_size else h
        return h, (h, cell)

    @property
    def state_shape(self) -> Any:
        """The shapes of output and cell without their batch."""
        return ((self.proj_size or self.hidden_size,), (self.hidden_size,))


class GRUCell(_Cell):
    """Cho et al.'s cell (arXiv 1406.1078): reset, update, candidate; reset acts on W_hc h + b_hc."""

    _gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, attrs)

    def forward(
        self, inputs: Variable, states: Variable | None = None
    ) -> tuple[Variable, Variable]:
        """Return the output [N, hidden_size] for inputs [N, input_size], and again as the new state."""
        hidden = self.get_initial_states(inputs) if states is None else states
        x_gates, h_gates = self._products(inputs, hidden)
        x_reset, x_update, x_new = layers.split(x_gates, 3, 1)
        h_reset, h_update, h_new = layers.split(h_gates, 3, 1)
        update = unary.sigmoid(x_update + h_update)
        candidate = unary.tanh(x_new + unary.sigmoid(x_reset + h_reset) * h_new)
        h = (hidden - candidate) * update + candidate
        return h, h


class RNN(Layer):
    """A cell run over sequences [N, T, ...] ([T, N, ...] if ``time_major``), from the end if ``is_reverse``."""

    def __init__(self, cell: Any, is_reverse: bool = False, time_major: bool = False) -> None:
        super().__init__()
        self.cell = _callable(cell)
        self.is_reverse, self.time_major = is_reverse, time_major

    def forward(
        self,
        inputs: Any,
        initial_states: Any = None,
        sequence_length: Variable | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Return the cell's outputs at all steps, and its final states; see ``graph.layers.rnn.rnn``."""
        return rnn(
            self.cell,
            inputs,
            initial_states,
            sequence_length,
            self.time_major,
            self.is_reverse,
            **kwargs,
        )


def _callable(cell: Any) -> Any:
    """Give a cell the method that nets call, unless it has it."""
    if not hasattr(cell, "call"):
        cell.call = cell.forward
    return cell


class BiRNN(Layer):
    """Two cells run over sequences, one from each end; outputs lie side by side."""

    def __init__(self, cell_fw: Any, cell_bw: Any, time_major: bool = False) -> None:
        super().__init__()
        if cell_fw.input_size != cell_bw.input_size:
            raise InvalidValue(
                f"BiRNN: the input size {cell_fw.input_size} of the forward cell is not that of the backward "
                f"cell, {cell_bw.input_size}."
            )
        self.cell_fw, self.cell_bw = _callable(cell_fw), _callable(cell_bw)
        self.time_major = time_major

    def forward(
        self,
        inputs: Any,
        initial_states: Any = None,
        sequence_length: Variable | None = None,
        **kwargs: Any,
    ) -> tuple[Any, tuple[Any, Any]]:
        """Return the outputs of both cells, and the final states (forward, backward).

        Raises:
            InvalidArgument: ``initial_states`` are not two.
        """
        if initial_states is not None and len(initial_states) != 2:
            raise InvalidArgument(
                f"BiRNN: initial_states are those of two cells, got {len(initial_states)}."
            )
        starts = (None, None) if initial_states is None else initial_states
        results = [
            rnn(cell, inputs, start, sequence_length, self.time_major, reverse, **kwargs)
            for cell, start, reverse in zip(
                (self.cell_fw, self.cell_bw), starts, (False, True), strict=True
            )
        ]
        (forth, forth_states), (back, back_states) = results
        outputs = map_structure(lambda x, y: layers.concat([x, y], -1), forth, back)
        return outputs, (forth_states, back_states)


class RNNBase(LayerList):
    """Layers of cells over sequences, in one direction or two; dropout between layers."""

    _mode = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: Literal["forward", "bidirect", "bidirectional"] = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        activation: Literal["tanh", "relu"] = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        proj_size: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.mode, self.activation = self._mode or f"RNN_{activation.upper()}", activation
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.time_major, self.dropout = num_layers, time_major, dropout
        self.num_directions = 1 if direction == "forward" else 2
        self.state_components, self.proj_size = (2 if self.mode == "LSTM" else 1), proj_size
        attrs = {
            "weight_ih_attr": weight_ih_attr,
            "weight_hh_attr": weight_hh_attr,
            "bias_ih_attr": bias_ih_attr,
            "bias_hh_attr": bias_hh_attr,
        }
        size = input_size
        for _ in range(num_layers):
            cell = self._cell(size, attrs)
            if self.num_directions == 1:
                self.append(RNN(cell, False, time_major))
            else:
                self.append(BiRNN(cell, self._cell(size, attrs), time_major))
            size = (proj_size or hidden_size) * self.num_directions
        kinds = ["weight_ih", "weight_hh"]
        kinds += [] if bias_ih_attr is False else ["bias_ih"]
        kinds += [] if bias_hh_attr is False else ["bias_hh"]
        places = itertools.product(
            range(num_layers), ("", "_reverse")[: self.num_directions], kinds
        )
        parameters = self.parameters()
        # Paddle's fused kernel, which takes all parameters alone, has zeros behind the end of a sequence.
        self._zeros_behind = len(parameters) == num_layers * self.num_directions * 4
        for (layer, end, kind), parameter in zip(places, parameters, strict=False):
            setattr(self, f"{kind}_l{layer}{end}", parameter)

    def _cell(self, input_size: int, attrs: dict[str, Any]) -> _Cell:
        if self.mode == "LSTM":
            return LSTMCell(input_size, self.hidden_size, **attrs, proj_size=self.proj_size)
        if self.mode == "GRU":
            return GRUCell(input_size, self.hidden_size, **attrs)
        return SimpleRNNCell(input_size, self.hidden_size, self.activation, **attrs)

    def forward(
        self, inputs: Variable, initial_states: Any = None, sequence_length: Variable | None = None
    ) -> tuple[Variable, Any]:
        """Return the last layer's outputs [N, T, directions x width], and the final states of all layers.

        Args:
            inputs: [N, T, input_size], or [T, N, input_size] if ``time_major``.
            initial_states: [layers x directions, N, width], a pair (hidden, cell) of an LSTM; None: zeros.
            sequence_length: integers [N]: behind the end of a sequence states stay, and outputs are zero.
        """
        check_variable(inputs, "inputs", type(self).__name__)
        starts = self._starts(initial_states)
        mask = None
        if sequence_length is not None and self._zeros_behind:
            time = 0 if self.time_major else 1
            steps: Any = (inputs.shape or ())[time]
            steps = layers.shape(inputs)[time] if steps < 0 else steps
            mask = sequence_mask(sequence_length, steps, inputs.dtype)
            mask = layers.unsqueeze(
                layers.transpose(mask, [1, 0]) if self.time_major else mask, [2]
            )
        ends: list[Any] = []
        for i, net in enumerate(self):
            if i > 0 and self.dropout:
                inputs = dropout(inputs, self.dropout, training=self.training)
            inputs, end = net(inputs, starts[i], sequence_length)
            inputs = inputs if mask is None else inputs * mask
            ends += flatten(end)
        count = self.state_components
        stacked = tuple(layers.stack(ends[kind::count]) for kind in range(count))
        return inputs, stacked if count > 1 else stacked[0]

    def _starts(self, initial_states: Any) -> list[Any]:
        """Return the initial states of each layer, as its net takes them."""
        if initial_states is None:
            return [None] * self.num_layers
        several = [initial_states] if self.state_components == 1 else list(initial_states)
        columns = [tensors.unstack(states, num=self._rows) for states in several]
        rows: list[Any] = [row if len(row) > 1 else row[0] for row in zip(*columns, strict=True)]
        return rows if self.num_directions == 1 else list(zip(rows[::2], rows[1::2], strict=True))

    @property
    def _rows(self) -> int:
        return self.num_layers * self.num_directions

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        text = f"{self.input_size}, {self.hidden_size}"
        text += f", num_layers={self.num_layers}" if self.num_layers != 1 else ""
        text += f", time_major={self.time_major}" if self.time_major else ""
        return text + (f", dropout={self.dropout}" if self.dropout else "")


_SHAPE = "self input_size hidden_size num_layers direction time_major dropout"
_ATTRS = "weight_ih_attr weight_hh_attr bias_ih_attr bias_hh_attr"


class SimpleRNN(RNNBase):
    """Layers of SimpleRNNCell."""

    __init__ = reordered(RNNBase.__init__, f"{_SHAPE} activation {_ATTRS} name")


class LSTM(RNNBase):
    """Layers of LSTMCell."""

    _mode = "LSTM"
    __init__ = reordered(RNNBase.__init__, f"{_SHAPE} {_ATTRS} proj_size name")


class GRU(RNNBase):
    """Layers of GRUCell."""

    _mode = "GRU"
    __init__ = reordered(RNNBase.__init__, f"{_SHAPE} {_ATTRS} name")


publish_definitions(__name__, withhold=(RNNBase,))
