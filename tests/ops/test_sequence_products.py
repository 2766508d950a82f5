"""Products of matrices by image and by pair of sequences are those of the formulas, which gather numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.capabilities import installed
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import SequenceError

compiled = pytest.mark.skipif("llvm" not in installed(), reason="LLVM is not installed")
Slots = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]


def computed(op: str, inputs: Slots, shapes: Shapes, attrs: Any, back_end: str) -> Slots:
    """Return results that lie over nan at first."""
    results = {slot: np.full(shape, np.nan, "f4") for slot, shape in shapes.items()}
    read, written = ({slot: [array] for slot, array in side.items()} for side in (inputs, results))
    for step in bind(op, read, written, {**OPS[op].attrs, **attrs}, Device(), back_end):
        step()
    return results


def agree(op: str, inputs: Slots, shapes: Shapes, attrs: Any) -> Slots:
    """Hold what the kernel computes to what the formula does, and return it."""
    kernel, formula = (computed(op, inputs, shapes, attrs, on) for on in ("llvm", "numpy"))
    for slot, result in kernel.items():
        np.testing.assert_allclose(result, formula[slot], rtol=1e-4, atol=1e-4, err_msg=slot)
    return kernel


def levels(**lengths: Any) -> Slots:
    """Return offsets by slot, of lengths."""
    return {f"{slot}@LOD": np.cumsum([0, *counts]) for slot, counts in lengths.items()}


def pairs(heights: list[int], widths: list[int], dim_t: int) -> Slots:
    rng = np.random.default_rng(1)
    counts = [dim_t * h * w for h, w in zip(heights, widths, strict=True)]
    rows = {
        "X": (sum(heights), 5),
        "Y": (sum(widths), 3),
        "W": (5, dim_t, 3),
        "Out@GRAD": (sum(counts), 1),
    }
    arrays = {slot: rng.standard_normal(shape).astype("f4") for slot, shape in rows.items()}
    return {**arrays, **levels(X=heights, Y=widths, Out=counts)}


def images(heights: list[int], widths: list[int], attrs: Any) -> Slots:
    rng = np.random.default_rng(2)
    channels, filters = attrs["InputChannel"], attrs["OutputChannel"]
    sizes = list(zip(heights, widths, strict=True))
    strides = attrs["StrideH"], attrs["StrideW"]
    steps = [[-(-n // stride) for n, stride in zip(pair, strides, strict=True)] for pair in sizes]
    counts = {
        "X": [channels * math.prod(pair) for pair in sizes],
        "Out": [filters * math.prod(pair) for pair in steps],
    }
    rows = {
        "X": (sum(counts["X"]), 1),
        "ROW": (sum(heights), 1),
        "COLUMN": (sum(widths), 1),
        "W": (filters, channels * attrs["KernelH"] * attrs["KernelW"]),
        "Out@GRAD": (sum(counts["Out"]), 1),
    }
    arrays = {slot: rng.standard_normal(shape).astype("f4") for slot, shape in rows.items()}
    return {**arrays, **levels(**counts, ROW=heights, COLUMN=widths)}


def forwards(inputs: Slots) -> Slots:
    return {slot: array for slot, array in inputs.items() if slot != "Out@GRAD"}


def backwards(inputs: Slots) -> Slots:
    return {**inputs, "Out@GRAD@LOD": inputs["Out@LOD"]}


@compiled
@pytest.mark.parametrize("dim_t", [1, 3])
@pytest.mark.parametrize(("heights", "widths"), [([4], [2]), ([3, 0, 2, 5], [2, 4, 0, 1])])
def test_pairs_of_sequences(heights: list[int], widths: list[int], dim_t: int) -> None:
    inputs, attrs = pairs(heights, widths, dim_t), {"dim_t": dim_t}
    seed, n, size = inputs["Out@GRAD"], len(inputs["X"]), inputs["Y"].shape[1]
    shapes = {"Out": seed.shape, "Tmp": (n * dim_t * size, 1)}
    op, forward = "match_matrix_tensor", forwards(inputs)
    tmp = agree(op, forward, shapes, attrs)["Tmp"]
    slopes = {f"{slot}@GRAD": inputs[slot].shape for slot in ("X", "Y", "W")}
    for wanted in (slopes, {"Y@GRAD": slopes["Y@GRAD"]}, {"W@GRAD": slopes["W@GRAD"]}):
        agree(f"{op}_grad", {**backwards(inputs), "Tmp": tmp}, wanted, attrs)


@compiled
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2), (4, 9)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (1, 2), (3, 4)])
def test_images_of_several_sizes(strides: tuple[int, int], kernel: tuple[int, int]) -> None:
    attrs = {"InputChannel": 2, "OutputChannel": 3}
    attrs |= dict(zip(("StrideH", "StrideW", "KernelH", "KernelW"), strides + kernel, strict=True))
    inputs = images([4, 1, 0, 7], [3, 5, 2, 6], attrs)
    rows, window = len(inputs["Out@GRAD"]), inputs["W"].shape[1]
    shapes = {"Out": (rows, 1), "Col": (rows // 3 * window, 1)}
    forward = forwards(inputs)
    agree("var_conv_2d", forward, shapes, attrs)
    agree("var_conv_2d", forward, {"Out": (rows, 1)}, attrs)
    slopes = {"X@GRAD": inputs["X"].shape, "W@GRAD": inputs["W"].shape}
    for wanted in (slopes, *({slot: shape} for slot, shape in slopes.items())):
        agree("var_conv_2d_grad", backwards(inputs), wanted, attrs)


SIZES = {"InputChannel": 1, "OutputChannel": 2, "KernelH": 2, "KernelW": 2}
SIZES |= {"StrideH": 1, "StrideW": 1}
CASES: list[Any] = [
    ("match_matrix_tensor", pairs([2, 3], [2, 1], 2), {"dim_t": 2}, {"Tmp": (30, 1)}, ("X", "Y")),
    ("var_conv_2d", images([2, 3], [2, 1], SIZES), SIZES, {"Col": (28, 1)}, ("X", "ROW")),
]


@pytest.mark.parametrize("back_end", ["numpy", pytest.param("llvm", marks=compiled)])
@pytest.mark.parametrize(("op", "inputs", "attrs", "side", "slots"), CASES)
def test_results_that_do_not_end_where_rows_do_are_refused(
    back_end: str, op: str, inputs: Slots, attrs: Any, side: Any, slots: Any
) -> None:
    ends = inputs["Out@LOD"] - [0, 0, 2]
    shapes = {"Out": inputs["Out@GRAD"].shape, **side}
    bad = {**forwards(inputs), "Out@LOD": ends}
    with pytest.raises(SequenceError, match=r"Out end at row"):
        computed(op, bad, shapes, attrs, back_end)


@compiled
@pytest.mark.parametrize(("op", "inputs", "attrs", "side", "slots"), CASES)
def test_what_does_not_belong_together_is_left_to_the_formula(
    op: str, inputs: Slots, attrs: Any, side: Any, slots: Any
) -> None:
    shapes = {"Out": inputs["Out@GRAD"].shape, **side}
    slopes = {f"{slot}@GRAD": inputs[slot].shape for slot in ("X", "W")}
    residues = {slot: np.ones(shape, "f4") for slot, shape in side.items()}
    for slot in slots:
        bad = {**inputs, f"{slot}@LOD": inputs[f"{slot}@LOD"] + [0, 1, 0]}
        back = {**backwards(bad), **residues}
        assert_alike(op, forwards(bad), shapes, attrs)
        assert_alike(f"{op}_grad", back, slopes, attrs)


def assert_alike(op: str, inputs: Slots, shapes: Shapes, attrs: Any) -> None:
    """Hold the bits of a step, or its error, to those of the array module."""
    sides: list[Any] = []
    for back_end in ("llvm", "numpy"):
        try:
            with np.errstate(divide="ignore"):
                results = computed(op, inputs, shapes, attrs, back_end)
                sides.append({slot: result.tobytes() for slot, result in results.items()})
        except IndexError as error:
            sides.append(str(error))
    assert sides[0] == sides[1]
