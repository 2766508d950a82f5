"""The best elements of rows, how often they are right, and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.creation import ArgExtreme, TopK, TopKGrad
from ....graph.ops.metric import Accuracy
from ....graph.ops.operands import Array
from ....graph.ops.reduction import Cumsum
from ....strategies.types import INTEGERS, VarType
from ...codegen.cuda_launches import BLOCK, Argument, Maybe, call, ints, longs, read, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .rows import Rows, accumulator
from .support import cuda, part

_INCLUDES = ("reduce.cuh", "choice.cuh")
_MOST_CHOSEN = 32  # each is one more look at the row
_MOST_BLOCKS = 1 << 16  # they go round


def _launch(
    dev: Device, function: str, kinds: Sequence[str], arguments: Sequence[Argument], blocks: int
) -> Step:
    return call(dev, function, kinds, arguments, min(blocks, _MOST_BLOCKS), _INCLUDES)


def _choose(
    dev: Device,
    x: Array,
    out: Array | None,
    columns: Any,
    axis: int,
    count: int,
    least: str,
    first: str,
) -> list[Step]:
    rows = Rows(dev, x, axis, together=0)
    arrays = [*read(x=x), *written(out=Maybe(out, x), columns=columns)]
    kinds = (c_type(x.dtype), c_type(accumulator(x.dtype)), least, first, str(rows.shared.group))
    return rows.launch("block_choose", kinds, arrays, _INCLUDES, ints(count=count))


def best(dev: Device, x: Array, out: Array, axis: int, least: str) -> list[Step]:
    """Return the calls that write where the first of the largest ("true": least) elements along an axis are."""
    columns = out if out.dtype == "int64" else dev.scratch(out.shape, "int64")
    steps = _choose(dev, x, None, columns, axis, 1, least, "true")
    if columns is out:
        return steps
    return [*steps, *part(dev, "cast", {"X": columns}, {"Out": out})]


@cuda("arg_max")
def arg_max(dev: Device, a: ArgExtreme) -> list[Step]:
    return best(dev, a.x, a.out, a.axis, "false")


@cuda("arg_min")
def arg_min(dev: Device, a: ArgExtreme) -> list[Step]:
    return best(dev, a.x, a.out, a.axis, "true")


def few(node: Node) -> bool:
    """Tell whether a few elements of each row are chosen."""
    return 0 < int(node.attrs["k"]) <= _MOST_CHOSEN


def few_chosen(node: Node) -> bool:
    """Tell whether a few elements of each row were chosen."""
    return 0 < node.inputs["Indices"][0].spec.shape[-1] <= _MOST_CHOSEN  # type: ignore[union-attr]


@cuda("top_k", takes=few)
def top_k(dev: Device, a: TopK) -> list[Step]:
    """Largest first; equal elements in the order of their index."""
    indices = dev.array_or_scratch(a.indices, a.out.shape, "int64")
    return _choose(dev, a.x, a.out, indices, -1, a.k, "false", "true" if a.k == 1 else "false")


@cuda("top_k_grad", takes=few_chosen)
def top_k_grad(dev: Device, a: TopKGrad) -> list[Step]:
    width = a.x.shape[-1]
    rows = a.x.size // max(width, 1)
    arguments = [
        *read(columns=a.indices, d_out=a.d_out),
        *written(d_x=a.d_x),
        *longs(rows=rows),
        *ints(width=width, count=a.indices.shape[-1]),
    ]
    return [_launch(dev, "put_back", (c_type(a.x.dtype),), arguments, -(-rows // (BLOCK // 32)))]


def _indexed(node: Node) -> bool:
    kinds = (VarType.FP32, VarType.INT32, *INTEGERS)
    return all(v.spec.dtype in kinds for s in ("Indices", "Label") for v in node.inputs[s] if v)


@cuda("accuracy", takes=_indexed)
def accuracy(dev: Device, a: Accuracy) -> list[Step]:
    """The share of samples whose label is among their guesses."""
    rows, count = a.indices.shape
    arguments = [
        *read(guesses=a.indices, labels=a.label),
        *written(accuracy=a.accuracy, correct=a.correct, total=a.total),
        *longs(rows=rows),
        *ints(count=count),
    ]
    kinds = (c_type(a.indices.dtype), c_type(a.label.dtype))
    return [_launch(dev, "block_count_hits", kinds, arguments, 1)]


@cuda("cumsum")
def cumsum(dev: Device, a: Cumsum) -> list[Step]:
    """Running sums; ``exclusive`` leaves an element out of its own sum."""
    t = c_type(a.x.dtype)
    flags = (str(a.exclusive).lower(), str(a.reverse).lower())
    arrays = [*read(x=a.x), *written(out=a.out)]
    rows = Rows(dev, a.x, a.axis, warps=True)
    kinds = (t, c_type(accumulator(a.x.dtype)), *flags, str(rows.shared.group))
    return rows.launch("warp_running_sums", kinds, arrays, _INCLUDES)
