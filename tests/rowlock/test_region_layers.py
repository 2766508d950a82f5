"""Pools over regions of images, in programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid

ROIS = np.array([[0, 0, 3, 3], [2, 1, 5, 4], [1, 1, 4, 5]], "float32")


def pooled(layer: str, lengths: list[int], **options: Any) -> list[np.ndarray]:
    """Return what a layer makes of a ramp, and the gradient of its sum."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2, 4, 6, 6], "float32")
        x.stop_gradient = False
        rois = fluid.data("rois", [None, 4], "float32", lod_level=1)
        out = getattr(fluid.layers, layer)(x, rois, pooled_height=2, pooled_width=2, **options)
        (slope,) = fluid.gradients([out], [x])
    ramp = np.tile(np.arange(6, dtype="float32"), (2, 4, 6, 1))
    feed = {"x": ramp, "rois": fluid.create_lod_tensor(ROIS, [lengths], fluid.CPUPlace())}
    exe = fluid.Executor(fluid.CPUPlace())
    results: list[np.ndarray] = exe.run(main, feed=feed, fetch_list=[out, slope])
    return results


@pytest.mark.parametrize(
    ("layer", "options", "first"),
    [
        ("roi_pool", {}, [1, 3]),
        ("roi_align", {}, [0.75, 2.25]),
        ("prroi_pool", {"spatial_scale": 1.0}, [0.75, 2.25]),
        ("psroi_pool", {"output_channels": 1, "spatial_scale": 1.0}, [0.5, 2.5]),
    ],
)
def test_a_ramp_is_pooled(layer: str, options: dict[str, Any], first: list[float]) -> None:
    out, slope = pooled(layer, [2, 1], **options)
    assert out.shape == (3, 1 if layer == "psroi_pool" else 4, 2, 2)
    np.testing.assert_allclose(out[0, 0], [first, first], rtol=1e-6)
    by_image = slope.sum((1, 2, 3))
    np.testing.assert_allclose(by_image, [2 * out[0].size, out[0].size], rtol=1e-5)


def test_regions_that_do_not_fit_the_images_are_told() -> None:
    with pytest.raises(
        fluid.core.EnforceNotMet, match=r"roi_align: ROIs has 3 rows.*X has 2 images"
    ):
        pooled("roi_align", [3])


def test_priors_of_images_of_any_size() -> None:
    """They are as many as the cells of the image that is fed."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        image = fluid.data("image", [None, 3, None, None])
        cells = fluid.layers.pool2d(image, 4, "avg", 4)
        anchors, _ = fluid.layers.anchor_generator(cells, [16.0], [0.5, 1.0], stride=[4.0, 4.0])
        priors, _ = fluid.layers.prior_box(cells, image, [3.0])
        dense, _ = fluid.layers.density_prior_box(
            cells, image, [2], [4.0], [1.0], flatten_to_2d=True
        )
        exe = fluid.Executor(fluid.CPUPlace())
        for height, width in ((8, 12), (12, 4)):
            feed = {"image": np.zeros((1, 3, height, width), "float32")}
            results = exe.run(feed=feed, fetch_list=[anchors, priors, dense])
            rows, columns = height // 4, width // 4
            expected = [(rows, columns, 2, 4), (rows, columns, 1, 4), (rows * columns * 4, 4)]
            assert [a.shape for a in results] == expected
