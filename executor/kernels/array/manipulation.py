"""Copies, and sums of what was copied several times; ``moves.py`` has the ops that copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....graph.ops.manipulation import ExpandGrad
from ....graph.ops.operands import Array
from ....graph.ops.ranges import ExpandAsGrad
from ...device.device import Device
from ..registry import Step, kernel

Copy = Callable[[Device, Array | None, Array], list[Step]]


def copied(dev: Device, target: Array | None, source: Array) -> list[Step]:
    """Return the copy, or nothing if nobody wants it."""
    return [] if target is None else [partial(dev.xp.copyto, target, source)]


def tiles(small: Array, large: Any) -> tuple[Any, Any]:
    """View the large array as (times, size) pairs of dimensions, and the small one likewise."""
    sizes = zip(small.shape, large.shape, strict=True)
    pairs = [n for d, whole in sizes for n in (whole // d if d else 1, d)]
    return small.reshape([n for d in small.shape for n in (1, d)]), large.reshape(pairs)


@kernel("expand_grad", "expand_as_grad")
def expand_grad(dev: Device, a: ExpandGrad | ExpandAsGrad) -> list[Step]:
    """Each element gets the sum of what went to its copies."""
    _, large = tiles(a.x, a.d_out)
    return [partial(dev.xp.add.reduce, large, tuple(range(0, large.ndim, 2)), None, a.d_x)]
