"""Dropout inside a fused op, on a part of the elements: it draws what a dropout op would draw for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ....graph.ops.attention import NO_DROPOUT
from ....graph.ops.operands import Array
from ...device.device import Device
from ...device.philox import Stream
from ..registry import Step


class Dropout:
    """What dropout does to some elements: which are zeroed, and the factor of the others.

    A sample has ``row`` elements; ``attrs`` are the attributes (nothing: no dropout).
    """

    def __init__(self, dev: Device, row: int, attrs: Mapping[str, Any]) -> None:
        attrs = {**NO_DROPOUT, **attrs}
        self.dev = dev
        self.keep = 1.0 - attrs["dropout_prob"]
        self.row = row
        self.draws = not attrs["is_test"] and self.keep < 1.0
        self.factor = 1.0 if self.draws else self.keep
        if attrs["dropout_implementation"] == "upscale_in_train":
            self.factor = 1.0 / self.keep if self.draws and self.keep else 1.0
        every, name = not attrs["fix_seed"], attrs["name"]
        self.stream = Stream(dev, attrs["seed"], per_row=True, every_step=every, name=name)

    def mark(self, start: int, space: Any) -> list[Step]:
        """Return the call that marks in ``space`` which elements from ``start`` on are dropped."""

        def draw() -> None:
            mask = self.stream.part_below(start, space.shape, self.row, self.keep)
            self.dev.xp.logical_not(self.dev.xp.asarray(mask), space)

        return [draw] if self.draws else []

    def zero(self, array: Array, space: Any) -> list[Step]:
        """Return the call that zeroes marked elements: not a product, a dropped inf is gone."""
        return [partial(self.dev.xp.copyto, array, 0, where=space)] if self.draws else []
