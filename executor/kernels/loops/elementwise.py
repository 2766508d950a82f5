"""Kernels in generated loops: ops with a scalar expression, and elementwise ops with their gradients.

NumPy makes a pass over memory for each function in an expression; a loop makes one for the whole op. LLVM
compiles loops for the host, ``kernels/cuda/elementwise.py`` has the same kernels as CUDA C++.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ....graph.ir.capabilities import Factors
from ....graph.ir.graph import Node
from ....graph.ops import expr as e
from ....graph.ops.activation import Scale
from ....graph.ops.creation import Cast
from ....graph.ops.indexing import Where, WhereGrad
from ....graph.ops.operands import Operands
from ....graph.ops.pointwise import arguments, scaled, total
from ....graph.ops.reduction import Sum
from ....graph.ops.registry import OPS, Op
from ....graph.ops.rules import product
from ....strategies.types import VarType, whole
from ...codegen.array_calls import trace
from ...codegen.loops import Outputs, bind_loop
from ...codegen.scalar_source import known
from ...device.device import Device
from ..array.expression import expressions_of
from ..registry import KERNELS, F, Kernel, Step, kernel, of_floats

_TYPES = (VarType.FP32, VarType.BOOL)


def in_float32(node: Node) -> bool:
    """Tell whether a loop can compute the node: float32 in, float32 or booleans out."""
    read, written = node.reads(), node.writes()
    return all(v.spec.dtype == VarType.FP32 for v in read) and all(
        v.spec.dtype in _TYPES for v in written
    )


@dataclass(frozen=True)
class Loops:
    """What makes loops of expressions: for which back ends, of which nodes and functions.

    ``bind`` returns the calls that evaluate expressions on arrays into the outputs, in one pass; ``low``: of
    float16 and bfloat16 too; ``exact_exp``: exp of one number is left to the array module, which is exact;
    ``slow``: so are ops with these functions, which it computes many times faster. In groups they are known.
    """

    back_ends: tuple[str, ...]
    bind: Callable[[Device, Outputs, Mapping[str, Any]], list[Step]]
    takes: Callable[[Node], bool]
    known: Callable[[e.Expr], bool]
    low: bool = False
    exact_exp: bool = False
    slow: frozenset[str] = frozenset()

    def register(
        self, *op_types: str, takes: Callable[[Node], bool] | None = None, low: bool = False
    ) -> Callable[[F], F]:
        """Register a function as the kernel of ops in these loops; ``low``: it moves elements alone."""
        takes, low = takes or self.takes, low or self.low
        return kernel(*op_types, on=self.back_ends, takes=takes, low=low)

    def written(self, dev: Device, op: Op, a: Operands) -> list[Step]:
        """Return the calls of an op's expressions: in one loop, if all are about as many elements."""
        written, arrays = expressions_of(op, a)
        groups: dict[tuple[int, ...], list[tuple[e.Expr, Any]]] = {}
        for root, out in written:
            read = (arrays[name].shape for name in arguments([root]))
            groups.setdefault(np.broadcast_shapes(out.shape, *read), []).append((root, out))
        steps: list[Step] = []
        for shape in sorted(groups, key=prod):  # what is smaller reads no result of others
            used = arguments([root for root, _ in groups[shape]])
            steps += self.bind(dev, groups[shape], {n: arrays[n] for n in arrays if n in used})
        return steps


LLVM = Loops(
    ("llvm",),
    lambda dev, outputs, arrays: [*bind_loop(outputs, arrays)],
    in_float32,
    known,
    exact_exp=True,
    slow=frozenset(("cos", "sin", "tan")),
)


def _has(root: e.Expr, functions: frozenset[str]) -> bool:
    return root.fn in functions or any(_has(arg, functions) for arg in root.args)


def _one_number(node: Node) -> bool:
    return all(product(value.spec.shape) == 1 for value in node.writes())


def _expression(loops: Loops, op: Op) -> None:
    """Register an op's expressions; with its attributes it is known what functions they have."""
    scalar: Any = op.scalar

    def bind(dev: Device, a: Operands) -> list[Step]:
        return loops.written(dev, op, a)

    def takes(node: Node) -> bool:
        exact = loops.exact_exp and op.type == "exp" and _one_number(node)
        if exact or not loops.takes(node) or not of_floats(node):
            return False
        unused = [s.parameter for s in op.input_slots if not node.inputs.get(s.name)]
        operands = ((s.parameter, v) for s in op.input_slots for v in node.inputs.get(s.name, ()))
        shapes = {parameter: value.spec.shape for parameter, value in operands if value is not None}
        roots = trace(scalar, op.settings(shapes, node.attrs), unused)
        return all(loops.known(root) and not _has(root, loops.slow) for root in roots)

    bind.__doc__ = f"The expressions of {op.type} in one loop."
    factors: Factors = {"Out": ()} if op.type == "relu_grad" else {}
    entry = Kernel(bind, takes=takes, low=loops.low, factors=factors)
    KERNELS.update({(op.type, back_end): entry for back_end in loops.back_ends})


def register_named(loops: Loops) -> None:
    """Register the kernels of elementwise ops that have no expression in their declaration."""

    @loops.register("scale")
    def scale(dev: Device, a: Scale) -> list[Step]:
        """scale * x + bias, or scale * (x + bias); of integers, with whole numbers."""
        bias, scale = a.bias, a.scale
        if a.x.dtype.kind in "iu":
            scale, bias = whole(scale, a.x.dtype), whole(bias, a.x.dtype)
            bias = bias if a.bias_after_scale else whole(bias * scale, a.x.dtype)
        elif not a.bias_after_scale:
            bias *= scale
        root = scaled(e.argument("x"), scale=scale, bias=bias, bias_after_scale=True)
        return loops.bind(dev, [(root, a.out)], {"x": a.x})

    @loops.register("sum")
    def sum_(dev: Device, a: Sum) -> list[Step]:
        """Add several arrays from left to right."""
        names = [f"x{k}" for k in range(len(a.x))]
        added = total([e.argument(n) for n in names])
        return loops.bind(dev, [(added, a.out)], dict(zip(names, a.x, strict=True)))

    def takes(node: Node) -> bool:
        values = [*node.reads(), *node.writes()]
        return loops.takes(node) or all(v.spec.dtype in _TYPES for v in values)

    condition, d = e.argument("c"), e.argument("d")

    @loops.register("where", takes=takes, low=True)
    def where(dev: Device, a: Where) -> list[Step]:
        choice = e.where(condition, e.argument("x"), e.argument("y"))
        return loops.bind(dev, [(choice, a.out)], {"c": a.condition, "x": a.x, "y": a.y})

    @loops.register("where_grad", takes=takes, low=True)
    def where_grad(dev: Device, a: WhereGrad) -> list[Step]:
        slopes = ((e.where(condition, d, 0), a.d_x), (e.where(condition, 0, d), a.d_y))
        outputs = [(slope, out) for slope, out in slopes if out is not None]
        return loops.bind(dev, outputs, {"c": a.condition, "d": a.d_out}) if outputs else []


def register(loops: Loops, others: Callable[[str], bool]) -> None:
    """Register the kernels of all elementwise ops, and those of the ``others`` that have an expression."""
    register_named(loops)
    for op in list(OPS.values()):
        done = (op.type, loops.back_ends[0]) in KERNELS
        if op.scalar is not None and others(op.type) and not done:
            _expression(loops, op)


register(LLVM, lambda op_type: not op_type.startswith(("logical_", "bitwise_", "dropout_")))


def _single_to_bool(node: Node) -> bool:
    return in_float32(node) and all(v.spec.dtype == VarType.BOOL for v in node.writes())


@LLVM.register("cast", takes=_single_to_bool)
def cast(dev: Device, a: Cast) -> list[Step]:
    """Whether a number is not zero; to other types NumPy converts as fast as memory is."""
    return LLVM.bind(dev, [(e.not_equal(e.argument("x"), 0), a.out)], {"x": a.x})
