"""A sum and an activation in one generated loop, forward and backward; sums over broadcast dimensions, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops import fused_activation as ops
from ....graph.ops.expr import Expr, argument, copy
from ....graph.ops.pointwise import arguments
from ...device.device import Device
from ..array.elementwise import aligned
from ..registry import Step
from .elementwise import NUMBA, Loops


def register(loops: Loops) -> None:
    """Register the fused op and its gradient."""

    def takes(node: Node) -> bool:
        functors = node.attrs["functor_list"]
        if not ops.sums(functors):
            return False
        act = ops.activation_in(functors)
        settings = ops.settings_in(functors, node.attrs["act_attrs"], node.attrs["scale"])
        x, d = argument("x"), argument("d")
        slope = ops.slope_of(act, settings)
        roots = (ops.value_of(act, settings)(x), slope(x, d) if ops.slope_reads(act) else slope(d))
        return loops.takes(node) and all(map(loops.known, roots))

    _register_forward(loops, takes)
    _register_backward(loops, takes)


def _register_forward(loops: Loops, takes: Callable[[Node], bool]) -> None:
    @loops.register(ops.FUSED, takes=takes)
    def fused_elemwise_activation(dev: Device, a: ops.FusedElemwiseActivation) -> list[Step]:
        act = ops.value_of(
            ops.activation_in(a.functor_list), ops.settings_in(a.functor_list, a.act_attrs, a.scale)
        )
        x, y = aligned(a.x, a.y, a.axis)
        first, second = argument("x"), argument("y")
        if not ops.binary_is_outer(a.functor_list):
            middle = first + second
            between = a.intermediate_out
            result = act(middle)
        else:
            middle = act(second)
            between = None if a.intermediate_out is None else a.intermediate_out.reshape(y.shape)
            result = first + middle
            # A loop would sum it, not keep it.
            if between is not None and between.shape != a.out.shape:
                activated = between.reshape(a.y.shape)
                inner = loops.bind(dev, [(middle, activated)], {"y": a.y})
                x, y = aligned(a.x, activated, a.axis)
                return [*inner, *loops.bind(dev, [(first + second, a.out)], {"x": x, "y": y})]
        outputs = [(result, a.out)] + ([] if between is None else [(middle, between)])
        return loops.bind(dev, outputs, {"x": x, "y": y})


def _register_backward(loops: Loops, takes: Callable[[Node], bool]) -> None:
    @loops.register(f"{ops.FUSED}_grad", takes=takes)
    def fused_elemwise_activation_grad(
        dev: Device, a: ops.FusedElemwiseActivationGrad
    ) -> list[Step]:
        act, act_attrs = (
            ops.activation_in(a.functor_list),
            ops.settings_in(a.functor_list, a.act_attrs, a.scale),
        )
        x, y = aligned(a.d_out if a.x is None else a.x, a.y, a.axis)
        arrays = {"x": x, "y": y, "out": a.out, "d": a.d_out}
        first, second, d = argument("x"), argument("y"), argument("d")
        if ops.binary_is_outer(a.functor_list):
            at = {"X": second, "Out": argument("middle")}
            if a.intermediate_out is not None:
                arrays["middle"] = a.intermediate_out.reshape(y.shape)
            roots = (copy(d), _sloped(act, act_attrs, at, d))
        else:
            middle = first + second if a.intermediate_out is None else argument("middle")
            if a.intermediate_out is not None:
                arrays["middle"] = a.intermediate_out
            through = _sloped(act, act_attrs, {"X": middle, "Out": argument("out")}, d)
            roots = (through, through)
        slopes = zip(roots, (a.d_x, a.d_y), (x, y), strict=True)
        outputs = [(root, g.reshape(like.shape)) for root, g, like in slopes if g is not None]
        if not outputs:
            return []
        used = arguments([root for root, _ in outputs])
        return loops.bind(dev, outputs, {name: arrays[name] for name in arrays if name in used})


def _sloped(act: str, settings: Mapping[str, Any], at: Mapping[str, Expr], d: Expr) -> Expr:
    slope, reads = ops.slope_of(act, settings), ops.slope_reads(act)
    return slope(at[reads], d) if reads else slope(d)


register(NUMBA)
