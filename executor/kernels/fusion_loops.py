"""A group of elementwise ops as one compiled loop: what stays inside the group is never written to memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graph.ir import Node
from ...graph.ops import expr as e
from ...graph.ops.fusion import extent
from ...graph.ops.pointwise import BINARY, BINARY_BACKWARD, arguments, expressions
from ...graph.ops.region import Body, infer_body
from ...graph.ops.registry import parameter_name
from ...strategies.types import VarType
from ..codegen.loops import bind_loop
from ..codegen.native import Launch
from ..codegen.scalar_source import known
from ..device import Device
from .elementwise import placed
from .loops import in_float32
from .region import region, spec_of
from .registry import KERNELS, Kernel, Step, kernel


def _takes(node: Node) -> bool:
    if not in_float32(node) or any(v.spec.dtype != VarType.FP32 for v in node.writes()):
        return False
    for part in node.attrs["body"]:
        operands = {
            parameter_name(slot): [e.argument("x")] * len(held)
            if part["op"] == "sum"
            else e.argument("x")
            for slot, held in part["inputs"].items()
        }
        if not all(map(known, expressions(part["op"], operands, part["attrs"]).values())):
            return False
    return True


@kernel("fusion_group", on=("numba",), takes=_takes)
def fusion_group(
    dev: Device, x: list[Any], out: list[Any], *, body: Body, results: list[int]
) -> list[Step] | list[Launch]:
    """Fall back to one op after another where an operand made in the group turns out to be broadcast."""
    group = _Group(x, body)
    if not group.follow(body):
        return region(dev, x, out, body=body, results=results)
    written = [
        (group.values[i], _view(array, group.rank, group.axes[i]))
        for i, array in zip(results, out, strict=True)
        if array is not None
    ]
    used = arguments([expression for expression, _ in written])
    return bind_loop(written, {name: a for name, a in group.arrays.items() if name in used})


class _Group:
    """Follows the body with an expression for each value; operands from outside become views of one rank."""

    def __init__(self, x: list[Any], body: Body) -> None:
        self.given = x
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
        for slot, held in part["inputs"].items():
            found = [self._operand(i, axis) for i in held]
            if any(f is None for f in found):
                return False
            operands[parameter_name(slot)] = found if part["op"] == "sum" else found[0]
        made = expressions(part["op"], operands, part["attrs"])
        for slot, held in part["outputs"].items():
            for i in held:
                if i >= 0:
                    self.values[i], self.axes[i] = made[slot], axis
        return part["op"] in BINARY_BACKWARD or all(
            self.specs[i].shape == self.shape
            for held in part["outputs"].values()
            for i in held
            if i >= 0
        )

    def _operand(self, i: int, axis: int) -> e.Expr | None:
        if i in self.values:
            return self.values[i] if self.specs[i].shape == self.shape else None
        name = f"x{i}_{axis}".replace("-", "m")
        self.arrays[name] = _view(self.given[i], self.rank, axis)
        return e.argument(name)


def _view(array: Any, rank: int, axis: int) -> Any:
    return placed(array, rank, axis if array.ndim < rank else -1)


for _back_end in ("numpy", "cupy"):
    KERNELS["fusion_group", _back_end] = Kernel(region, ("x", "out"), ("body", "results"))
