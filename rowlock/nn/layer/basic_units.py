"""Paddle 1.x's units of recurrent nets, one step each, and nets of several layers and directions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
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

    settings = (hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first)
    units = _units(unit, name, num_layers, bidirectional, param_attr, bias_attr)
    output, last = _layers(input, [init_hidden], units, *settings, "downgrade_in_infer")
    return output, last[0]


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

    settings = (hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first)
    units = _units(unit, name, num_layers, bidirectional, param_attr, bias_attr)
    output, last = _layers(input, [init_hidden, init_cell], units, *settings, "upscale_in_train")
    return output, last[0], last[1]


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


def _layers(
    input: Variable,
    initial: Sequence[Variable | None],
    units: Sequence[Sequence[_Unit]],
    hidden_size: int,
    num_layers: int,
    sequence_length: Variable | None,
    dropout_prob: float,
    bidirectional: bool,
    batch_first: bool,
    dropout_implementation: str,
) -> tuple[Variable, list[Variable]]:
    """Run the units of each direction; return the outputs, and the last of each kind of state."""
    directions = len(units)
    if batch_first:
        input = shape.transpose(input, [1, 0, 2])
    mask = None if sequence_length is None else length_mask(sequence_length, input, "float32")
    sizes = [num_layers, directions, -1, hidden_size]
    starts = [None if state is None else shape.reshape(state, sizes) for state in initial]

    def run(
        sequence: Variable, mask: Variable | None, direction: int
    ) -> tuple[Variable, list[Variable]]:
        net = StaticRNN()
        firsts = [
            [None if start is None else start[i, direction] for start in starts]
            for i in range(num_layers)
        ]
        with net.step():
            now = net.step_input(sequence)
            step_mask = None if mask is None else net.step_input(mask)
            for i, unit in enumerate(units[direction]):
                before = [
                    net.memory(shape=[-1, hidden_size], batch_ref=sequence)
                    if first is None
                    else net.memory(init=first)
                    for first in firsts[i]
                ]
                after = unit(now, *before)
                after = list(after) if isinstance(after, tuple) else [after]
                if step_mask is not None:
                    pairs = zip(before, after, strict=True)
                    after = [masked(old, new, step_mask) for old, new in pairs]
                for old, new in zip(before, after, strict=True):
                    net.update_memory(old, new)
                net.output(*after)
                now = after[0]
                if dropout_prob:
                    now = unary.dropout(
                        now, dropout_prob, dropout_implementation=dropout_implementation
                    )
            net.step_output(now)
        *states, output = net()
        ends = [state[-1] for state in states]
        kinds = [ends[kind :: len(starts)] for kind in range(len(starts))]
        sizes = [num_layers, -1, hidden_size]
        return output, [shape.reshape(shape.concat(kind, axis=0), sizes) for kind in kinds]

    output, last = run(input, mask, 0)
    if bidirectional:
        reverse_mask = None
        reverse_input = tensors.reverse(input, axis=[0])
        if mask is not None:
            reverse_mask = tensors.reverse(mask, axis=[0])
        reverse_output, reverse_last = run(reverse_input, reverse_mask, 1)
        reverse_output = tensors.reverse(reverse_output, axis=[0])
        output = shape.concat([output, reverse_output], axis=2)
        last = [
            shape.reshape(
                shape.concat([one, other], axis=1), [num_layers * directions, -1, hidden_size]
            )
            for one, other in zip(last, reverse_last, strict=True)
        ]
    return shape.transpose(output, [1, 0, 2]) if batch_first else output, last
