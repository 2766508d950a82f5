"""Gradients of the gradients of products: products again, of what comes down and one operand.

Out is linear in X and in Y. So DX is X@GRAD of a product whose Y is DDY, DY is Y@GRAD of one whose X is DDX,
and DDOut = product(DDX, Y) + product(X, DDY).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....graph.ops.operands import Operands, parameter_name
from ....graph.ops.registry import OPS, Op
from ...device.device import Device
from ..registry import Step, by_arrays, kernel


def _second_order(product: Op) -> Callable[[Device, Operands], list[Step]]:
    """Return the kernel for the gradient of a product's gradient op."""
    backward, result = f"{product.type}_grad", product.output_slots[0].name
    x, y = (slot.name for slot in product.input_slots[:2])

    def bind(dev: Device, a: Operands) -> list[Step]:
        values = vars(a)
        attrs = {name: values[name] for name in product.attrs if name in values}

        def array(slot: str) -> Any:
            return values[parameter_name(slot)]

        def run(op_type: str, **slots: Any) -> list[Step]:
            arrays = {parameter_name(slot): value for slot, value in slots.items()}
            return by_arrays(op_type, dev, OPS[op_type].filled({**attrs, **arrays}))

        def slope(side: str, other: str) -> list[Step]:
            """Return the calls for DX, or DY."""
            target, above = array(f"D{side}"), array(f"DD{other}")
            if target is None:
                return []
            if above is None:
                return [partial(target.fill, 0)]
            fields = {side: array(side), other: above}
            fields |= {f"{result}@GRAD": array(f"D{result}"), f"{side}@GRAD": target}
            return run(backward, **fields)

        steps = [*slope(x, y), *slope(y, x)]
        out = array(f"DD{result}")
        if out is None:
            return steps
        pairs = [(array(f"DD{x}"), array(y)), (array(x), array(f"DD{y}"))]
        pairs = [(left, right) for left, right in pairs if left is not None and right is not None]
        into = [out, *(dev.scratch_like(out) for _ in pairs[1:])]
        for (left, right), target in zip(pairs, into, strict=False):
            steps += run(product.type, **{x: left, y: right, result: target})
        return [*steps, *(partial(dev.xp.add, out, term, out) for term in into[1:])]

    return bind


for _name in ("mul", "matmul", "conv2d", "depthwise_conv2d"):
    kernel(f"{_name}_grad_grad")(_second_order(OPS[_name]))
