"""A sum or product and an activation in one kernel: what stands between is written only where it is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add, mul
from typing import Any

from ....graph.ops.expr import Expr, copy
from ....graph.ops.fused_activation import (
    FUSED,
    activation_in,
    binary_is_outer,
    settings_in,
    slope_of,
    slope_reads,
    sums,
    value_of,
)
from ...codegen.array_calls import bind_scalar
from ...device.device import Device
from ..registry import Step, kernel
from .activation import relu_grad
from .elementwise import aligned, product_grad, summed


@kernel(FUSED)
def fused_elemwise_activation(
    dev: Device,
    x: Any,
    y: Any,
    out: Any,
    intermediate_out: Any,
    *,
    axis: int,
    functor_list: list[str],
    act_attrs: Mapping[str, Any],
    scale: float,
) -> list[Step]:
    act = value_of(activation_in(functor_list), settings_in(functor_list, act_attrs, scale))
    join = add if sums(functor_list) else mul
    a, b = aligned(x, y, axis)
    if binary_is_outer(functor_list):
        if intermediate_out is None:
            return bind_scalar(lambda x, y: join(x, act(y)), {"x": a, "y": b}, {}, out, dev)
        steps = bind_scalar(lambda y: act(y), {"y": y}, {}, intermediate_out, dev)
        a, b = aligned(x, intermediate_out, axis)
        return [*steps, *bind_scalar(lambda x, y: join(x, y), {"x": a, "y": b}, {}, out, dev)]
    middle = out if intermediate_out is None else intermediate_out
    return [
        *bind_scalar(lambda x, y: join(x, y), {"x": a, "y": b}, {}, middle, dev),
        *bind_scalar(lambda m: act(m), {"m": middle}, {}, out, dev),
    ]


@kernel(f"{FUSED}_grad")
def fused_elemwise_activation_grad(
    dev: Device,
    x: Any,
    y: Any,
    out: Any,
    intermediate_out: Any,
    d_out: Any,
    d_x: Any,
    d_y: Any,
    *,
    axis: int,
    functor_list: list[str],
    act_attrs: Mapping[str, Any],
    scale: float,
) -> list[Step]:
    act, act_attrs = activation_in(functor_list), settings_in(functor_list, act_attrs, scale)
    if not sums(functor_list):
        through = _through_product_of if binary_is_outer(functor_list) else _through_product
        arrays = (x, y, out, intermediate_out, d_out, d_x, d_y)
        return through(dev, act, act_attrs, arrays, axis)
    like = d_out if x is None else x
    if binary_is_outer(functor_list):
        held = {"X": y, "Out": intermediate_out}
        return _after_sum(dev, act, act_attrs, (like, y, d_out, d_x, d_y), held, axis)
    a, b = aligned(like, y, axis)
    views = [None if d is None else d.reshape(v.shape) for d, v in ((d_x, a), (d_y, b))]
    # The slope is formed in a gradient of full size, if there is one.
    full = next((v for v in views if v is not None and v.shape == d_out.shape), None)
    middle = dev.scratch(d_out.shape, d_out.dtype) if full is None else full
    if slope_reads(act) == "X" and intermediate_out is None:
        operands = {"x": a, "y": b, "d": d_out}
        slope = slope_of(act, act_attrs)
        steps = bind_scalar(lambda x, y, d: slope(x + y, d), operands, {}, middle, dev)
    else:
        steps = sloped(dev, act, act_attrs, {"X": intermediate_out, "Out": out}, d_out, middle)
    for view in views:
        if view is not None and view is not middle:
            steps += _brought(dev, middle, view)
    return steps


def sloped(
    dev: Device, act: str, settings: Mapping[str, Any], held: Mapping[str, Any], d: Any, made: Any
) -> list[Step]:
    """Return the calls that take a gradient through an activation; ``held`` are its X and its Out."""
    if act == "relu":
        return relu_grad(dev, held["Out"], d, made)
    slope, reads = slope_of(act, settings), slope_reads(act)

    def through(d: Expr) -> Expr:
        return slope(d)

    if not reads:
        return bind_scalar(through, {"d": d}, {}, made, dev)
    operands = {"at": held[reads], "d": d}
    return bind_scalar(lambda at, d: slope(at, d), operands, {}, made, dev)


def _after_sum(
    dev: Device,
    act: str,
    settings: Mapping[str, Any],
    arrays: tuple[Any, ...],
    held: Mapping[str, Any],
    axis: int,
) -> list[Step]:
    """X + act(Y): X gets what comes down, Y that times the slope."""
    like, y, d_out, d_x, d_y = arrays
    a, b = aligned(like, y, axis)
    steps = [] if d_x is None else _brought(dev, d_out, d_x.reshape(a.shape))
    if d_y is None:
        return steps
    came = d_out
    if b.shape != d_out.shape:
        came = dev.scratch(b.shape, d_out.dtype)
        steps += summed(dev, d_out, came)
    return [*steps, *sloped(dev, act, settings, held, came.reshape(y.shape), d_y)]


def _brought(dev: Device, full: Any, view: Any) -> list[Step]:
    if view.shape == full.shape:
        return bind_scalar(lambda d: copy(d), {"d": full}, {}, view, dev)
    return summed(dev, full, view)


def _through_product_of(
    dev: Device, act: str, settings: Mapping[str, Any], arrays: tuple[Any, ...], axis: int
) -> list[Step]:
    """X * act(Y): the product's gradients, and Y's through the activation."""
    x, y, _, middle, d_out, d_x, d_y = arrays
    steps: list[Step] = []
    if middle is None:
        value, middle = value_of(act, settings), dev.scratch(y.shape, y.dtype)
        steps += bind_scalar(lambda y: value(y), {"y": y}, {}, middle, dev)
    d_middle = None if d_y is None else dev.scratch(y.shape, y.dtype)
    steps += product_grad(dev, x, middle, d_out, d_x, d_middle, axis=axis)
    if d_y is not None:
        steps += sloped(dev, act, settings, {"X": y, "Out": middle}, d_middle, d_y)
    return steps


def _through_product(
    dev: Device, act: str, settings: Mapping[str, Any], arrays: tuple[Any, ...], axis: int
) -> list[Step]:
    """act(X * Y): through the activation, then the product's gradients."""
    x, y, out, middle, d_out, d_x, d_y = arrays
    steps: list[Step] = []
    if middle is None and slope_reads(act) == "X":
        middle = dev.scratch(d_out.shape, d_out.dtype)
        a, b = aligned(x, y, axis)
        steps += bind_scalar(lambda x, y: x * y, {"x": a, "y": b}, {}, middle, dev)
    d_middle = dev.scratch(d_out.shape, d_out.dtype)
    steps += sloped(dev, act, settings, {"X": middle, "Out": out}, d_out, d_middle)
    return [*steps, *product_grad(dev, x, y, d_middle, d_x, d_y, axis=axis)]
