"""LSTM and GRU over sequences (LoD)."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidValue
from ..program.variable import Variable
from .arguments import Floats
from .helper import LayerHelper


def _width(size: int, layer: str) -> int:
    """Return the number of cells; ``size`` is the number of their gates, four each."""
    if size <= 0 or size % 4:
        raise InvalidValue(f"{layer}: size must be 4 times the number of cells, got {size}.")
    return size // 4


def _bias(helper: LayerHelper, attr: Any, size: int, dtype: Any) -> Variable:
    bias = helper.create_parameter(attr, [1, size], dtype, is_bias=True)
    if bias is None:
        layer = f"dynamic_{helper.layer_type}"
        raise InvalidValue(f"{layer}: bias_attr should not be False: the gates have a bias.")
    return bias


def dynamic_lstm(
    input: Floats,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: str = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Run an LSTM over each sequence (Hochreiter and Schmidhuber, 1997; peepholes: Gers et al., 2002).

    Args:
        input: [N, 4D], with one level of sequences: the inputs of the gates, computed by an ``fc``.
        size: 4D.
        h_0, c_0: the states before the first steps, [sequences, D]; zeros unless given.
        use_peepholes: gates see the cells; ``bias`` is [1, 7D], else [1, 4D].
        is_reverse: walk each sequence backwards; results stay at their rows.

    Returns:
        The hidden states and the cells, [N, D], with the sequences of ``input``.
    """
    helper, width = LayerHelper("lstm", name), _width(size, "dynamic_lstm")
    weight = helper.create_parameter(param_attr, [width, 4 * width], dtype)
    bias = _bias(helper, bias_attr, (7 if use_peepholes else 4) * width, dtype)
    hidden, cell, *_ = helper.layers(
        "lstm",
        "Hidden Cell BatchGate BatchCellPreAct",
        h0=h_0,
        c0=c_0,
        input=input,
        weight=weight,
        bias=bias,
        use_peepholes=use_peepholes,
        is_reverse=is_reverse,
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
    )
    return hidden, cell


def dynamic_lstmp(
    input: Floats,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: str = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """Run an LSTM whose hidden states are projected (Sak et al., 2014), see :func:`dynamic_lstm`.

    ``param_attr`` is that of two parameters, so it names none.

    Args:
        h_0: [sequences, proj_size].
        cell_clip: cells stay within this of 0.
        proj_clip: so do projections.

    Returns:
        The projections [N, proj_size] and the cells [N, D].
    """
    helper, width = LayerHelper("lstmp", name), _width(size, "dynamic_lstmp")
    weight = helper.create_parameter(param_attr, [proj_size, 4 * width], dtype)
    proj_weight = helper.create_parameter(param_attr, [width, proj_size], dtype)
    bias = _bias(helper, bias_attr, (7 if use_peepholes else 4) * width, dtype)
    projection, cell, *_ = helper.layers(
        "lstmp",
        "Projection Cell BatchHidden BatchGate BatchCellPreAct",
        h0=h_0,
        c0=c_0,
        input=input,
        weight=weight,
        proj_weight=proj_weight,
        bias=bias,
        use_peepholes=use_peepholes,
        cell_clip=cell_clip,
        proj_clip=proj_clip,
        is_reverse=is_reverse,
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
        proj_activation=proj_activation,
    )
    return projection, cell


def dynamic_gru(
    input: Floats,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """Run a GRU over each sequence (Chung et al., arXiv 1412.3555).

    Args:
        input: [N, 3 size], with one level of sequences: the inputs of update gate, reset gate and candidate.
        size: the width of the states.
        h_0: the states before the first steps, [sequences, size]; zeros unless given.
        origin_mode: u h + (1 - u) c as in arXiv 1406.1078, else (1 - u) h + u c.

    Returns:
        The states [N, size], with the sequences of ``input``.
    """
    helper, dtype = LayerHelper("gru"), input.dtype
    weight = helper.create_parameter(param_attr, [size, 3 * size], dtype)
    bias = _bias(helper, bias_attr, 3 * size, dtype)
    return helper.layers(
        "gru",
        "BatchGate BatchResetHiddenPrev BatchHidden Hidden",
        h0=h_0,
        input=input,
        weight=weight,
        bias=bias,
        is_reverse=is_reverse,
        gate_activation=gate_activation,
        activation=candidate_activation,
        origin_mode=origin_mode,
    )[-1]
