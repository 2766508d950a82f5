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


def test_bins_that_move_and_regions_made_upright() -> None:
    """Numbers are Paddle 1.8.5's."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2, 4, 6, 6], "float32")
        x.stop_gradient = False
        rois = fluid.data("rois", [None, 4], "float32", lod_level=1)
        quads = fluid.data("quads", [None, 8], "float32", lod_level=1)
        moves = fluid.layers.fill_constant([3, 2, 2, 2], "float32", 0.5)
        moves.stop_gradient = False
        L, bins = fluid.layers, {"pooled_height": 2, "pooled_width": 2}
        moved = L.deformable_roi_pooling(x, rois, moves, sample_per_part=2, **bins)
        still = L.deformable_roi_pooling(x, rois, moves, True, position_sensitive=True, **bins)
        upright, mask, matrix = L.roi_perspective_transform(x, quads, 2, 3)
        assert moved.shape == (-1, 4, 2, 2) and still.shape == (-1, 1, 2, 2)
        assert upright.shape == (-1, 4, 2, 3) and mask.shape == (-1, 1, 2, 3)
        slopes = fluid.gradients([moved, upright], [x, moves])
    corners = np.array([[1, 1, 4, 1, 4, 4, 1, 4], [0, 0, 5, 1, 4, 5, 1, 4]], "float32")
    feed = {
        "x": np.tile(np.arange(6, dtype="float32"), (2, 4, 6, 1)),
        "rois": fluid.create_lod_tensor(ROIS, [[2, 1]], fluid.CPUPlace()),
        "quads": fluid.create_lod_tensor(corners, [[1, 1]], fluid.CPUPlace()),
    }
    fetches = [moved, still, upright, mask, matrix, *slopes]
    exe = fluid.Executor(fluid.CPUPlace())
    results = [np.array(t) for t in exe.run(main, feed, fetches, return_numpy=False)]
    first = [[[0.35, 2.2]] * 2, [[2.2, 4.2]] * 2, [[1.2, 3.2]] * 2]
    np.testing.assert_allclose(results[0][:, 0], first, 1e-6)
    assert results[1].shape == (3, 1, 2, 2)
    lines = [[[1, 4, 0], [1, 4, 0]], [[0, 5, 0], [1, 4, 0]]]
    np.testing.assert_allclose(results[2][:, 0], lines, atol=1e-5)
    assert results[3].ravel().tolist() == [1, 1, 0] * 4
    first_image = [3, 0, 1, 0, 3, 1, 0, 0, 1]
    second_image = [4.23077, 1.61538, 0, 0.84615, 6.46154, 0, -0.15385, 0.61539, 1]
    np.testing.assert_allclose(results[4], [first_image, second_image], atol=1e-5)
    np.testing.assert_allclose(results[5].sum((1, 2, 3)), [48, 32], 1e-5)
    expected = [0.8, 1.6, 0.8, 1.6, *[0.0] * 4, *([1.6] * 4 + [0.0] * 4) * 2]
    np.testing.assert_allclose(results[6].ravel(), expected, atol=1e-5)


def test_text_is_merged_and_chosen() -> None:
    """Numbers are Paddle 1.8.5's."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        boxes = fluid.data("boxes", [2, 3, 8], "float32")
        scores = fluid.data("scores", [2, 1, 3], "float32")
        out = fluid.layers.locality_aware_nms(boxes, scores, 0.1, 10, 10)
        with pytest.raises(AssertionError, match=r"scores must be .N, 1, M., of one class"):
            fluid.layers.locality_aware_nms(boxes, fluid.data("two", [2, 2, 3]), 0.1, 10, 10)
    quad = np.array([0, 0, 4, 0, 4, 2, 0, 2], "float32")
    feed = {
        "boxes": np.stack([[quad, quad + 0.2, quad + 9], [quad, quad + 3, quad]]),
        "scores": np.array([[[0.5, 0.7, 0.3]], [[0.05, 0.6, 0.9]]], "float32"),
    }
    (tensor,) = fluid.Executor(fluid.CPUPlace()).run(main, feed, [out], return_numpy=False)
    expected = [[0, 1.2, 0.1166667], [0, 0.3, 9.0], [0, 0.9, 0.0], [0, 0.6, 3.0]]
    np.testing.assert_allclose(np.array(tensor)[:, :3], expected, 1e-5)
    assert tensor.lod() == [[0, 2, 4]]


def test_the_sizes_of_a_pyramid_need_not_be_declared() -> None:
    with fluid.program_guard(fluid.Program()):
        names = {"boxes": 3, "scores": 3, "anchors": 2, "image": 2}
        boxes, scores, anchors, image = (
            fluid.data(name, [None] * rank) for name, rank in names.items()
        )
        regions = fluid.layers.retinanet_detection_output([boxes], [scores], [anchors], image)
        feed = {
            "boxes": np.zeros((1, 1, 4), "float32"),
            "scores": np.full((1, 1, 2), 0.9, "float32"),
            "anchors": np.array([[1, 1, 5, 5]], "float32"),
            "image": np.array([[20, 20, 1]], "float32"),
        }
        exe = fluid.Executor()
        (result,) = exe.run(feed=feed, fetch_list=[regions], return_numpy=False)
        assert np.array(result).shape == (2, 6)
        with pytest.raises(fluid.core.EnforceNotMet, match=r"maps must have BBoxes \[N, M, 4\]"):
            exe.run(feed={**feed, "boxes": np.zeros((1, 1, 5), "float32")}, fetch_list=[regions])
