"""Elementwise ops, their gradients and fused groups in CUDA C++: the kernels of ``kernels/loops/``."""

from __future__ import annotations

from ....graph.ops import expr as e
from ....graph.ops.elementwise import Elementwise
from ....strategies.types import FLOATS, INTEGERS, VarType
from ...codegen.cuda_loops import bind_cuda
from ...codegen.cuda_source import known
from ...device.device import Device
from ..array.expression import aligned
from ..loops import elementwise as loops
from ..loops import fusion as fusion_loops
from ..loops.elementwise import Loops
from ..registry import Step, of_types

_typed = of_types(*FLOATS, *INTEGERS, VarType.BOOL)
CUDA = Loops(("cuda",), bind_cuda, _typed, known, low=True)


@CUDA.register("elementwise_div", "elementwise_floordiv")
def divide(dev: Device, a: Elementwise) -> list[Step]:
    """Integers are divided as in C: what is behind the point is dropped."""
    x, y = aligned(a.x, a.y, a.axis)
    first, second = e.argument("x"), e.argument("y")
    quotient = first / second
    if a.out.dtype.kind in "iu":
        quotient = e.floor_divide(first - e.call("fmod", first, second), second)
    return bind_cuda(dev, [(quotient, a.out)], {"x": x, "y": y})


@CUDA.register("elementwise_mod")
def remainder(dev: Device, a: Elementwise) -> list[Step]:
    """The sign is that of X for integers and that of Y for floats, as in Paddle."""
    x, y = aligned(a.x, a.y, a.axis)
    function = "fmod" if a.out.dtype.kind in "iu" else "remainder"
    result = e.call(function, e.argument("x"), e.argument("y"))
    return bind_cuda(dev, [(result, a.out)], {"x": x, "y": y})


loops.register(CUDA, lambda op_type: True)
fusion_loops.register(CUDA, apart="cuda")
