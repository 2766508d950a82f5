"""Elementwise ops, their gradients and fused groups in CUDA C++: the kernels of ``kernels/loops.py``."""

from __future__ import annotations

from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops import expr as e
from ....strategies.types import FLOATS, INTEGERS, VarType
from ...codegen.cuda_loops import bind_cuda
from ...codegen.cuda_source import known
from ...device.device import Device
from ..array.elementwise import aligned
from ..loops import elementwise as loops
from ..loops import fused as fused_loops
from ..loops import fusion as fusion_loops
from ..loops.elementwise import Loops
from ..registry import Step

_TYPES = {*FLOATS, *INTEGERS, VarType.BOOL}


def _typed(node: Node) -> bool:
    """Tell whether kernels can read and write all that a node does."""
    return all(v.spec.dtype in _TYPES for v in (*node.reads(), *node.writes()))


CUDA = Loops("cuda", bind_cuda, _typed, known, low=True)


@CUDA.register("elementwise_div", "elementwise_floordiv")
def divide(dev: Device, x: Any, y: Any, out: Any, *, axis: int) -> list[Step]:
    """Integers are divided as in C: what is behind the point is dropped."""
    a, b = aligned(x, y, axis)
    first, second = e.argument("x"), e.argument("y")
    made = first / second
    if out.dtype.kind in "iu":
        made = e.floor_divide(first - e.call("fmod", first, second), second)
    return bind_cuda(dev, [(made, out)], {"x": a, "y": b})


@CUDA.register("elementwise_mod")
def remainder(dev: Device, x: Any, y: Any, out: Any, *, axis: int) -> list[Step]:
    """The sign is that of X for integers and that of Y for floats, as in Paddle."""
    a, b = aligned(x, y, axis)
    function = "fmod" if out.dtype.kind in "iu" else "remainder"
    made = e.call(function, e.argument("x"), e.argument("y"))
    return bind_cuda(dev, [(made, out)], {"x": a, "y": b})


@CUDA.register("where")
def where(dev: Device, condition: Any, x: Any, y: Any, out: Any) -> list[Step]:
    made = e.where(e.argument("c"), e.argument("x"), e.argument("y"))
    return bind_cuda(dev, [(made, out)], {"c": condition, "x": x, "y": y})


@CUDA.register("where_grad")
def where_grad(dev: Device, condition: Any, d_out: Any, d_x: Any, d_y: Any) -> list[Step]:
    c, d = e.argument("c"), e.argument("d")
    found = ((e.where(c, d, 0), d_x), (e.where(c, 0, d), d_y))
    outputs = [(made, out) for made, out in found if out is not None]
    return bind_cuda(dev, outputs, {"c": condition, "d": d_out}) if outputs else []


@CUDA.register("floor_grad", "ceil_grad", "round_grad")
def step_grad(dev: Device, d_x: Any) -> list[Step]:
    """A step function is flat, whatever comes down."""
    return [] if d_x is None else bind_cuda(dev, [(e.Expr("const", (), 0), d_x)], {})


loops.register(CUDA, lambda op_type: True)
fused_loops.register(CUDA)
fusion_loops.register(CUDA, apart=CUDA.back_end)
