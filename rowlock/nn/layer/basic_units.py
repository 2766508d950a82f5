"""Paddle 1.x's units of recurrent nets, one step each, and nets of several layers and directions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from ...graph.layers import binary, shape, tensors, unary
from ...graph.layers.arguments import known_sizes
from ...graph.layers.param_attr import ParamAttr
from ...graph.layers.recurrent import StaticRNN
from ...graph.layers.rnn import length_mask, masked
from ...graph.program import unique_name
from ...graph.program.variable import Variable
from .layers import Layer


def _named(attr: Any, suffix: str) -> Any:
    """Return an attribute with a longer name, if it has one: several parameters are made with it."""
    if not isinstance(attr, ParamAttr) or attr.name is None:
        return attr
    longer = copy(attr)
    longer.name = attr.name + suffix
    return longer


class _Unit(Layer):
    """Units create their parameters in the first call, whose input tells their size."""

    def __init__(
        self, name_scope: str, hidden_size: int, param_attr: Any, bias_attr: Any, dtype: Any
    ) -> None:
        super().__init__(name_scope, dtype)
        self._full_name = unique_name.generate(f"{name_scope}/{type(self).__name__}")
        self._helper.name = self._helper.layer_type = self._full_name
        self._hidden_size = hidden_size
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._has_parameters = False

    def _build(self, rows: int) -> None:
        """Create the parameters for inputs and hidden of ``rows`` numbers together."""
        raise NotImplementedError

    def _joined(self, input: Variable, hidden: Variable) -> Variable:
        if not self._has_parameters:
            (width,) = known_sizes(type(self).__name__, input, -1, "the width")
            self._build(width + self._hidden_size)
            self._has_parameters = True
        return shape.concat([input, hidden], 1)


class BasicGRUUnit(_Unit):
    """r, u = act_g([x, h] W + b), c = act([x, r h] W_c + b_c), h' = u h + (1 - u) c. arXiv 1406.1078."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Variable], Variable] | None = None,
        activation: Callable[[Variable], Variable] | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(name_scope, hidden_size, param_attr, bias_attr, dtype)
        self._gate_activation = gate_activation or unary.sigmoid
        self._activation = activation or unary.tanh

    def _build(self, rows: int) -> None:
        size, parameter = self._hidden_size, self.create_parameter
        gate, candidate = "_gate", "_candidate"
        weight, bias = self._param_attr, self._bias_attr
        self._gate_weight = parameter([rows, 2 * size], _named(weight, gate))
        self._candidate_weight = parameter([rows, size], _named(weight, candidate))
        self._gate_bias = parameter([2 * size], _named(bias, gate), is_bias=True)
        self._candidate_bias = parameter([size], _named(bias, candidate), is_bias=True)

    def forward(self, input: Variable, pre_hidden: Variable) -> Variable:
        """Return the hidden state [N, hidden_size] after input [N, D]."""
        gates = binary.matmul(self._joined(input, pre_hidden), self._gate_weight)
        gates = self._gate_activation(binary.elementwise_add(gates, self._gate_bias))
        r, u = shape.split(gates, 2, 1)
        reset_hidden = r * pre_hidden
        candidate = binary.matmul(shape.concat([input, reset_hidden], 1), self._candidate_weight)
        c = self._activation(binary.elementwise_add(candidate, self._candidate_bias))
        return u * pre_hidden + (1 - u) * c


class BasicLSTMUnit(_Unit):
    """i, j, f, o = [x, h] W + b, c' = c s(f + forget_bias) + s(i) tanh(j), h' = tanh(c') s(o), s the sigmoid.

    Zaremba, Sutskever and Vinyals, arXiv 1409.2329.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Variable], Variable] | None = None,
        activation: Callable[[Variable], Variable] | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(name_scope, hidden_size, param_attr, bias_attr, dtype)
        self._forget_bias = shape.fill_constant([1], dtype, forget_bias)
        self._forget_bias.stop_gradient = False

    def _build(self, rows: int) -> None:
        width = 4 * self._hidden_size
        self._weight = self.create_parameter([rows, width], self._param_attr)
        self._bias = self.create_parameter([width], self._bias_attr, is_bias=True)

    def forward(
        self, input: Variable, pre_hidden: Variable, pre_cell: Variable
    ) -> tuple[Variable, Variable]:
        """Return the hidden state and the cell [N, hidden_size] after input [N, D]."""
        gates = binary.matmul(self._joined(input, pre_hidden), self._weight)
        i, j, f, o = shape.split(binary.elementwise_add(gates, self._bias), 4, -1)
        forget = unary.sigmoid(binary.elementwise_add(f, self._forget_bias))
        remembered = binary.elementwise_mul(pre_cell, forget)
        update = binary.elementwise_mul(unary.sigmoid(i), unary.tanh(j))
        cell = binary.elementwise_add(remembered, update)
        return unary.tanh(cell) * unary.sigmoid(o), cell


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Any = None,
    activation: Any = None,
    dtype: Any = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """Layers of BasicGRUUnit over input [N, T, D] ([T, N, D] unless ``batch_first``).

    Args:
        init_hidden: [layers x directions, N, hidden_size]; None: zeros.
        sequence_length: integers [N]: hidden states stay as they are behind the end of a sequence.

    Returns:
        The last layer's hidden states [N, T, directions x hidden_size], and the last of every layer and
        direction [layers x directions, N, hidden_size].
    """

    def unit(scope: str, weight: Any, bias: Any) -> BasicGRUUnit:
        return BasicGRUUnit(scope, hidden_size, weight, bias, gate_activation, activation, dtype)

    units = _units(unit, name, num_layers, bidirectional, param_attr, bias_attr)
    net = _Net(units, hidden_size, dropout_prob, "downgrade_in_infer")
    output, (hidden,) = net.run(input, [init_hidden], sequence_length, batch_first)
    return output, hidden


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Any = None,
    activation: Any = None,
    forget_bias: float = 1.0,
    dtype: Any = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """Layers of BasicLSTMUnit over input [N, T, D], as ``basic_gru``; the last cells are returned, too."""

    def unit(scope: str, weight: Any, bias: Any) -> BasicLSTMUnit:
        return BasicLSTMUnit(
            scope, hidden_size, weight, bias, gate_activation, activation, forget_bias, dtype
        )

    units = _units(unit, name, num_layers, bidirectional, param_attr, bias_attr)
    net = _Net(units, hidden_size, dropout_prob, "upscale_in_train")
    output, (hidden, cell) = net.run(input, [init_hidden, init_cell], sequence_length, batch_first)
    return output, hidden, cell


def _units(
    unit: Callable[[str, Any, Any], _Unit],
    name: str,
    num_layers: int,
    bidirectional: bool,
    param_attr: Any,
    bias_attr: Any,
) -> list[list[_Unit]]:
    """Make the units of each direction, by layer."""
    directions = [("", "fw"), ("_reverse", "bw")][: 1 + bidirectional]
    return [
        [
            unit(
                f"{name}{reverse}_layers_{i}",
                _named(param_attr, f"_{mark}_w_{i}"),
                _named(bias_attr, f"_{mark}_b_{i}"),
            )
            for i in range(num_layers)
        ]
        for reverse, mark in directions
    ]


@dataclass(frozen=True)
class _Net:
    """Layers of units over a sequence, in one direction or in both.

    ``units``: by direction, forward first, those of each layer.
    """

    units: Sequence[Sequence[_Unit]]
    hidden_size: int
    dropout_prob: float
    dropout_implementation: str

    def run(
        self,
        input: Variable,
        initial: Sequence[Variable | None],
        sequence_length: Variable | None,
        batch_first: bool,
    ) -> tuple[Variable, list[Variable]]:
        """Return the outputs, and the last of each kind of state, which begin as ``initial`` (None: zeros)."""
        if batch_first:
            input = shape.transpose(input, [1, 0, 2])
        mask = None if sequence_length is None else length_mask(sequence_length, input, "float32")
        directions, num_layers = len(self.units), len(self.units[0])
        sizes = [num_layers, directions, -1, self.hidden_size]
        starts = [None if state is None else shape.reshape(state, sizes) for state in initial]
        output, ends = self._run(0, input, mask, starts)
        if directions > 1:
            backward = tensors.reverse(input, axis=[0])
            mask = None if mask is None else tensors.reverse(mask, axis=[0])
            backward_output, backward_ends = self._run(1, backward, mask, starts)
            backward_output = tensors.reverse(backward_output, axis=[0])
            output = shape.concat([output, backward_output], axis=2)
            sizes = [num_layers * directions, -1, self.hidden_size]
            ends = [
                shape.reshape(shape.concat(pair, axis=1), sizes)
                for pair in zip(ends, backward_ends, strict=True)
            ]
        return shape.transpose(output, [1, 0, 2]) if batch_first else output, ends

    def _run(
        self,
        direction: int,
        sequence: Variable,
        mask: Variable | None,
        starts: Sequence[Variable | None],
    ) -> tuple[Variable, list[Variable]]:
        """Run the layers of one direction over a sequence [T, N, D], as :meth:`run`."""
        units, kinds = self.units[direction], len(starts)
        firsts = [
            [None if start is None else start[i, direction] for start in starts]
            for i in range(len(units))
        ]
        net = StaticRNN()
        with net.step():
            now = net.step_input(sequence)
            step_mask = None if mask is None else net.step_input(mask)
            for unit, unit_firsts in zip(units, firsts, strict=True):
                before = [
                    net.memory(shape=[-1, self.hidden_size], batch_ref=sequence)
                    if first is None
                    else net.memory(init=first)
                    for first in unit_firsts
                ]
                states = unit(now, *before)
                after = list(states) if isinstance(states, tuple) else [states]
                if step_mask is not None:
                    pairs = zip(before, after, strict=True)
                    after = [masked(old, new, step_mask) for old, new in pairs]
                for old, new in zip(before, after, strict=True):
                    net.update_memory(old, new)
                net.output(*after)
                now = after[0]
                if self.dropout_prob:
                    way = self.dropout_implementation
                    now = unary.dropout(now, self.dropout_prob, dropout_implementation=way)
            net.step_output(now)
        *sequences, output = net()
        ends = [states[-1] for states in sequences]
        sizes = [len(units), -1, self.hidden_size]
        return output, [
            shape.reshape(shape.concat(ends[kind::kinds], axis=0), sizes) for kind in range(kinds)
        ]
