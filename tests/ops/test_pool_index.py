"""Places that pooling finds: what is refused, and what no sample of the ops has."""

from __future__ import annotations

import numpy as np
import pytest

from rowlock.executor.kernels.capabilities import installed
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import InvalidValue
from tests.ops.harness import gradients, run

LIBRARIES = ["", *({"llvm"} & installed().keys())]


@pytest.mark.parametrize("place", [-1, 16])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_place_outside_of_a_channel_is_named(library: str, place: int) -> None:
    op = OPS["unpool"]
    inputs = {"X": [np.ones((1, 1, 2, 2), "f4")], "Indices": [np.zeros((1, 1, 2, 2), "i4")]}
    inputs["Indices"][0][0, 0, 1, 1] = place
    attrs = {**op.attrs, "ksize": [2, 2], "strides": [2, 2]}
    with pytest.raises(InvalidValue, match=rf"^unpool: Indices holds {place}, .* 16 elements"):
        run(op, inputs, attrs, back_end=library)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_window_without_a_number_has_no_place(library: str) -> None:
    op = OPS["max_pool2d_with_index"]
    x = np.full((1, 1, 2, 4), np.nan, "f4")
    x[0, 0, 1, 2] = 3
    attrs = {**op.attrs, "ksize": [2, 2], "strides": [2, 2]}
    outputs = run(op, {"X": [x]}, attrs, back_end=library)
    assert outputs["Mask"][0].ravel().tolist() == [-1, 6]
    seeds = {"Out": [np.array([[[[5, 7]]]], "f4")]}
    slope = gradients(op, {"X": [x]}, outputs, seeds, attrs, back_end=library)["X"][0]
    assert slope.ravel().tolist() == [0, 0, 0, 0, 0, 0, 7, 0]


@pytest.mark.parametrize("library", LIBRARIES)
def test_of_equal_elements_the_first_is_the_maximum(library: str) -> None:
    op = OPS["max_pool3d_with_index"]
    attrs = {**op.attrs, "ksize": [2, 2, 2], "strides": [1, 1, 1]}
    results = run(op, {"X": [np.ones((1, 1, 2, 2, 3), "f4")]}, attrs, back_end=library)
    assert results["Mask"][0].ravel().tolist() == [0, 1]
