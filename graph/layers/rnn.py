"""Layers of recurrent nets: cells run over sequences, and single steps."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ..program.variable import Variable
from . import nn
from .arguments import Floats, check_float, known_sizes
from .binary import elementwise_mul
from .helper import LayerHelper, layers
from .nest import assert_same_structure, flatten, map_structure, pack_sequence_as
from .recurrent import StaticRNN
from .sequence import sequence_mask
from .shape import concat, shape, transpose
from .tensors import reverse


def masked(state: Variable, new_state: Variable, mask: Variable) -> Variable:
    """``new_state`` in the rows where ``mask`` is 1, ``state`` where it is 0."""
    return elementwise_mul(new_state, mask, axis=0) - elementwise_mul(state, mask - 1, axis=0)


def length_mask(sequence_length: Variable, time_major: Variable, dtype: Any) -> Variable:
    """A mask [T, N] of sequences [T, N, ...] of these lengths [N]."""
    mask = sequence_mask(sequence_length, maxlen=shape(time_major)[0], dtype=dtype)
    return transpose(mask, [1, 0])


def swap(x: Variable) -> Variable:
    """Exchange batch and time."""
    return transpose(x, [1, 0, *range(2, x.ndim)])


def rnn(
    cell: Any,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Run a cell over sequences [N, T, ...], or [T, N, ...] if ``time_major``.

    The program is compiled for a number of steps T, and again for another.

    Args:
        cell: has ``call(inputs, states, **kwargs)`` -> (outputs, new states), as RNNCell does.
        inputs: a Variable, or a structure of them.
        initial_states: a structure like the cell's states; by default what ``get_initial_states`` makes.
        sequence_length: integers [N]; states stay as they are behind the end of a sequence, outputs do not.
        is_reverse: begin with the last step.

    Returns:
        outputs [N, T, ...], and the final states.

    Raises:
        InvalidType: an argument of another type.
    """
    require_type(inputs, Variable | list | tuple, "rnn: inputs must be a Variable, list or tuple")
    for each in flatten(inputs):
        check_float(each, "inputs", "rnn")
    if initial_states is None:
        batch_dim = 1 if time_major else 0
        initial_states = cell.get_initial_states(batch_ref=inputs, batch_dim_idx=batch_dim)
    elif not isinstance(initial_states, (Variable, list, tuple)):
        raise InvalidType(f"rnn: initial_states must be Variables, got {initial_states!r}.")
    for state in flatten(initial_states):
        check_float(state, "initial_states", "rnn")
        state.stop_gradient = False
    if not time_major:
        inputs = map_structure(swap, inputs)
    mask = None
    if sequence_length is not None:
        mask = length_mask(sequence_length, flatten(inputs)[0], flatten(initial_states)[0].dtype)
    if is_reverse:
        inputs = map_structure(lambda x: reverse(x, axis=[0]), inputs)
        mask = None if mask is None else reverse(mask, axis=[0])

    final_outputs, final_states = _run_steps(cell, inputs, initial_states, mask, kwargs)
    if is_reverse:
        final_outputs = map_structure(lambda x: reverse(x, axis=[0]), final_outputs)
    if not time_major:
        final_outputs = map_structure(swap, final_outputs)
    return final_outputs, final_states


def _run_steps(
    cell: Any, inputs: Any, initial_states: Any, mask: Variable | None, options: dict[str, Any]
) -> tuple[Any, Any]:
    """Return the outputs of all steps [T, N, ...], and the states behind the last; ``mask`` is [T, N]."""
    net = StaticRNN()
    with net.step():
        now = map_structure(net.step_input, inputs)
        states = map_structure(net.memory, initial_states)
        outputs, new_states = cell.call(now, map_structure(lambda x: x, states), **options)
        assert_same_structure(states, new_states)
        if mask is not None:
            step_mask = net.step_input(mask)
            new_states = map_structure(
                lambda state, new_state: masked(state, new_state, step_mask), states, new_states
            )
        map_structure(net.update_memory, states, new_states)
        for each in (*flatten(outputs), *flatten(new_states)):
            net.step_output(each)
    results = net()
    count = len(flatten(outputs))
    final_states = pack_sequence_as(new_states, [each[-1] for each in results[count:]])
    return pack_sequence_as(outputs, results[:count]), final_states


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One step of an LSTM: hidden and cell [N, D] of x_t [N, M] and the step before.

    Its gates are one product of x_t and hidden_t_prev, side by side.

    Raises:
        InvalidType: an operand is no Variable of floats.
        InvalidValue: an operand is no matrix, or the sizes do not fit together.
    """
    operands = {"x_t": x_t, "hidden_t_prev": hidden_t_prev, "cell_t_prev": cell_t_prev}
    for argument, operand in operands.items():
        check_float(operand, argument, "lstm_unit")
        if operand.ndim != 2:
            raise InvalidValue(f"lstm_unit: Rank of {argument} must be 2, is {operand.ndim}.")
    sizes = [operand.shape or () for operand in operands.values()]
    if len({size[0] for size in sizes}) > 1:
        raise InvalidValue(
            f"lstm_unit: The 1st dimensions of x_t, hidden_t_prev and cell_t_prev must be the same, got "
            f"{sizes}."
        )
    if sizes[1][1] != sizes[2][1]:
        raise InvalidValue(
            f"lstm_unit: The 2nd dimensions of hidden_t_prev and cell_t_prev must be the same, got "
            f"{sizes[1:]}."
        )
    (size,) = known_sizes("lstm_unit", cell_t_prev, 1, "the cells")
    pair = concat([x_t, hidden_t_prev], axis=1)
    gates = nn.fc(pair, 4 * size, param_attr=param_attr, bias_attr=bias_attr)
    c, h = layers("lstm_unit", name, "C H", x=gates, c_prev=cell_t_prev, forget_bias=forget_bias)
    return h, c


_ACTIVATIONS = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


def gru_unit(
    input: Floats,
    hidden: Floats,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """One step of a GRU, for input [N, 3 D] that is multiplied already, and hidden [N, D]; ``size`` is 3 D.

    With ``origin_mode`` h' = u h + (1 - u) c, else h' = (1 - u) h + u c.

    Returns:
        The new hidden [N, D], reset * hidden [N, D], and the gates update, reset, candidate [N, 3 D].

    Raises:
        InvalidType: an operand is no Variable of floats, or ``size`` is no int.
        InvalidValue: there is no such activation.
    """
    require_type(size, int, "gru_unit: size must be an int")
    attrs: dict[str, Any] = {"origin_mode": origin_mode}
    for argument, kind in (("activation", activation), ("gate_activation", gate_activation)):
        if kind not in _ACTIVATIONS:
            raise InvalidValue(f"gru_unit: {argument} is {', '.join(_ACTIVATIONS)}, got {kind!r}.")
        attrs[argument] = _ACTIVATIONS[kind]
    helper, dtype, width = LayerHelper("gru_unit"), input.dtype, size // 3
    weight = helper.create_parameter(param_attr, [width, 3 * width], dtype)
    bias = helper.create_parameter(bias_attr, [1, 3 * width], dtype, is_bias=True)
    operands = {"input": input, "hidden_prev": hidden, "weight": weight, "bias": bias}
    results = "Gate ResetHiddenPrev Hidden"
    gate, reset_hidden, updated = helper.layers("gru_unit", results, **operands, **attrs)
    return updated, reset_hidden, gate
