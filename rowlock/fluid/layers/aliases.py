"""Names that ``fluid.layers`` had before Paddle 2.0 gave their functions others."""

from __future__ import annotations

from typing import Any

from ...functions import creation
from ...functions import math as functions
from ...graph.layers import binary, images
from ...graph.layers import shape as layers
from ...graph.program.variable import Variable
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue
from ...strategies.types import FLOATS
from .composed import into

interpolate = images.image_resize
t = functions.t


def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """input + tensor1 tensor2 value; ``value`` is a float for floats, an int for integers."""
    kind: Any = float if input.dtype in FLOATS else int
    if not isinstance(value, kind):
        raise InvalidType(f"addcmul: value must be of type {kind.__name__}, got {value!r}.")
    total = binary.elementwise_add(input, binary.elementwise_mul(tensor1, tensor2) * value)
    return total if out is None else layers.assign(total, out)


def clamp(
    input: Variable,
    min: Any = None,
    max: Any = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """input cut to [min, max]: floats or Variables of one element, at least one of them."""
    if min is None and max is None:
        raise InvalidArgument("clamp: give min or max.")
    for argument, bound in (("min", min), ("max", max)):
        if bound is not None and not isinstance(bound, (float, Variable)):
            raise InvalidType(f"clamp: {argument} must be a float or a Variable, got {bound!r}.")
    result = functions.clip(input, min, max, name)
    return result if output is None else layers.assign(result, output)


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """x == y, element by element."""
    return binary.equal(x, y)


def _device(device: Any, layer: str) -> None:
    if device not in (None, "cpu", "gpu"):
        raise InvalidValue(f"{layer}: device is 'cpu', 'gpu' or None, got {device!r}.")


def full(
    shape: Any,
    fill_value: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: Any = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor of one value, float32 by default, on the device of the executor."""
    _device(device, "full")
    value = layers.fill_constant(shape, "float32" if dtype is None else dtype, fill_value)
    return into(value, out, stop_gradient)


def full_like(
    input: Variable,
    fill_value: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: Any = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor of one value in the shape of ``input``, on the device of the executor."""
    _device(device, "full_like")
    return into(creation.full_like(input, fill_value, dtype), out, stop_gradient)
