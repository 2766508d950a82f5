"""Kernels that cut and join: views made when binding, one copy for each part in a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ....graph.ops import manipulation as ops
from ....graph.ops.operands import Array, Unary
from ....graph.ops.ranges import ExpandAs, ExpandAsGrad
from ....graph.ops.rearrange import Unbind
from ....graph.ops.view import Transpose, Transpose2Grad, TransposeGrad
from ...device.device import Device
from ..registry import Step, kernel

Copy = Callable[[Device, Array | None, Array], list[Step]]


def copied(dev: Device, target: Array | None, source: Array) -> list[Step]:
    """Return the copy, or nothing if nobody wants it."""
    return [] if target is None else [partial(dev.xp.copyto, target, source)]


def pieces(whole: Array, parts: Sequence[Any], axis: int) -> list[tuple[Array, Any]]:
    """Pair each part with the view of the whole that it stands for."""
    axis %= whole.ndim
    pairs, start = [], 0
    for part in parts:
        stop = start + part.shape[axis]
        pairs.append((whole[(slice(None),) * axis + (slice(start, stop),)], part))
        start = stop
    return pairs


def layers(whole: Array, count: int, axis: int) -> list[Array]:
    """Return the views of what lies at each index along an axis."""
    axis %= whole.ndim
    return [whole[(slice(None),) * axis + (i,)] for i in range(count)]


def tiles(small: Array, large: Any) -> tuple[Any, Any]:
    """View the large array as (times, size) pairs of dimensions, and the small one likewise."""
    sizes = zip(small.shape, large.shape, strict=True)
    pairs = [n for d, whole in sizes for n in (whole // d if d else 1, d)]
    return small.reshape([n for d in small.shape for n in (1, d)]), large.reshape(pairs)


def register(on: Callable[[str], Callable[[Any], Any]], copied: Copy) -> None:
    """Register the kernels that only copy: ``copied(dev, target, source)``."""

    def each(dev: Device, pairs: Iterable[tuple[Array | None, Array]]) -> list[Step]:
        return [step for target, source in pairs for step in copied(dev, target, source)]

    @on("concat")
    def concat(dev: Device, a: ops.Concat) -> list[Step]:
        return each(dev, pieces(a.out, a.x, a.axis))

    @on("concat_grad")
    def concat_grad(dev: Device, a: ops.ConcatGrad) -> list[Step]:
        views = (view for view, _ in pieces(a.d_out, a.x, a.axis))
        return each(dev, zip(a.d_x, views, strict=True))

    @on("split")
    def split(dev: Device, a: ops.Split) -> list[Step]:
        return each(dev, ((part, view) for view, part in pieces(a.x, a.out, a.axis)))

    @on("stack")
    def stack(dev: Device, a: ops.Stack) -> list[Step]:
        return each(dev, zip(layers(a.y, len(a.x), a.axis), a.x, strict=True))

    @on("stack_grad")
    def stack_grad(dev: Device, a: ops.StackGrad) -> list[Step]:
        return each(dev, zip(a.d_x, layers(a.d_y, len(a.d_x), a.axis), strict=True))

    @on("unstack")
    def unstack(dev: Device, a: ops.Unstack) -> list[Step]:
        return each(dev, zip(a.y, layers(a.x, len(a.y), a.axis), strict=True))

    @on("unstack_grad")
    def unstack_grad(dev: Device, a: ops.UnstackGrad) -> list[Step]:
        return each(dev, zip(layers(a.d_x, len(a.d_y), a.axis), a.d_y, strict=True))

    @on("unbind")
    def unbind(dev: Device, a: Unbind) -> list[Step]:
        pairs = zip(a.out, layers(a.x, len(a.out), a.axis), strict=True)
        return each(dev, ((out, x.reshape(out.shape)) for out, x in pairs if out is not None))

    @on("expand")
    @on("expand_as")
    @on("expand_at")
    def expand(dev: Device, a: ops.Expand | ExpandAs) -> list[Step]:
        small, large = tiles(a.x, a.out)
        return copied(dev, large, small)

    @on("transpose")
    @on("transpose2")
    def transpose(dev: Device, a: Transpose) -> list[Step]:
        return copied(dev, a.out, a.x.transpose(a.axis))

    @on("transpose_grad")
    @on("transpose2_grad")
    def transpose_grad(dev: Device, a: Transpose2Grad | TransposeGrad) -> list[Step]:
        return copied(dev, a.d_x.transpose(a.axis), a.d_out)

    @on("transfer_layout")
    def transfer_layout(dev: Device, a: Unary) -> list[Step]:
        return copied(dev, a.out, a.x)


@kernel("expand_grad", "expand_as_grad")
def expand_grad(dev: Device, a: ops.ExpandGrad | ExpandAsGrad) -> list[Step]:
    """Each element gets the sum of what went to its copies."""
    _, large = tiles(a.x, a.d_out)
    return [partial(dev.xp.add.reduce, large, tuple(range(0, large.ndim, 2)), None, a.d_x)]


register(partial(kernel, low=True), copied)
