"""Compiled dropout draws the very numbers of ``executor/device/philox.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.array.part_dropout import Dropout
from rowlock.executor.kernels.loops.random import CompiledDropout
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS

pytest.importorskip("llvmlite")

Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]


def dropped(back_end: str, shape: tuple[int, ...], step: int, row: int, attrs: Any) -> Drawn:
    """Out, mask and gradient; the plan is bound before the step is known."""
    dev = Device(seed=3)
    dev.output = "h"
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    x.flat[:2] = np.inf, np.nan
    out, d_x, mask = np.empty_like(x), np.empty_like(x), np.empty(shape, np.uint8)
    settings = {**OPS["dropout"].attrs, **attrs}
    outputs = {"Out": [out], "Mask": [mask]}
    calls = bind("dropout", {"X": [x]}, outputs, settings, dev, back_end)
    read = {"Mask": [mask], "Out@GRAD": [x]}
    calls += bind("dropout_grad", read, {"X@GRAD": [d_x]}, settings, dev, back_end)
    dev.clock.step, dev.clock.row = step, row
    with np.errstate(invalid="ignore"):
        for call in calls:
            call()
    return out, mask, d_x


UPSCALE = {"dropout_implementation": "upscale_in_train"}


@pytest.mark.parametrize(
    "attrs",
    [
        {"dropout_prob": 0.3},
        {"dropout_prob": 0.3, "seed": 2**31 - 1, "fix_seed": True, **UPSCALE},
        {"dropout_prob": 0.0},
        {"dropout_prob": 1.0, **UPSCALE},
        {"dropout_prob": 0.4, "is_test": True},
    ],
)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 2, 300), (9, 1024)])
def test_same_bits_as_numpys(shape: tuple[int, ...], attrs: Any) -> None:
    for step, row in ((0, 0), (7, 3), (2**40, 10**6)):
        ours, expected = (dropped(on, shape, step, row, attrs) for on in ("llvm", "numpy"))
        for one, other in zip(ours, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_part_is_that_part() -> None:
    dev = Device(seed=5)
    dev.output = "h"
    attrs = {"dropout_prob": 0.25, "name": "other"}
    marks = []
    for kind in (Dropout, CompiledDropout):
        space = np.empty((11, 13), np.bool_)
        calls = kind(dev, 40, attrs).mark(77, space)
        dev.clock.step, dev.clock.row = 9, 4
        for call in calls:
            call()
        marks.append(space)
    np.testing.assert_array_equal(*marks)
    assert 0.1 < marks[0].mean() < 0.4
