"""Binary elementwise kernels: the declared expression on aligned operands; gradients summed back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...graph.ops import expr as e
from ...graph.ops.registry import OPS
from ..codegen.array_calls import bind_scalar
from ..device import Device
from .registry import Step, kernel


def aligned(x: Any, y: Any, axis: int) -> tuple[Any, Any]:
    """Return X and Y as views of one rank, the one with fewer dimensions placed at ``axis``."""
    big, small = (x, y) if x.ndim >= y.ndim else (y, x)
    start = big.ndim - small.ndim if axis == -1 else axis
    dims = small.shape
    while len(dims) > 1 and dims[-1] == 1 and start + len(dims) > big.ndim:
        dims = dims[:-1]
    view = small.reshape((1,) * start + dims + (1,) * (big.ndim - start - len(dims)))
    return (big, view) if big is x else (view, big)


def _forward(op_type: str) -> Callable[..., list[Step]]:
    scalar = OPS[op_type].scalar
    assert scalar is not None

    def bind(dev: Device, x: Any, y: Any, out: Any, *, axis: int) -> list[Step]:
        a, b = aligned(x, y, axis)
        return bind_scalar(scalar, {"x": a, "y": b}, {}, out, dev)

    return bind


def divided(dev: Device, a: Any, b: Any, out: Any) -> list[Step]:
    """Divide integers as C does: what is behind the point is dropped."""
    rest = dev.scratch(out.shape, out.dtype)
    return [
        partial(dev.xp.fmod, a, b, rest),
        partial(dev.xp.subtract, a, rest, rest),
        partial(dev.xp.floor_divide, rest, b, out),
    ]


@kernel("elementwise_div", "elementwise_floordiv")
def divide(dev: Device, x: Any, y: Any, out: Any, *, axis: int) -> list[Step]:
    a, b = aligned(x, y, axis)
    if out.dtype.kind in "iu":
        return divided(dev, a, b, out)
    return [partial(dev.xp.divide, a, b, out)]


@kernel("elementwise_mod")
def remainder(dev: Device, x: Any, y: Any, out: Any, *, axis: int) -> list[Step]:
    """The sign is that of X for integers and that of Y for floats, as in Paddle."""
    a, b = aligned(x, y, axis)
    whole = out.dtype.kind in "iu"
    return [partial(dev.xp.fmod if whole else dev.xp.remainder, a, b, out)]


def summed(dev: Device, full: Any, like: Any) -> list[Step]:
    """Return the calls that sum ``full`` over the dimensions along which ``like`` was broadcast."""
    axes = tuple(i for i in range(full.ndim) if like.shape[i] == 1 and full.shape[i] != 1)
    return [partial(dev.xp.add.reduce, full, axes, None, like, True)]


# d X and d Y of one element, from the operands and d (the gradient of Out)
_GRADS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "elementwise_add": (lambda x, y, d: e.copy(d), lambda x, y, d: e.copy(d)),
    "elementwise_sub": (lambda x, y, d: e.copy(d), lambda x, y, d: -d),
    "elementwise_mul": (lambda x, y, d: d * y, lambda x, y, d: d * x),
    "elementwise_div": (lambda x, y, d: d / y, lambda x, y, d: -(d * x / (y * y))),
    "elementwise_max": (lambda x, y, d: e.where(x > y, d, 0), lambda x, y, d: e.where(x > y, 0, d)),
    "elementwise_min": (lambda x, y, d: e.where(x < y, d, 0), lambda x, y, d: e.where(x < y, 0, d)),
    "elementwise_pow": (
        lambda x, y, d: d * y * x ** (y - 1),
        lambda x, y, d: d * e.log(x) * x**y,
    ),
}


def _backward(op_type: str) -> Callable[..., list[Step]]:
    grads = _GRADS[op_type]

    def bind(
        dev: Device, x: Any, y: Any, d_out: Any, d_x: Any, d_y: Any, *, axis: int
    ) -> list[Step]:
        a, b = aligned(x, y, axis)
        operands = {"x": a, "y": b, "d": d_out}
        steps: list[Step] = []
        for scalar, out, like in ((grads[0], d_x, a), (grads[1], d_y, b)):
            if out is None:
                continue
            view = out.reshape(like.shape)
            if view.shape == d_out.shape:
                steps += bind_scalar(scalar, operands, {}, view, dev)
            else:
                steps += _broadcast_grad(dev, scalar, operands, view)
        return steps

    return bind


def _broadcast_grad(
    dev: Device, scalar: Callable[..., Any], operands: dict[str, Any], view: Any
) -> list[Step]:
    d = operands["d"]
    if scalar(*(e.argument(name) for name in operands)).fn == "positive":
        return summed(dev, d, view)
    full = dev.scratch(d.shape, d.dtype)
    return [*bind_scalar(scalar, operands, {}, full, dev), *summed(dev, full, view)]


for _op_type in ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"):
    kernel(_op_type)(_forward(_op_type))
for _op_type in _GRADS:
    if _op_type != "elementwise_div":
        kernel(_op_type)(_forward(_op_type))
    kernel(f"{_op_type}_grad")(_backward(_op_type))
