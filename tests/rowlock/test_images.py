"""Resizing of images and reading them at positions: layers of 1.x and 2.x, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.nn import functional as F
from tests.reference import images_2x as cases

RECORD = json.loads((Path(__file__).parents[1] / "reference" / "images_2x.json").read_text())


def computed(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Return a function's result and the gradients of its weighted sum."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        names = [f"x{k}" for k in range(len(arrays))]
        read = []
        for name, array in zip(names, arrays, strict=True):
            read.append(fluid.data(name, array.shape, "float32"))
            read[-1].stop_gradient = False
        out = function(*read)
        seed = fluid.layers.assign(cases.weights(out.shape))
        slopes = fluid.gradients([fluid.layers.reduce_sum(out * seed)], read)
        feed = dict(zip(names, arrays, strict=True))
        return fluid.Executor(fluid.CPUPlace()).run(main, feed, [out, *slopes])


def assert_as_paddle(function: Callable[..., Any], record: Any, *arrays: Any) -> None:
    for array, (shape, numbers) in zip(computed(function, *arrays), record, strict=True):
        assert list(array.shape) == shape
        np.testing.assert_allclose(array.ravel(), numbers, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("number", range(len(cases.CALLS)))
def test_interpolate(number: int) -> None:
    name, key, keywords = cases.CALLS[number]
    x = cases.inputs(number, cases.SHAPES[key])
    assert_as_paddle(lambda x: getattr(F, name)(x, **keywords), RECORD["calls"][number], x)


@pytest.mark.parametrize("number", range(len(cases.GRIDS)))
def test_grid_sample(number: int) -> None:
    arrays = cases.inputs(number, cases.SHAPES["HW"]), cases.grid(number)
    keywords = cases.GRIDS[number]
    assert_as_paddle(lambda x, g: F.grid_sample(x, g, **keywords), RECORD["grids"][number], *arrays)


@pytest.mark.parametrize("corners", [True, False])
def test_affine_grid(corners: bool) -> None:
    theta = cases.inputs(3, [2, 2, 3])
    record = RECORD["affine"][not corners]
    assert_as_paddle(lambda t: F.affine_grid(t, [2, 3, 4, 3], corners), record, theta)


def test_layers_of_1_x() -> None:
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [-1, 3, 8, 6], "float32")
        volume = fluid.data("v", [-1, 3, 4, 8, 6], "float32")
        assert layers.resize_nearest(x, scale=2.0).shape == (-1, 3, 16, 12)
        assert layers.resize_bilinear(x, [5, 4]).shape == (-1, 3, 5, 4)
        assert layers.resize_trilinear(volume, [2, 5, 4]).shape == (-1, 3, 2, 5, 4)
        methods = [op.attr("interp_method") for op in x.block.ops]
        assert methods == ["nearest", "bilinear", "trilinear"]
        size = layers.fill_constant([1], "int32", 7)
        assert layers.image_resize(x, [size, 3]).shape == (-1, 3, 7, 3)
        assert layers.image_resize_short(x, 12).shape == (-1, 3, 16, 12)
        scale = layers.create_parameter([3], "float32")
        assert layers.affine_channel(x, scale, scale, act="relu").shape == x.shape
        grid = layers.affine_grid(fluid.data("t", [-1, 2, 3], "float32"), [2, 3, 8, 6])
        assert layers.grid_sampler(x, grid).shape == (-1, 3, 8, 6)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: fluid.layers.image_resize(x), ValueError, "needs out_shape or scale"),
        (lambda x: fluid.layers.image_resize(x, [4]), ValueError, "must have 2 sizes"),
        (lambda x: fluid.layers.image_resize(x, [4, -1]), AssertionError, "above 0"),
        (lambda x: fluid.layers.image_resize(x, scale="2"), TypeError, "must be a number"),
        (lambda x: fluid.layers.image_resize(x, scale=0), ValueError, "above 0"),
        (lambda x: fluid.layers.image_resize(x, [4, 4], resample="X"), ValueError, "resample"),
        (lambda x: fluid.layers.resize_trilinear(x, [2, 4, 4]), ValueError, "5 dimensions"),
        (lambda x: F.interpolate(x, [4, 4], mode="linear"), ValueError, "does not go with 4"),
        (lambda x: F.interpolate(x), ValueError, "size or scale_factor"),
        (lambda x: F.interpolate(x, [4, 4], align_corners=True), ValueError, "align_corners"),
        (lambda x: F.grid_sample(x, x, mode="cubic"), ValueError, "mode must be"),
        (lambda x: F.grid_sample(x, x), ValueError, r"Grid must be \[N, H', W', 2\]"),
        (
            lambda x: fluid.layers.affine_grid(x, [1, 3, 4, 4]),
            ValueError,
            r"Theta must be \[N, 2, 3\]",
        ),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], error: type[Exception], text: str) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3, 8, 6], "float32")
        with pytest.raises(error, match=text):
            call(x)
