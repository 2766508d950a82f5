"""Activations, forward and backward. Relu is NumPy's: the library's turns NaN into zero."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import expr as e
from ....graph.ops.activation import gelu_slope
from ....graph.ops.operands import Array
from ....graph.ops.pointwise import total
from ...codegen.loops import bind_loop
from ...codegen.native import version
from ...device.device import Device
from ..registry import Step
from .primitive import ELTWISE, TRAINING, Layout, Primitive, layout_of, shared

# Functions whose slope is taken from their result (dnnl_eltwise_*_use_dst_for_bwd)
_FROM_RESULT = {"relu": 0x100, "tanh": 0x101, "sigmoid": 0x104}


@shared
def _forward(kind: int, x: Layout) -> Primitive:
    return Primitive("eltwise_forward", TRAINING, kind, x, x, 0.0, 0.0)


@shared
def _backward(kind: int, x: Layout) -> Primitive:
    return Primitive("eltwise_backward", kind, x, x, x, 0.0, 0.0, hint=_forward(kind, x))


def activation(dev: Device, act: str, x: Array, out: Array) -> list[Step]:
    """out = act(x)."""
    return _relu(out, x) if act == "relu" else _by_library(dev, act, x, out)


def sum_and_activation(dev: Device, act: str, y: Any, z: Array | None) -> list[Step]:
    """y = act(y + z), or act(y) if z is None."""
    if act == "relu":
        return _relu(y, y, *(() if z is None else (z,)))
    added = [] if z is None else [partial(np.add, y, z, y)]
    return [*added, *_by_library(dev, act, y, y)]


def _by_library(dev: Device, act: str, x: Array, out: Array) -> list[Step]:
    if dev.uneven and act == "tanh" and version():  # the library compiles for each number of rows
        return [*bind_loop([(e.tanh(e.argument("x")), out)], {"x": x})]
    return _forward(ELTWISE[act], layout_of(out)).bind(dev, {"src": x}, {"dst": out})


def _relu(out: Any, x: Array, *more: Array) -> list[Step]:
    """out = relu(x), or relu(x + more): a loop in the order of memory, where there is a compiler."""
    if not version():
        added = [partial(np.add, x, z, out) for z in more]
        return [*added, partial(np.maximum, out if more else x, 0, out=out)]
    arrays = {f"x{k}": array for k, array in enumerate((x, *more))}
    return [*bind_loop([(e.maximum(total([*map(e.argument, arrays)]), 0), out)], arrays)]


def slope_at_result(dev: Device, act: str, out: Array, d_out: Array, d_x: Any) -> list[Step]:
    """Take a gradient through relu, tanh or sigmoid, given their result, which may be rounded for relu."""
    if act == "relu" and version():  # faster than the library, and reads rounded results
        slope = e.where(e.argument("y") <= 0, 0, e.argument("d"))
        return [*bind_loop([(slope, d_x)], {"y": out, "d": d_out})]
    compiled = _backward(_FROM_RESULT[act], layout_of(d_x))
    return compiled.bind(dev, {"dst": out, "d_dst": d_out}, {"d_src": d_x})


def slope_at_operand(dev: Device, act: str, x: Array, d_out: Array, d_x: Any) -> list[Step]:
    """Take a gradient through an activation, given its operand."""
    compiled = _backward(ELTWISE[act], layout_of(d_x))
    return compiled.bind(dev, {"src": x, "d_dst": d_out}, {"d_src": d_x})


def slope_of_rows(
    dev: Device, act: str, point: Any, d_out: Array, d_x: Any, sums: Array | None
) -> list[Step]:
    """Take the gradient of rows through relu or gelu (or "none"), and add up the columns in ``sums``.

    ``point`` holds relu's result or gelu's operand; without an activation ``d_x`` is ``d_out``. One compiled
    loop does both: the library's own gradient of gelu took twice as long in some processes.
    """
    if not version():
        steps: list[Step] = []
        if act != "none":
            slope = slope_at_result if act == "relu" else slope_at_operand
            steps = slope(dev, act, point, d_out, d_x)
        return [*steps, partial(np.add.reduce, d_x, 0, None, sums)] if sums is not None else steps
    d, at = e.argument("d"), e.argument("x")
    result, arrays = d, {"d": d_out}
    if act != "none":
        result = e.where(at <= 0, 0, d) if act == "relu" else d * gelu_slope(at, act == "gelu_tanh")
        arrays["x"] = point
    outputs = [(result, d_x)] if act != "none" else []
    outputs += [] if sums is None else [(result, sums[None])]
    return [*bind_loop(outputs, arrays)] if outputs else []
