"""Kernels in generated loops: ops with a scalar expression, and elementwise ops with their gradients.

NumPy makes a pass over memory for each function in an expression; a loop makes one for the whole op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.ir import Node
from ...graph.ops import expr as e
from ...graph.ops.pointwise import BINARY_GRADS, arguments, scaled, total
from ...graph.ops.registry import OPS, Op
from ...strategies.types import VarType
from ..codegen.array_calls import trace
from ..codegen.loops import bind_loop
from ..codegen.native import Launch
from ..codegen.scalar_source import known
from ..device import Device
from .elementwise import aligned
from .registry import KERNELS, Kernel, kernel

_TYPES = (VarType.FP32, VarType.BOOL)


def in_float32(node: Node) -> bool:
    """Tell whether a loop can compute the node: float32 in, float32 or booleans out."""
    read, written = node.reads(), node.writes()
    return all(v.spec.dtype == VarType.FP32 for v in read) and all(
        v.spec.dtype in _TYPES for v in written
    )


def _expression(op: Op) -> Callable[..., list[Launch]]:
    assert len(op.output_slots) == 1
    names = tuple(s.parameter for s in op.input_slots)

    def bind(dev: Device, *arrays: Any, **attrs: Any) -> list[Launch]:
        *operands, out = arrays
        if out is None:
            return []
        read = {n: a for n, a in zip(names, operands, strict=True) if a is not None}
        return bind_loop([(trace(op.scalar, attrs), out)], read)  # type: ignore[arg-type]

    bind.__doc__ = f"The expression of {op.type} in one loop."
    return bind


def _wants(op: Op) -> Callable[[Node], bool]:
    """An expression may depend on attributes, so only with these is it known what a loop must be able to do."""

    def takes(node: Node) -> bool:
        return in_float32(node) and known(trace(op.scalar, node.attrs))  # type: ignore[arg-type]

    return takes


def _register(op: Op) -> None:
    slots = (*op.input_slots, *op.output_slots)
    operands = tuple(slot.parameter for slot in slots)
    KERNELS[op.type, "numba"] = Kernel(_expression(op), operands, tuple(op.attrs), _wants(op))


def _elementwise(op_type: str) -> Callable[..., list[Launch]]:
    scalar = OPS[op_type].scalar
    assert scalar is not None
    expression = scalar(e.argument("x"), e.argument("y"))

    def bind(dev: Device, x: Any, y: Any, out: Any, *, axis: int) -> list[Launch]:
        a, b = aligned(x, y, axis)
        return bind_loop([(expression, out)], {"x": a, "y": b})

    return bind


def _elementwise_grad(op_type: str) -> Callable[..., list[Launch]]:
    d_first, d_second = (f(*map(e.argument, "xyd")) for f in BINARY_GRADS[op_type])

    def bind(
        dev: Device, x: Any, y: Any, d_out: Any, d_x: Any, d_y: Any, *, axis: int
    ) -> list[Launch]:
        a, b = aligned(x, y, axis)
        found = ((d_first, d_x, a), (d_second, d_y, b))
        outputs = [(d, out.reshape(like.shape)) for d, out, like in found if out is not None]
        used = arguments([d for d, _ in outputs])
        operands = {"x": a, "y": b, "d": d_out}
        return (
            bind_loop(outputs, {n: v for n, v in operands.items() if n in used}) if outputs else []
        )

    return bind


@kernel("scale", on=("numba",), takes=in_float32)
def scale(
    dev: Device, x: Any, out: Any, *, scale: float, bias: float, bias_after_scale: bool
) -> list[Launch]:
    """scale * x + bias, or scale * (x + bias)."""
    made = scaled(e.argument("x"), scale=scale, bias=bias, bias_after_scale=bias_after_scale)
    return bind_loop([(made, out)], {"x": x})


@kernel("sum", on=("numba",), takes=in_float32)
def sum_(dev: Device, x: list[Any], out: Any) -> list[Launch]:
    """Add several arrays from left to right."""
    names = [f"x{k}" for k in range(len(x))]
    return bind_loop(
        [(total([e.argument(n) for n in names]), out)], dict(zip(names, x, strict=True))
    )


for _op_type in ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"):
    kernel(_op_type, on=("numba",), takes=in_float32)(_elementwise(_op_type))
for _op_type in BINARY_GRADS:
    kernel(_op_type, on=("numba",), takes=in_float32)(_elementwise(_op_type))
    kernel(f"{_op_type}_grad", on=("numba",), takes=in_float32)(_elementwise_grad(_op_type))
for _op in list(OPS.values()):
    of_numbers = not _op.type.startswith("logical_")
    if _op.scalar is not None and of_numbers and (_op.type, "numba") not in KERNELS:
        _register(_op)
