"""A group of elementwise ops as one compiled loop: what stays inside the group is never written to memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph.ir.graph import Node
from ....graph.lowering.select import in_single
from ....graph.ops import expr as e
from ....graph.ops.fusion import extent
from ....graph.ops.operands import Array, parameter_name
from ....graph.ops.pointwise import BINARY, BINARY_BACKWARD, arguments, expressions
from ....graph.ops.region import Body, Region, infer_body
from ....strategies.types import VarType
from ...device.device import Device
from ...host.arena import spec_of
from ..array.expression import placed
from ..array.region import one_by_one, region
from ..registry import KERNELS, Kernel, Step
from .elementwise import LLVM, Loops


def register(loops: Loops, apart: str = "") -> None:
    """Register the group in loops; ``apart`` is the library whose kernels it falls back to."""

    def takes(node: Node) -> bool:
        return (
            loops.takes(node if loops.low else in_single(node))
            and not any(v.spec.dtype == VarType.BOOL for v in node.writes())
            and all(_known(loops, part) for part in node.attrs["body"])
        )

    @loops.register("fusion_group", takes=takes)
    def fusion_group(dev: Device, a: Region) -> list[Step]:
        """Fall back to one op after another where an operand made in the group turns out to be broadcast."""
        group = _Group(a.x, a.body)
        if not group.follow(a.body):
            return one_by_one(dev, a, apart)
        written = [
            (group.values[i], _view(array, group.rank, group.axes[i]))
            for i, array in zip(a.results, a.out, strict=True)
            if array is not None
        ]
        if not written:  # gradients that nothing reads
            return []
        used = arguments([expression for expression, _ in written])
        return loops.bind(
            dev, written, {n: array for n, array in group.arrays.items() if n in used}
        )


def _known(loops: Loops, part: Mapping[str, Any]) -> bool:
    operands = {
        parameter_name(slot): [e.argument("x")] * len(numbers)
        if part["op"] == "sum"
        else e.argument("x")
        for slot, numbers in part["inputs"].items()
    }
    results = expressions(part["op"], operands, part["attrs"])
    return all(map(loops.known, results.values()))


class _Group:
    """Follows the body with an expression for each value; operands from outside become views of one rank."""

    def __init__(self, x: list[Any], body: Body) -> None:
        self.operands = x
        self.specs = infer_body(body, [spec_of(array) for array in x])
        # All is about elements of the largest value.
        self.shape = max(self.specs.values(), key=extent).shape
        self.rank = len(self.shape)
        self.values: dict[int, e.Expr] = {}
        self.axes: dict[int, int] = {}  # a gradient that is summed -> where its dimensions lie
        self.arrays: dict[str, Any] = {}

    def follow(self, body: Body) -> bool:
        """Make the expressions; tell whether the whole body is about elements of one shape."""
        return all(self._node(part) for part in body)

    def _node(self, part: Mapping[str, Any]) -> bool:
        axis = part["attrs"].get("axis", -1) if part["op"] in BINARY | BINARY_BACKWARD else -1
        operands: dict[str, Any] = {}
        for slot, numbers in part["inputs"].items():
            terms = [self._operand(i, axis) for i in numbers]
            if any(f is None for f in terms):
                return False
            operands[parameter_name(slot)] = terms if part["op"] == "sum" else terms[0]
        results = expressions(part["op"], operands, part["attrs"])
        for slot, numbers in part["outputs"].items():
            for i in numbers:
                if i >= 0:
                    self.values[i], self.axes[i] = results[slot], axis
        return part["op"] in BINARY_BACKWARD or all(
            self.specs[i].shape == self.shape
            for numbers in part["outputs"].values()
            for i in numbers
            if i >= 0
        )

    def _operand(self, i: int, axis: int) -> e.Expr | None:
        if i in self.values:
            return self.values[i] if self.specs[i].shape == self.shape else None
        name = f"x{i}_{axis}".replace("-", "m")
        self.arrays[name] = _view(self.operands[i], self.rank, axis)
        return e.argument(name)


def _view(array: Array, rank: int, axis: int) -> Any:
    return placed(array, rank, axis if array.ndim < rank else -1)


for _back_end in ("numpy", "cupy"):
    KERNELS["fusion_group", _back_end] = Kernel(region, low=True)
register(LLVM)
