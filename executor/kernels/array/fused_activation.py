"""A sum or product and an activation in one kernel: what stands between is written only where it is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add, mul
from typing import Any

from ....graph.ops import fused_activation as ops
from ....graph.ops.elementwise import ElementwiseGrad
from ....graph.ops.expr import Expr, copy
from ....graph.ops.operands import Array, SlopeOfOut
from ...codegen.array_calls import bind_scalar
from ...device.device import Device
from ..registry import Step, kernel
from .activation import relu_grad
from .elementwise import aligned, product_grad, summed


@kernel(ops.FUSED)
def fused_elemwise_activation(dev: Device, a: ops.FusedElemwiseActivation) -> list[Step]:
    act = ops.value_of(
        ops.activation_in(a.functor_list), ops.settings_in(a.functor_list, a.act_attrs, a.scale)
    )
    join = add if ops.sums(a.functor_list) else mul
    x, y = aligned(a.x, a.y, a.axis)
    if ops.binary_is_outer(a.functor_list):
        if a.intermediate_out is None:
            return bind_scalar(lambda x, y: join(x, act(y)), {"x": x, "y": y}, {}, a.out, dev)
        steps = bind_scalar(lambda y: act(y), {"y": a.y}, {}, a.intermediate_out, dev)
        x, y = aligned(a.x, a.intermediate_out, a.axis)
        return [*steps, *bind_scalar(lambda x, y: join(x, y), {"x": x, "y": y}, {}, a.out, dev)]
    middle = a.out if a.intermediate_out is None else a.intermediate_out
    return [
        *bind_scalar(lambda x, y: join(x, y), {"x": x, "y": y}, {}, middle, dev),
        *bind_scalar(lambda m: act(m), {"m": middle}, {}, a.out, dev),
    ]


@kernel(f"{ops.FUSED}_grad")
def fused_elemwise_activation_grad(dev: Device, a: ops.FusedElemwiseActivationGrad) -> list[Step]:
    act = ops.activation_in(a.functor_list)
    settings = ops.settings_in(a.functor_list, a.act_attrs, a.scale)
    if not ops.sums(a.functor_list):
        through = _through_product_of if ops.binary_is_outer(a.functor_list) else _through_product
        return through(dev, act, settings, a)
    like = a.d_out if a.x is None else a.x
    if ops.binary_is_outer(a.functor_list):
        sides = {"X": a.y, "Out": a.intermediate_out}
        return _after_sum(dev, act, settings, a, sides)
    x, y = aligned(like, a.y, a.axis)
    views = [None if d is None else d.reshape(v.shape) for d, v in ((a.d_x, x), (a.d_y, y))]
    # The slope is formed in a gradient of full size, if there is one.
    full = next((v for v in views if v is not None and v.shape == a.d_out.shape), None)
    middle = dev.scratch(a.d_out.shape, a.d_out.dtype) if full is None else full
    if ops.slope_reads(act) == "X" and a.intermediate_out is None:
        operands = {"x": x, "y": y, "d": a.d_out}
        slope = ops.slope_of(act, settings)
        steps = bind_scalar(lambda x, y, d: slope(x + y, d), operands, {}, middle, dev)
    else:
        steps = sloped(dev, act, settings, {"X": a.intermediate_out, "Out": a.out}, a.d_out, middle)
    for view in views:
        if view is not None and view is not middle:
            steps += _brought(dev, middle, view)
    return steps


def sloped(
    dev: Device, act: str, settings: Mapping[str, Any], sides: Mapping[str, Any], d: Any, d_x: Any
) -> list[Step]:
    """Return the calls that take a gradient through an activation; ``sides`` are its X and its Out."""
    if act == "relu":
        return relu_grad(dev, SlopeOfOut(out=sides["Out"], d_out=d, d_x=d_x))
    slope, reads = ops.slope_of(act, settings), ops.slope_reads(act)

    def through(d: Expr) -> Expr:
        return slope(d)

    if not reads:
        return bind_scalar(through, {"d": d}, {}, d_x, dev)
    operands = {"at": sides[reads], "d": d}
    return bind_scalar(lambda at, d: slope(at, d), operands, {}, d_x, dev)


def _after_sum(
    dev: Device,
    act: str,
    settings: Mapping[str, Any],
    a: ops.FusedElemwiseActivationGrad,
    sides: Mapping[str, Any],
) -> list[Step]:
    """X + act(Y): X gets what comes down, Y that times the slope."""
    x, y = aligned(a.d_out if a.x is None else a.x, a.y, a.axis)
    steps = [] if a.d_x is None else _brought(dev, a.d_out, a.d_x.reshape(x.shape))
    if a.d_y is None:
        return steps
    d_sum = a.d_out
    if y.shape != a.d_out.shape:
        d_sum = dev.scratch(y.shape, a.d_out.dtype)
        steps += summed(dev, a.d_out, d_sum)
    return [*steps, *sloped(dev, act, settings, sides, d_sum.reshape(a.y.shape), a.d_y)]


def _brought(dev: Device, full: Array, view: Array) -> list[Step]:
    if view.shape == full.shape:
        return bind_scalar(lambda d: copy(d), {"d": full}, {}, view, dev)
    return summed(dev, full, view)


def _product_grad(
    dev: Device, a: ops.FusedElemwiseActivationGrad, y: Array, d_out: Array, d_y: Array | None
) -> list[Step]:
    """The gradients of X * y, for an X that is not left out."""
    assert a.x is not None, "a product's gradients are functions of X"
    grad = ElementwiseGrad(x=a.x, y=y, d_out=d_out, d_x=a.d_x, d_y=d_y, axis=a.axis)
    return product_grad(dev, grad)


def _through_product_of(
    dev: Device, act: str, settings: Mapping[str, Any], a: ops.FusedElemwiseActivationGrad
) -> list[Step]:
    """X * act(Y): the product's gradients, and Y's through the activation."""
    steps: list[Step] = []
    middle = a.intermediate_out
    if middle is None:
        value, middle = ops.value_of(act, settings), dev.scratch(a.y.shape, a.y.dtype)
        steps += bind_scalar(lambda y: value(y), {"y": a.y}, {}, middle, dev)
    d_middle = None if a.d_y is None else dev.scratch(a.y.shape, a.y.dtype)
    steps += _product_grad(dev, a, middle, a.d_out, d_middle)
    if a.d_y is not None:
        steps += sloped(dev, act, settings, {"X": a.y, "Out": middle}, d_middle, a.d_y)
    return steps


def _through_product(
    dev: Device, act: str, settings: Mapping[str, Any], a: ops.FusedElemwiseActivationGrad
) -> list[Step]:
    """act(X * Y): through the activation, then the product's gradients."""
    steps: list[Step] = []
    middle = a.intermediate_out
    if middle is None and ops.slope_reads(act) == "X":
        assert a.x is not None, "a product's gradients are functions of X"
        middle = dev.scratch(a.d_out.shape, a.d_out.dtype)
        x, y = aligned(a.x, a.y, a.axis)
        steps += bind_scalar(lambda x, y: x * y, {"x": x, "y": y}, {}, middle, dev)
    d_middle = dev.scratch(a.d_out.shape, a.d_out.dtype)
    steps += sloped(dev, act, settings, {"X": middle, "Out": a.out}, a.d_out, d_middle)
    return [*steps, *_product_grad(dev, a, a.y, d_middle, a.d_y)]
