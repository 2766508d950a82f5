"""LSTMs on top of each other over padded batches, their weights in one parameter as cuDNN lays them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...strategies.errors import InvalidValue
from ...strategies.types import VarType
from ..ops.stacked_lstm import elements
from ..program.variable import Variable
from . import shape as tensors
from .binary import mul
from .helper import LayerHelper
from .initializer import Initializer
from .sequence import sequence_first_step, sequence_last_step, sequence_pad, sequence_unpad
from .unary import dropout

_GATES = (2, 0, 1, 3)  # of cuDNN's input, forget, cell and output: the order that ``lstm`` has


class _Walk(NamedTuple):
    """The parameters of one direction of one layer: [in, 4D], [D, 4D] and [1, 4D]."""

    input: Variable
    recurrent: Variable
    bias: Variable


def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Initializer | None = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """Run LSTMs of D cells without peepholes, each over the states of the one below.

    All weights are one parameter, in cuDNN's order: by layer and direction the matrices of the inputs and of
    the states, [D, in] and [D, D], of the gates input, forget, cell and output; behind all of them two biases
    for each.

    Args:
        input: [steps, batch, in].
        init_h, init_c: the first states, [layers * directions, batch, D]; a layer's directions stand together.
        max_len: not needed: the steps are those of ``input``.
        hidden_size: D.
        dropout_prob: of what a layer above the first reads; nothing is dropped if ``is_test``.
        is_bidirec: a second LSTM in each layer walks from the last step to the first.
        seed: of what is dropped; -1: the program's.

    Returns:
        The states of the last layer, [steps, batch, directions * D]; its last states and cells as ``init_h``.

    Raises:
        InvalidValue: a size is below 1, or ``input`` is not [steps, batch, in].
        ShapeError: a first state has another shape.
    """
    size, layers = (hidden_size, num_layers)
    sizes = input.shape or ()
    if size < 1 or layers < 1 or len(sizes) != 3 or sizes[2] < 1:
        raise InvalidValue(
            f"lstm: takes [steps, batch, in], hidden_size and num_layers from 1 on, got {input}, {size} and "
            f"{layers}."
        )
    helper = LayerHelper("cudnn_lstm", name)
    shape = [elements(sizes[2], size, layers, 2 if is_bidirec else 1)]
    weight = helper.create_parameter(
        None, shape, input.dtype, default_initializer=default_initializer
    )
    cache = helper.block.create_var(type=VarType.RAW, persistable=True, stop_gradient=True)
    out, last_h, last_c = helper.layers(
        "cudnn_lstm",
        "Out last_h last_c",
        input=input,
        init_h=init_h,
        init_c=init_c,
        w=weight,
        cache=cache,
        max_len=max_len,
        dropout_prob=dropout_prob,
        is_bidirec=is_bidirec,
        input_size=sizes[2],
        hidden_size=size,
        num_layers=layers,
        is_test=is_test,
        seed=seed,
    )
    return out, last_h, last_c


def write_out(
    x: Variable, init_h: Variable, init_c: Variable, weight: Variable, attrs: Mapping[str, Any]
) -> tuple[Variable, Variable, Variable]:
    """Append the ops that compute what ``cudnn_lstm`` does, by its attributes; return its results."""
    size, layers, probability = (attrs[k] for k in ("hidden_size", "num_layers", "dropout_prob"))
    directions = 2 if attrs["is_bidirec"] else 1
    widths = [(x.shape or ())[2], *[directions * size] * (layers - 1)]
    walks = _parameters(weight, widths, size, directions)
    rows = _as_sequences(x)
    states = [_unstacked(each, layers * directions) for each in (init_h, init_c)]
    ends: list[tuple[Variable, Variable]] = []
    for layer in range(layers):
        if layer and probability:
            rows = dropout(
                rows, probability, attrs["is_test"], attrs["seed"] if attrs["seed"] >= 0 else None,
                dropout_implementation="upscale_in_train",
            )  # fmt: skip
        both: list[Variable] = []
        for backwards in (False, True)[:directions]:
            number = len(ends)
            hidden, cell = _walk(rows, next(walks), [s[number] for s in states], backwards)
            last = sequence_first_step if backwards else sequence_last_step
            ends.append((last(hidden), last(cell)))
            both.append(hidden)
        rows = tensors.concat(both, 1) if directions == 2 else both[0]
    padded, _ = sequence_pad(rows, tensors.fill_constant([1], x.dtype, 0.0))
    out = tensors.transpose(padded, [1, 0, 2])
    last_h, last_c = (tensors.stack([end[k] for end in ends]) for k in (0, 1))
    return _sized(out, x), _sized(last_h, init_h), _sized(last_c, init_c)


def _sized(x: Variable, like: Variable) -> Variable:
    """Give ``x`` the steps (or states) and the batch of ``like``, which sequences do not tell."""
    sizes = [max(size, 0) for size in (like.shape or ())[:2]]
    return tensors.reshape(x, [*sizes, (x.shape or ())[2]]) if any(sizes) else x


def _parameters(
    weight: Variable, widths: Sequence[int], size: int, directions: int
) -> Iterator[_Walk]:
    """Yield what the parameter holds for each direction of each layer."""
    at, biases_at = 0, sum(4 * size * (width + size) * directions for width in widths)

    def part(begin: int, rows: int, columns: int) -> Variable:
        """Return [columns, 4D] of a stored [4D, columns], its gates in the order of ``lstm``."""
        flat = tensors.slice(weight, [0], [begin], [begin + rows * columns])
        gates = tensors.split(tensors.reshape(flat, [rows, columns]), 4, 0)
        return tensors.transpose(tensors.concat([gates[k] for k in _GATES], 0), [1, 0])

    for width in (width for width in widths for _ in range(directions)):
        biases = [part(biases_at + k * 4 * size, 4 * size, 1) for k in (0, 1)]
        recurrent = part(at + 4 * size * width, 4 * size, size)
        yield _Walk(part(at, 4 * size, width), recurrent, tensors.sums(biases))
        at += 4 * size * (width + size)
        biases_at += 8 * size


def _as_sequences(x: Variable) -> Variable:
    """Return [steps, batch, in] as sequences of as many steps: [batch * steps, in]."""
    by_batch = tensors.transpose(x, [1, 0, 2])
    ones = tensors.fill_constant_batch_size_like(by_batch, [-1], "int64", 1)
    steps = tensors.cast(tensors.slice(tensors.shape(x), [0], [0], [1]), "int64")
    return sequence_unpad(by_batch, ones * steps)


def _unstacked(states: Variable, number: int) -> list[Variable]:
    """Return each of the states that stand behind each other along dimension 0: [batch, D]."""
    parts = (tensors.slice(states, [0], [k], [k + 1]) for k in range(number))
    return [tensors.squeeze(part, [0]) for part in parts]


def _walk(
    rows: Variable, walk: _Walk, states: Sequence[Variable], backwards: bool
) -> tuple[Variable, Variable]:
    """Run one LSTM over sequences; return its states and cells, row by row."""
    helper = LayerHelper("lstm")
    hidden, cell, *_ = helper.layers(
        "lstm",
        "Hidden Cell BatchGate BatchCellPreAct",
        **{"H0": states[0], "C0": states[1]},
        input=mul(rows, walk.input),
        weight=walk.recurrent,
        bias=walk.bias,
        use_peepholes=False,
        is_reverse=backwards,
    )
    return hidden, cell
