"""Binary elementwise kernels: the declared expression on aligned operands; gradients summed back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....graph.ops import expr as e
from ....graph.ops.compare import Compare
from ....graph.ops.elementwise import Elementwise, ElementwiseGrad
from ....graph.ops.elementwise import placed as shape_placed
from ....graph.ops.operands import Array
from ....graph.ops.pointwise import BINARY_GRADS
from ....graph.ops.registry import OPS
from ...codegen.array_calls import bind_scalar
from ...device.device import Device
from ..registry import Step, kernel


def aligned(x: Array, y: Array, axis: int) -> tuple[Any, Any]:
    """Return X and Y as views of one rank, the one with fewer dimensions placed at ``axis``."""
    if x.ndim >= y.ndim:
        return x, placed(y, x.ndim, axis)
    return placed(x, y.ndim, axis), y


def placed(small: Array, rank: int, axis: int) -> Any:
    """Return an array as a view of ``rank`` dimensions, its own from ``axis`` on (-1: at the end)."""
    return small.reshape(shape_placed(small.shape, rank, axis))


def _forward(op_type: str) -> Callable[..., list[Step]]:
    scalar = OPS[op_type].scalar
    assert scalar is not None

    def bind(dev: Device, a: Compare | Elementwise) -> list[Step]:
        x, y = aligned(a.x, a.y, a.axis)
        return bind_scalar(scalar, {"x": x, "y": y}, {}, a.out, dev)

    return bind


def divided(dev: Device, a: Array, b: Array | int, out: Array) -> list[Step]:
    """Divide integers as C does: what is behind the point is dropped."""
    rest = dev.scratch(out.shape, out.dtype)
    return [
        partial(dev.xp.fmod, a, b, rest),
        partial(dev.xp.subtract, a, rest, rest),
        partial(dev.xp.floor_divide, rest, b, out),
    ]


@kernel("elementwise_div", "elementwise_floordiv")
def divide(dev: Device, a: Elementwise) -> list[Step]:
    x, y = aligned(a.x, a.y, a.axis)
    if a.out.dtype.kind in "iu":
        return divided(dev, x, y, a.out)
    return [partial(dev.xp.divide, x, y, a.out)]


@kernel("elementwise_mod")
def remainder(dev: Device, a: Elementwise) -> list[Step]:
    """The sign is that of X for integers and that of Y for floats, as in Paddle."""
    x, y = aligned(a.x, a.y, a.axis)
    whole = a.out.dtype.kind in "iu"
    return [partial(dev.xp.fmod if whole else dev.xp.remainder, x, y, a.out)]


def summed(dev: Device, full: Array, like: Array) -> list[Step]:
    """Return the calls that sum ``full`` over the dimensions along which ``like`` was broadcast."""
    axes = tuple(i for i in range(full.ndim) if like.shape[i] == 1 and full.shape[i] != 1)
    return [partial(dev.xp.add.reduce, full, axes, None, like, True)]


_COPIES = {BINARY_GRADS[name][0] for name in ("elementwise_add", "elementwise_sub")}


def _backward(op_type: str) -> Callable[..., list[Step]]:
    grads = BINARY_GRADS[op_type]

    def bind(dev: Device, a: ElementwiseGrad) -> list[Step]:
        x, y = aligned(a.x, a.y, a.axis)
        operands = {"x": x, "y": y, "d": a.d_out}
        steps: list[Step] = []
        # Y's first: X's may lie where the gradient of Out does
        for scalar, out, like in ((grads[1], a.d_y, y), (grads[0], a.d_x, x)):
            if out is None or (out is a.d_out and scalar in _COPIES):
                continue
            view = out if out.shape == like.shape else out.reshape(like.shape)
            if view.shape == a.d_out.shape:
                steps += bind_scalar(scalar, operands, {}, view, dev)
            else:
                steps += _broadcast_grad(dev, scalar, operands, view)
        return steps

    return bind


def _broadcast_grad(
    dev: Device, scalar: Callable[..., Any], operands: dict[str, Any], view: Array
) -> list[Step]:
    d = operands["d"]
    if scalar(*(e.argument(name) for name in operands)).fn == "positive":
        return summed(dev, d, view)
    full = dev.scratch(d.shape, d.dtype)
    return [*bind_scalar(scalar, operands, {}, full, dev), *summed(dev, full, view)]


for _op_type in ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"):
    kernel(_op_type)(_forward(_op_type))
for _op_type in BINARY_GRADS:
    if _op_type != "elementwise_div":
        kernel(_op_type)(_forward(_op_type))
    kernel(f"{_op_type}_grad")(_backward(_op_type))

product_grad = _backward("elementwise_mul")
