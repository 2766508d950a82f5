"""Kernels in generated loops: ops with a scalar expression, and elementwise ops with their gradients.

NumPy makes a pass over memory for each function in an expression; a loop makes one for the whole op. Numba
compiles loops for the host, ``kernels/cuda/elementwise.py`` has the same kernels as CUDA C++.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops import expr as e
from ....graph.ops.pointwise import BINARY_GRADS, arguments, scaled, total
from ....graph.ops.registry import OPS, Op
from ....graph.ops.rules import product
from ....strategies.types import VarType
from ...codegen.array_calls import trace
from ...codegen.loops import Outputs, bind_loop
from ...codegen.scalar_source import known
from ...device.device import Device
from ..array.elementwise import aligned
from ..registry import KERNELS, Kernel, Step, kernel, of_floats

_TYPES = (VarType.FP32, VarType.BOOL)


def in_float32(node: Node) -> bool:
    """Tell whether a loop can compute the node: float32 in, float32 or booleans out."""
    read, written = node.reads(), node.writes()
    return all(v.spec.dtype == VarType.FP32 for v in read) and all(
        v.spec.dtype in _TYPES for v in written
    )


@dataclass(frozen=True)
class Loops:
    """What makes loops of expressions: for which back end, of which nodes and functions.

    ``bind`` returns the calls that evaluate expressions on arrays into the outputs, in one pass; ``low``: of
    float16 and bfloat16 too; ``exact_exp``: exp of one number is left to the array module, which is exact.
    """

    back_end: str
    bind: Callable[[Device, Outputs, Mapping[str, Any]], list[Step]]
    takes: Callable[[Node], bool]
    known: Callable[[e.Expr], bool]
    low: bool = False
    exact_exp: bool = False

    def register(
        self, *op_types: str, takes: Callable[[Node], bool] | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function as the kernel of ops in these loops."""
        return kernel(*op_types, on=(self.back_end,), takes=takes or self.takes, low=self.low)


NUMBA = Loops(
    "numba",
    lambda dev, outputs, arrays: [*bind_loop(outputs, arrays)],
    in_float32,
    known,
    exact_exp=True,
)


def _one_number(node: Node) -> bool:
    return all(product(value.spec.shape) == 1 for value in node.writes())


def _expression(loops: Loops, op: Op) -> None:
    """Register an op's expression; with its attributes it is known what functions that has."""
    (out_slot,) = op.output_slots
    names = tuple(s.parameter for s in op.input_slots)
    scalar: Any = op.scalar

    def bind(dev: Device, *arrays: Any, **attrs: Any) -> list[Step]:
        *operands, out = arrays
        if out is None:
            return []
        read = {n: a for n, a in zip(names, operands, strict=True) if a is not None}
        return loops.bind(dev, [(trace(scalar, attrs), out)], read)

    def takes(node: Node) -> bool:
        exact = loops.exact_exp and op.type == "exp" and _one_number(node)
        known = loops.takes(node) and of_floats(node) and loops.known(trace(scalar, node.attrs))
        return known and not exact

    bind.__doc__ = f"The expression of {op.type} in one loop."
    operands = (*names, out_slot.parameter)
    found = Kernel(bind, operands, tuple(op.attrs), takes, low=loops.low)
    KERNELS[op.type, loops.back_end] = found


def _elementwise(loops: Loops, op_type: str) -> None:
    scalar = OPS[op_type].scalar
    assert scalar is not None
    expression = scalar(e.argument("x"), e.argument("y"))

    @loops.register(op_type)
    def bind(dev: Device, x: Any, y: Any, out: Any, *, axis: int) -> list[Step]:
        a, b = aligned(x, y, axis)
        return loops.bind(dev, [(expression, out)], {"x": a, "y": b})


def _elementwise_grad(loops: Loops, op_type: str) -> None:
    d_first, d_second = (f(*map(e.argument, "xyd")) for f in BINARY_GRADS[op_type])

    @loops.register(f"{op_type}_grad")
    def bind(
        dev: Device, x: Any, y: Any, d_out: Any, d_x: Any, d_y: Any, *, axis: int
    ) -> list[Step]:
        a, b = aligned(x, y, axis)
        found = ((d_first, d_x, a), (d_second, d_y, b))
        outputs = [(d, out.reshape(like.shape)) for d, out, like in found if out is not None]
        used = arguments([d for d, _ in outputs])
        operands = {"x": a, "y": b, "d": d_out}
        if not outputs:
            return []
        return loops.bind(dev, outputs, {n: v for n, v in operands.items() if n in used})


def _scale_and_sum(loops: Loops) -> None:
    @loops.register("scale")
    def scale(
        dev: Device, x: Any, out: Any, *, scale: float, bias: float, bias_after_scale: bool
    ) -> list[Step]:
        """scale * x + bias, or scale * (x + bias); of integers, with whole numbers."""
        if x.dtype.kind in "iu":
            scale, bias = int(scale), int(bias)
        made = scaled(e.argument("x"), scale=scale, bias=bias, bias_after_scale=bias_after_scale)
        return loops.bind(dev, [(made, out)], {"x": x})

    @loops.register("sum")
    def sum_(dev: Device, x: list[Any], out: Any) -> list[Step]:
        """Add several arrays from left to right."""
        names = [f"x{k}" for k in range(len(x))]
        added = total([e.argument(n) for n in names])
        return loops.bind(dev, [(added, out)], dict(zip(names, x, strict=True)))


_COMPARISONS = (
    "less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal",
)  # fmt: skip


def register(loops: Loops, others: Callable[[str], bool]) -> None:
    """Register the kernels of all elementwise ops, and those of the ``others`` that have an expression."""
    _scale_and_sum(loops)
    for op_type in (*_COMPARISONS, *BINARY_GRADS):
        if (op_type, loops.back_end) not in KERNELS:
            _elementwise(loops, op_type)
    for op_type in BINARY_GRADS:
        _elementwise_grad(loops, op_type)
    for op in list(OPS.values()):
        done = (op.type, loops.back_end) in KERNELS
        if op.scalar is not None and others(op.type) and not done:
            _expression(loops, op)


register(NUMBA, lambda op_type: not op_type.startswith("logical_"))
