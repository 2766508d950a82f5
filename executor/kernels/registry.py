"""The table of kernels, and how one is bound to buffers.

A kernel is written as a function that gets the arrays once and returns the work to do each step::

    @kernel("relu")
    def relu(dev, x, out):
        return partial(dev.xp.maximum, x, 0, out)

Everything that depends only on shapes and attributes (views, strides, scratch) is done when binding; what is
returned (a callable, or a list of them) is all that runs in a step. Parameters are named after slots
(``SavedMean`` is saved_mean, ``Out@GRAD`` is d_out), keyword-only parameters after attributes. A slot not
in use is None, a slot that takes any number of variables is a list.

Rules: write every element of every output that is not None; never write an operand, except where the op
updates it (``ParamOut`` is the same memory as ``Param``); take scratch from ``dev.scratch``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...graph.ops.registry import OPS, Op, parameter_name
from ...strategies.errors import Unsupported
from ..codegen.array_calls import bind_scalar
from ..device import Device

Step = Callable[[], Any]
BACK_ENDS = ("numpy", "cupy")


@dataclass(frozen=True)
class Kernel:
    """A bound-to-be function and which slots and attributes its parameters stand for."""

    function: Callable[..., Any]
    operands: tuple[str, ...]
    attributes: tuple[str, ...]


KERNELS: dict[tuple[str, str], Kernel] = {}


def kernel(
    *op_types: str, on: Sequence[str] = BACK_ENDS
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the kernel of ops on back ends (both, for code written against ``dev.xp``)."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            found = _examine(OPS[op_type], function)
            for back_end in on:
                assert (op_type, back_end) not in KERNELS, (
                    f"{op_type} has two kernels on {back_end}"
                )
                KERNELS[op_type, back_end] = found
        return function

    return register


def _examine(op: Op, function: Callable[..., Any]) -> Kernel:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    operands = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
    attributes = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    slots = {slot.parameter for slot in (*op.input_slots, *op.output_slots)}
    assert set(operands) <= slots, f"{op.type}: no slots {sorted(set(operands) - slots)}"
    assert set(attributes) <= set(op.attrs), (
        f"{op.type}: no attributes {set(attributes) - set(op.attrs)}"
    )
    return Kernel(function, operands, attributes)


def has_kernel(op_type: str, back_end: str) -> bool:
    """Tell whether an op can run on a back end."""
    return (op_type, back_end) in KERNELS or OPS[op_type].scalar is not None


def bind(
    op_type: str,
    inputs: Mapping[str, Sequence[Any]],
    outputs: Mapping[str, Sequence[Any]],
    attrs: Mapping[str, Any],
    dev: Device,
) -> list[Step]:
    """Return the calls that compute the op on these arrays (slot -> arrays; None for an unwanted output).

    Raises:
        Unsupported: the op has no kernel on this device.
    """
    op = OPS[op_type]
    arrays: dict[str, Any] = {}
    for slots, given in ((op.input_slots, inputs), (op.output_slots, outputs)):
        for slot in slots:
            held = list(given.get(slot.name, ()))
            arrays[slot.parameter] = held if slot.duplicable else (held[0] if held else None)
    found = KERNELS.get((op_type, dev.name))
    if found is None:
        return _bind_expression(op, arrays, attrs, dev)
    steps = found.function(
        dev,
        *(arrays[name] for name in found.operands),
        **{name: attrs[name] for name in found.attributes},
    )
    if steps is None:
        return []
    return list(steps) if isinstance(steps, (list, tuple)) else [steps]


def _bind_expression(
    op: Op, arrays: dict[str, Any], attrs: Mapping[str, Any], dev: Device
) -> list[Step]:
    if op.scalar is None:
        raise Unsupported(f"{op.type} has no kernel on {dev.name}.")
    (out,) = (arrays[parameter_name(slot.name)] for slot in op.output_slots)
    if out is None:
        return []
    return bind_scalar(op.scalar, arrays, attrs, out, dev)
