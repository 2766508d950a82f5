"""Tables of a layer's parts: shapes of their results, parameters and multiplications."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...graph.layers.io import checked_data
from ...graph.program.clone import copy_program
from ...graph.program.program import Program, default_main_program, program_guard
from ...graph.program.variable import Variable
from ...graph.report.counts import table
from ...static.input_spec import InputSpec
from ...strategies.errors import InvalidType, InvalidValue
from .activation import LeakyReLU
from .common import Linear
from .container import LayerList, Sequential
from .conv import Conv1D, Conv1DTranspose, Conv2D, Conv2DTranspose, Conv3D, Conv3DTranspose
from .layers import Layer
from .norm import BatchNorm, BatchNorm2D
from .pooling import (
    AdaptiveAvgPool1D,
    AdaptiveAvgPool2D,
    AdaptiveAvgPool3D,
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
)

Shape = tuple[int, ...]


class _Call(NamedTuple):
    """One call of a layer: the shapes of its first operand and of its first result."""

    layer: Layer
    source: Shape
    result: Shape


def _shape(values: Any) -> Shape:
    while isinstance(values, (list, tuple)) and values:
        values = values[0]
    return tuple(abs(n) for n in values.shape or ()) if isinstance(values, Variable) else ()


def _calls(net: Layer, inputs: Sequence[tuple[Sequence[int], Any]]) -> list[_Call]:
    """Call a layer in a copy of its program, as in testing, and return the calls of its parts."""
    calls: list[_Call] = []
    parts = [net, *net.sublayers()]
    hooks = [
        part.register_forward_post_hook(
            lambda layer, ins, outs: calls.append(_Call(layer, _shape(ins), _shape(outs)))
        )
        for part in parts
    ]
    training = [part for part in parts if part.training]
    program = next((p.block.program for p in net.parameters()), default_main_program())
    net.eval()
    try:
        with program_guard(copy_program(program), Program()):
            feeds = [
                checked_data(f"overview_{k}", shape, dtype)
                for k, (shape, dtype) in enumerate(inputs)
            ]
            net(*feeds)
    finally:
        for hook in hooks:
            hook.remove()
        for part in training:
            part.training = True
    return calls


def _of_convolution(layer: Any, source: Shape, result: Shape) -> int:
    window = math.prod(layer.weight.shape[2:]) * source[1] / layer._groups
    return int(math.prod(result) * (window + (layer.bias is not None)))


def _of_adaptive_pool(layer: Layer, source: Shape, result: Shape) -> int:
    sides = zip(source[2:], result[2:], strict=True)
    return math.prod(result) * (math.prod(n // m for n, m in sides) + 1)


# What each kind of layer computes, as Paddle counts it: a multiplication with its addition is one.
_COUNTS: Mapping[type[Layer], Callable[[Any, Shape, Shape], int]] = {
    **dict.fromkeys(
        (Conv1D, Conv2D, Conv3D, Conv1DTranspose, Conv2DTranspose, Conv3DTranspose), _of_convolution
    ),
    **dict.fromkeys((BatchNorm, BatchNorm2D), lambda layer, source, result: 2 * math.prod(source)),
    **dict.fromkeys(
        (AvgPool1D, AvgPool2D, AvgPool3D), lambda layer, source, result: math.prod(result)
    ),
    **dict.fromkeys((AdaptiveAvgPool1D, AdaptiveAvgPool2D, AdaptiveAvgPool3D), _of_adaptive_pool),
    LeakyReLU: lambda layer, source, result: math.prod(source),
    Linear: lambda layer, source, result: math.prod(result) * layer.weight.shape[0],
}


def _count(parameters: Sequence[Variable]) -> int:
    return sum(math.prod(p.shape or ()) for p in parameters)


def flops(
    net: Layer,
    input_size: Sequence[int],
    custom_ops: Mapping[type[Layer], Callable[..., None]] | None = None,
    print_detail: bool = False,
) -> int:
    """Count the multiplications (each with an addition) that a layer computes of an input, and print the sum.

    Convolutions, products, batch norms (of images), average pools and LeakyReLU count, as in Paddle; others are
    nothing. ``print_detail`` prints a row for each layer.

    Raises:
        InvalidType: ``net`` is no Layer; of a Program ``fluid.contrib.model_stat.summary`` tells.
        InvalidValue: there are ``custom_ops``, which read arrays.
    """
    _check(net, "flops")
    if custom_ops:
        raise InvalidValue(
            "flops: custom_ops cannot be called: in a static program there are no arrays."
        )
    rows, total = [], 0
    for layer, source, result in _calls(net, [(input_size, "float32")]):
        if list(layer.children()):
            continue
        count = _COUNTS[type(layer)](layer, source, result) if type(layer) in _COUNTS else 0
        total += count
        own = str(_count(layer.parameters()))
        rows.append((layer.full_name(), str(list(source)), str(list(result)), own, str(count)))
    if print_detail:
        print(table(("Layer Name", "Input Shape", "Output Shape", "Params", "Flops"), rows))
    print(f"Total Flops: {total}     Total Params: {_count(net.parameters())}")
    return total


def summary(
    net: Layer, input_size: Any = None, dtypes: Any = None, input: Any = None
) -> dict[str, int]:
    """Print each part of a layer with the shape of its input and output, and how many parameters it has.

    Args:
        input_size: a shape, an InputSpec, or a list of these, one for each input; -1 for a batch counts as 1.
        dtypes: the element type of the inputs, or a list of them; float32 unless told.
        input: a Variable, or a list of them, whose shapes to take instead.

    Returns:
        {"total_params": ..., "trainable_params": ...}.

    Raises:
        InvalidType: ``net`` is no Layer.
        InvalidValue: there is neither ``input_size`` nor ``input``, or a size is not known.
    """
    _check(net, "summary")
    described = input_size if input is None else input
    if described is None:
        raise InvalidValue("summary needs input_size, or input.")
    several = isinstance(described, list) and not all(
        isinstance(n, int) or n is None for n in described
    )
    inputs = []
    for k, spec in enumerate(described if several else [described]):
        has_spec = isinstance(spec, (InputSpec, Variable))
        shape = spec.shape if has_spec else (spec,) if isinstance(spec, int) else spec
        sizes = [1 if k == 0 and n in (None, -1) else n for k, n in enumerate(shape)]
        if not all(isinstance(n, int) and n > 0 for n in sizes):
            raise InvalidValue(f"summary: only the batch of {list(shape)} may be unknown.")
        dtype = dtypes[k] if isinstance(dtypes, (list, tuple)) else dtypes or "float32"
        inputs.append((sizes, spec.dtype if has_spec else dtype))
    columns = [
        call
        for call in _calls(net, inputs)
        if not isinstance(call.layer, (Sequential, LayerList))
        and (call.layer is not net or not net.sublayers())
    ]
    rows = [
        (f"{type(c.layer).__name__}: {c.layer.full_name()}", str(list(c.source)), str(list(c.result)),
         f"{_count(c.layer.parameters()):,}")
        for c in columns
    ]  # fmt: skip
    total = _count(net.parameters())
    trainable = _count([p for p in net.parameters() if p.trainable and not p.stop_gradient])
    print(table(("Layer (type)", "Input Shape", "Output Shape", "Param #"), rows))
    print(f"Total params: {total:,}\nTrainable params: {trainable:,}")
    print(f"Non-trainable params: {total - trainable:,}")
    return {"total_params": total, "trainable_params": trainable}


def _check(net: Any, function: str) -> None:
    if not isinstance(net, Layer):
        raise InvalidType(
            f"{function} takes a Layer, got {type(net).__name__}: of a Program "
            "fluid.contrib.model_stat.summary tells."
        )
