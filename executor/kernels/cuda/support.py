"""How a kernel for GPUs is registered, and how one kernel calls another op's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....graph.ir.capabilities import IN_ORDER, Layout
from ....graph.ir.graph import Node
from ....graph.ops.operands import Array
from ....graph.ops.registry import OPS
from ....strategies.types import FLOATS, INTEGERS, VarType
from ...cuda.transfers import device_array, upload
from ...device.device import Device
from ..registry import KERNELS, F, Step, bind, kernel, of_types


def cuda(
    *op_types: str,
    takes: Callable[[Node], bool] | None = None,
    any_order: bool = False,
    layout: Layout = IN_ORDER,
) -> Callable[[F], F]:
    """Register a function as the generated kernel of ops, or of those nodes that ``takes`` accepts.

    It reads and writes low precision itself, and computes in float32.
    """
    return kernel(
        *op_types, on=("cuda",), takes=takes, low=True, any_order=any_order, layout=layout
    )


floating = of_types(*FLOATS)


def of_same_float(node: Node) -> bool:
    """Tell whether a node reads and writes floats of one type, of four or eight bytes, and integers."""
    kinds = {v.spec.dtype for v in (*node.reads(), *node.writes())} - {*INTEGERS}
    return kinds in ({VarType.FP32}, {VarType.FP64})


def on_boundary(dev: Device, array: Array, nbytes: int = 16) -> bool:
    """Tell whether an array begins where vectors of so many bytes may."""
    return dev.cuda.address(array) % nbytes == 0


def constant(dev: Device, value: np.ndarray) -> Any:
    """Return numbers in device memory of their own, which are sent there now."""
    dev.tied = True
    array = device_array(dev.cuda, value.shape, value.dtype)
    upload(dev.cuda, array, value)
    return array


def part(
    dev: Device,
    op: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
) -> list[Step]:
    """Return the calls of another op on these arrays: a generated kernel's, where there is one."""
    back_end = "cuda" if (op, "cuda") in KERNELS else ""
    sources, targets = ({slot: [a] for slot, a in slots.items()} for slots in (inputs, outputs))
    return bind(op, sources, targets, {**OPS[op].attrs, **(attrs or {})}, dev, back_end)


def rectified(dev: Device, x: Array) -> tuple[Any, list[Step]]:
    """Return scratch for relu(x), in the same order in memory, and the calls that fill it."""
    scratch = dev.scratch_like(x)
    return scratch, part(dev, "relu", {"X": x}, {"Out": scratch})


def through_relu(dev: Device, x: Array, d_x: Any) -> list[Step]:
    """Return the calls that send a gradient back through relu, in its place; ``x`` or relu(x) tells where."""
    return part(dev, "relu_grad", {"Out": x, "Out@GRAD": d_x}, {"X@GRAD": d_x})
