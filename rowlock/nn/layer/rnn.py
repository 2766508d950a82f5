"""Cells of recurrent networks: one step each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...functions.framework import get_default_dtype
from ...functions.math import matmul
from ...graph.layers import shape as layers
from ...graph.layers import unary
from ...graph.layers.helper import check_variable
from ...graph.layers.initializer import ConstantInitializer, UniformInitializer
from ...graph.program.variable import Variable
from ...strategies.errors import InvalidValue
from .layers import Layer


class RNNCellBase(Layer):
    """What computes an output and a new state of an input and a state."""

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
                self.get_initial_states(batch_ref, one, dtype, init_value, batch_dim_idx)
                for one in shape
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
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        if activation not in ("tanh", "relu"):
            raise InvalidValue(f"SimpleRNNCell: activation is tanh or relu, got {activation!r}.")
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
