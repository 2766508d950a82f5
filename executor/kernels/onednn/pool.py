"""Pooling, where the library's windows are those of the op."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.pool import Pool2d, Pool2dGrad
from ...device.device import Device
from ..array.pool import one_window, windows_of
from ..registry import Step
from .primitive import (
    CACHED,
    D_DST,
    D_SRC,
    DST,
    SRC,
    TRAINING,
    WORKSPACE,
    Layout,
    Primitive,
    attributes,
    channels_last,
    in_order,
    last,
    numbers,
)
from .support import onednn

_KINDS = {"max": 0x1FF, "padded": 0x2FF, "avg": 0x3FF}  # averages count padding or leave it out


@dataclass(frozen=True)
class Pooling:
    """Shapes and windows: what the primitives are compiled for."""

    kind: str
    x: Layout
    out: Layout
    strides: tuple[int, ...]
    window: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def primitive(self, direction: str, *first: Any, hint: Any = ()) -> Primitive:
        """Compile one of its two directions."""
        windows = (self.strides, self.window, (0, 0), self.before, self.after)
        return Primitive(
            f"pooling_{direction}",
            *first,
            ctypes.c_int(_KINDS[self.kind]),
            self.x,
            self.out,
            *(numbers(each) for each in windows),
            *hint,
            attributes(),
            what=f"pooling_{direction} of {self.x} to {self.out}",
        )


@lru_cache(CACHED)
def _forward(pooling: Pooling) -> Primitive:
    return pooling.primitive("forward", TRAINING)


@lru_cache(CACHED)
def _backward(pooling: Pooling) -> Primitive:
    return pooling.primitive("backward", hint=(_forward(pooling).descriptor,))


def _takes(node: Node) -> bool:
    return one_window(node)


def _pooling(a: Pool2d | Pool2dGrad) -> Pooling:
    found = windows_of(a)
    # The last window may reach beyond the padding (ceil_mode), or not as far.
    spans = [(o - 1) * s + k for o, s, k in zip(found.out, found.strides, found.k, strict=True)]
    after = (
        max(given, span - size - before)
        for (before, given), span, size in zip(found.pads, spans, found.size, strict=True)
    )
    average = "avg" if a.exclusive else "padded"
    image = last if channels_last(a.x) or channels_last(a.out) else in_order
    return Pooling(
        average if a.pooling_type == "avg" else "max",
        image(a.x.shape),
        image(a.out.shape),
        tuple(found.strides),
        tuple(found.k),
        tuple(before for before, _ in found.pads),
        tuple(after),
    )


@onednn("pool2d", takes=_takes, any_order=True)
def pool2d(dev: Device, a: Pool2d) -> list[Step]:
    pooling = _pooling(a)
    workspace = {WORKSPACE: None} if pooling.kind == "max" else {}
    return _forward(pooling).bind(dev, {SRC: a.x}, {DST: a.out, **workspace})


@onednn("pool2d_grad", takes=_takes, any_order=True)
def pool2d_grad(dev: Device, a: Pool2dGrad) -> list[Step]:
    """Where each maximum was, the forward primitive finds once more: the op hands on values only."""
    if a.d_x is None:
        return []
    pooling = _pooling(a)
    if pooling.kind != "max":
        return _backward(pooling).bind(dev, {D_DST: a.d_out}, {D_SRC: a.d_x})
    places = _forward(pooling).memory(dev, WORKSPACE)
    return [
        *_forward(pooling).bind(dev, {SRC: a.x}, {DST: None, WORKSPACE: places}),
        *_backward(pooling).bind(dev, {D_DST: a.d_out, WORKSPACE: places}, {D_SRC: a.d_x}),
    ]
