"""Gradients through an activation that a fused op holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph.ops.expr import argument
from ....graph.ops.fused_activation import slope_of, slope_reads
from ...codegen.array_calls import bind_calls
from ...device.device import Device
from ..registry import Step


def sloped(
    dev: Device, act: str, settings: Mapping[str, Any], sides: Mapping[str, Any], d: Any, d_x: Any
) -> list[Step]:
    """Return the calls that take a gradient through an activation; ``sides`` are its X and its Out."""
    slope, reads = slope_of(act, settings), slope_reads(act)
    at = {"at": sides[reads]} if reads else {}
    root = slope(*map(argument, (*at, "d")))
    return bind_calls(dev, [(root, d_x)], {**at, "d": d})
