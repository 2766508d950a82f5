"""Pooling, where the library has the op's windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....graph.ir.capabilities import CHANNELS_LAST
from ....graph.ops.pool import Pool, PoolGrad
from ...codegen.native import version
from ...device.device import Device
from ..array.pool import one_window, windows_of
from ..loops import pool as loops
from ..registry import Step, by_arrays
from . import primitive as dnnl
from .support import onednn

_KINDS = {"max": 0x1FF, "padded": 0x2FF, "avg": 0x3FF}  # averages count padding or leave it out


@dataclass(frozen=True)
class Pooling:
    """Shapes and windows that primitives are compiled for."""

    kind: str
    x: dnnl.Layout
    out: dnnl.Layout
    strides: tuple[int, ...]
    window: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def primitive(
        self, direction: str, *first: int, hint: dnnl.Primitive | None = None
    ) -> dnnl.Primitive:
        """Compile one of its two directions."""
        windows = (self.strides, self.window, (0,) * len(self.window), self.before, self.after)
        arguments = (*first, _KINDS[self.kind], self.x, self.out, *windows)
        return dnnl.Primitive(f"pooling_{direction}", *arguments, hint=hint)


@dnnl.shared
def _forward(pooling: Pooling) -> dnnl.Primitive:
    return pooling.primitive("forward", dnnl.TRAINING)


@dnnl.shared
def _backward(pooling: Pooling) -> dnnl.Primitive:
    return pooling.primitive("backward", hint=_forward(pooling))


def _pooling(a: Pool | PoolGrad) -> Pooling | None:
    """Return the library's pooling; None where a window lies in margins alone, which it refuses."""
    win = windows_of(a, a.out)
    # The last window may reach beyond the padding (ceil_mode), or not as far.
    spans = [(o - 1) * s + k for o, s, k in zip(win.out, win.strides, win.k, strict=True)]
    margins = [
        (before, max(after, span - size - before))
        for (before, after), span, size in zip(win.pads, spans, win.size, strict=True)
    ]
    if any(max(pair) >= k for pair, k in zip(margins, win.k, strict=True)):
        return None
    average = "avg" if a.exclusive else "padded"
    image = dnnl.last if dnnl.channels_last(a.x) or dnnl.channels_last(a.out) else dnnl.in_order
    return Pooling(
        average if a.pooling_type == "avg" else "max",
        image(a.x.shape),
        image(a.out.shape),
        tuple(win.strides),
        tuple(win.k),
        tuple(before for before, _ in margins),
        tuple(after for _, after in margins),
    )


def _as_lines(dev: Device, a: Pool | PoolGrad) -> Any:
    """Return the record with each image as one line, if only the largest of each is asked for; else None.

    The channels of all of them lie side by side, or of none. Where sizes are uneven, loops over lines compute
    that: forward and backward they take as long as primitives of the library, which are compiled for each size.
    """
    fields = vars(a)
    arrays = {
        n: array for n in ("x", "out", "d_out", "d_x") if (array := fields.get(n)) is not None
    }
    largest = a.pooling_type == "max" and a.global_pooling and not a.adaptive
    if not (dev.uneven and version() and largest and a.x.size):
        return None
    planes = a.x.shape[:2]
    if all(array.flags.c_contiguous for array in arrays.values()):
        return a.replace(**{n: array.reshape(*planes, 1, -1) for n, array in arrays.items()})
    if not all(map(dnnl.channels_last, arrays.values())):
        return None
    turned = {n: array.transpose(0, *range(2, array.ndim), 1) for n, array in arrays.items()}
    lines = {n: array.reshape(planes[0], 1, -1, planes[1]) for n, array in turned.items()}
    return a.replace(**{n: array.transpose(0, 3, 1, 2) for n, array in lines.items()})


@onednn("pool2d", "pool3d", takes=one_window, any_order=True, layout=CHANNELS_LAST)
def pool(dev: Device, a: Pool) -> list[Step]:
    lines = _as_lines(dev, a)
    if lines is not None and lines.x.flags.c_contiguous:
        return loops.pool(dev, lines)
    if lines is not None:
        return [loops.largest_of_channels(lines.x, lines.out)]
    pooling = _pooling(a)
    if pooling is None:
        return by_arrays("pool2d", dev, a)
    workspace = {"workspace": None} if pooling.kind == "max" else {}
    return _forward(pooling).bind(dev, {"src": a.x}, {"dst": a.out, **workspace})


@onednn("pool2d_grad", "pool3d_grad", takes=one_window, any_order=True, layout=CHANNELS_LAST)
def pool_grad(dev: Device, a: PoolGrad) -> list[Step]:
    """The forward primitive finds once more where each maximum was: the op hands on values only."""
    lines = _as_lines(dev, a)
    if lines is not None and lines.x.flags.c_contiguous:
        return loops.pool_grad(dev, lines)
    if lines is not None:
        x, out, d_out, d_x = lines.x, lines.out, lines.d_out, lines.d_x
        return [loops.largest_of_channels_grad(dev, x, out, d_out, d_x)]
    pooling = _pooling(a)
    if pooling is None:
        return by_arrays("pool2d_grad", dev, a)
    if pooling.kind != "max":
        return _backward(pooling).bind(dev, {"d_dst": a.d_out}, {"d_src": a.d_x})
    places = _forward(pooling).memory(dev, "workspace")
    return [
        *_forward(pooling).bind(dev, {"src": a.x}, {"dst": None, "workspace": places}),
        *_backward(pooling).bind(dev, {"d_dst": a.d_out, "workspace": places}, {"d_src": a.d_x}),
    ]
