"""Kernels that copy elements into another shape: views made when binding, one copy in a step."""

from __future__ import annotations

from typing import Any

from ...device.device import Device
from ..registry import Step, kernel
from .manipulation import copied

_VIEWS = ("reshape", "squeeze", "unsqueeze", "flatten")


@kernel(*_VIEWS, *(f"{name}2" for name in _VIEWS), low=True)
def reshape(dev: Device, x: Any, out: Any) -> list[Step]:
    if x.flags.c_contiguous:
        return copied(dev, out, x.reshape(out.shape))
    return copied(dev, out.reshape(x.shape), x)


@kernel(*(f"{name}_grad" for name in _VIEWS), *(f"{name}2_grad" for name in _VIEWS), low=True)
def reshape_grad(dev: Device, d_out: Any, d_x: Any) -> list[Step]:
    return [] if d_x is None else copied(dev, d_x.reshape(d_out.shape), d_out)


@kernel("transpose", "transpose2", low=True)
def transpose(dev: Device, x: Any, out: Any, *, axis: list[int]) -> list[Step]:
    return copied(dev, out, x.transpose(axis))


@kernel("transpose_grad", "transpose2_grad", low=True)
def transpose_grad(dev: Device, d_out: Any, d_x: Any, *, axis: list[int]) -> list[Step]:
    return [] if d_x is None else copied(dev, d_x.transpose(axis), d_out)
