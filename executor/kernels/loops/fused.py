"""A sum and an activation in one generated loop, forward and backward; sums over broadcast dimensions, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.expr import Expr, argument, copy
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
from ....graph.ops.pointwise import arguments
from ...device.device import Device
from ..array.elementwise import aligned
from ..registry import Step
from .elementwise import NUMBA, Loops


def register(loops: Loops) -> None:
    """Register the fused op and its gradient."""

    def takes(node: Node) -> bool:
        functors = node.attrs["functor_list"]
        if not sums(functors):
            return False
        act = activation_in(functors)
        settings = settings_in(functors, node.attrs["act_attrs"], node.attrs["scale"])
        x, d = argument("x"), argument("d")
        slope = slope_of(act, settings)
        made = (value_of(act, settings)(x), slope(x, d) if slope_reads(act) else slope(d))
        return loops.takes(node) and all(map(loops.known, made))

    _register_forward(loops, takes)
    _register_backward(loops, takes)


def _register_forward(loops: Loops, takes: Callable[[Node], bool]) -> None:
    @loops.register(FUSED, takes=takes)
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
        a, b = aligned(x, y, axis)
        first, second = argument("x"), argument("y")
        if not binary_is_outer(functor_list):
            middle = first + second
            kept = intermediate_out
            made = act(middle)
        else:
            middle = act(second)
            kept = None if intermediate_out is None else intermediate_out.reshape(b.shape)
            made = first + middle
            if kept is not None and kept.shape != out.shape:  # a loop would sum it, not keep it
                inner = loops.bind(dev, [(middle, intermediate_out)], {"y": y})
                a, b = aligned(x, intermediate_out, axis)
                return [*inner, *loops.bind(dev, [(first + second, out)], {"x": a, "y": b})]
        outputs = [(made, out)] + ([] if kept is None else [(middle, kept)])
        return loops.bind(dev, outputs, {"x": a, "y": b})


def _register_backward(loops: Loops, takes: Callable[[Node], bool]) -> None:
    @loops.register(f"{FUSED}_grad", takes=takes)
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
        a, b = aligned(d_out if x is None else x, y, axis)
        arrays = {"x": a, "y": b, "out": out, "d": d_out}
        first, second, d = argument("x"), argument("y"), argument("d")
        if binary_is_outer(functor_list):
            at = {"X": second, "Out": argument("middle")}
            if intermediate_out is not None:
                arrays["middle"] = intermediate_out.reshape(b.shape)
            made = (copy(d), _sloped(act, act_attrs, at, d))
        else:
            middle = first + second if intermediate_out is None else argument("middle")
            if intermediate_out is not None:
                arrays["middle"] = intermediate_out
            through = _sloped(act, act_attrs, {"X": middle, "Out": argument("out")}, d)
            made = (through, through)
        found = zip(made, (d_x, d_y), (a, b), strict=True)
        outputs = [(root, g.reshape(like.shape)) for root, g, like in found if g is not None]
        if not outputs:
            return []
        used = arguments([root for root, _ in outputs])
        return loops.bind(dev, outputs, {name: arrays[name] for name in used})


def _sloped(act: str, settings: Mapping[str, Any], at: Mapping[str, Expr], d: Expr) -> Expr:
    slope, reads = slope_of(act, settings), slope_reads(act)
    return slope(at[reads], d) if reads else slope(d)


register(NUMBA)
