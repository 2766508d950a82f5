"""``paddle.vision.ops`` in training, on two places, and what it refuses; values are in expressions.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock import nn, static
from rowlock.strategies.errors import ExecutionError, InvalidValue, Unsupported
from rowlock.vision import ops
from tests.programs import executor_after, on_places

pytestmark = pytest.mark.usefixtures("no_compiled_loops")
DRAW = np.random.RandomState(5)
IMAGES = DRAW.standard_normal((4, 3, 8, 8)).astype("float32")
CORNERS = DRAW.uniform(0, 4, (6, 2))
BOXES = np.concatenate([CORNERS, CORNERS + DRAW.uniform(1, 4, (6, 2))], 1).astype("float32")
COUNTS = np.array([1, 2, 0, 3], "int32")


@pytest.fixture(autouse=True)
def programs() -> Iterator[None]:
    with (
        static.program_guard(static.Program(), static.Program()),
        paddle.utils.unique_name.guard(),
        static.scope_guard(static.Scope()),
    ):
        static.default_startup_program().random_seed = 5
        yield


def value(parameter: Any) -> np.ndarray:
    return np.array(static.global_scope().find_var(parameter.name).get_tensor())


def test_regions_of_a_detector_train_alike_on_one_place_and_on_two() -> None:
    images, boxes = static.data("images", [-1, 3, 8, 8]), static.data("boxes", [-1, 4])
    counts = static.data("counts", [-1], "int32")
    offsets, features = nn.Conv2D(3, 18, 3, padding=1), nn.Conv2D(3, 4, 3, padding=1)
    bent = ops.DeformConv2D(4, 4, 3, padding=1)
    maps = bent(features(images), offsets(images) * 0.1)
    pools = [
        ops.roi_align(maps, boxes, counts, 2, 0.5),
        ops.roi_pool(maps, boxes, counts, 2),
        paddle.tile(ops.psroi_pool(maps, boxes, counts, 2), [1, 4, 1, 1]),
    ]
    loss = paddle.mean(paddle.square(paddle.concat(pools, 1) - 0.3))
    paddle.optimizer.SGD(0.5).minimize(loss)
    exe = executor_after()
    main = static.default_main_program()
    parameters = [p for layer in (features, bent, offsets) for p in layer.parameters()]
    start = [value(parameter) for parameter in parameters]
    whole = {"images": IMAGES, "boxes": BOXES, "counts": COUNTS}
    halves = [
        {"images": IMAGES[:2], "boxes": BOXES[:3], "counts": COUNTS[:2]},
        {"images": IMAGES[2:], "boxes": BOXES[3:], "counts": COUNTS[2:]},
    ]
    compiled = on_places(main, 2, loss)
    results = []
    with paddle.cluster(launcher="threads"):
        for program, feed in ((main, whole), (compiled, halves)):
            for parameter, array in zip(parameters, start, strict=True):
                static.global_scope().find_var(parameter.name).get_tensor().set(array)
            losses = [np.mean(exe.run(program, feed=feed, fetch_list=[loss])[0]) for _ in range(3)]
            results.append([losses, *(value(parameter) for parameter in parameters)])
    assert results[0][0][-1] < results[0][0][0]
    assert not np.allclose(results[0][-2], start[-2])  # gradients pass through offsets, too
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


def test_proposals_go_to_the_maps_that_they_are_read_from() -> None:
    """As in a two-stage detector: proposals, their maps, a pool of each, and the order of before."""
    scores, deltas = static.data("s", [-1, 2, 4, 4]), static.data("d", [-1, 8, 4, 4])
    sizes, anchors = static.data("z", [-1, 2]), static.data("a", [4, 4, 2, 4])
    rois, _, counts = ops.generate_proposals(
        scores, deltas, sizes, anchors, paddle.ones_like(anchors), 30, 5, 0.7, return_rois_num=True
    )
    levels, order, numbers = ops.distribute_fpn_proposals(rois, 2, 3, 3, 20, rois_num=counts)
    assert numbers is not None
    corners = DRAW.uniform(0, 20, (4, 4, 2, 2))
    feed = {
        "s": DRAW.rand(2, 2, 4, 4).astype("float32"),
        "d": (DRAW.standard_normal((2, 8, 4, 4)) * 0.3).astype("float32"),
        "z": np.array([[40, 40], [30, 35]], "float32"),
        "a": np.concatenate([corners, corners + DRAW.uniform(4, 20, corners.shape)], 3).astype("f"),
    }
    exe = static.Executor(paddle.CPUPlace())
    fetches = [rois, counts, order, *levels, *numbers]
    regions, of_images, places, *parts = exe.run(feed=feed, fetch_list=fetches)
    together = np.concatenate(parts[:2])
    np.testing.assert_array_equal(together[places.ravel()], regions)
    np.testing.assert_array_equal(parts[2] + parts[3], of_images)
    assert of_images.tolist() == [5, 5] and regions.shape == (10, 4)


def test_mistakes_say_what_to_do() -> None:
    images, boxes = static.data("images", [-1, 3, 8, 8]), static.data("boxes", [-1, 4])
    counts = static.data("counts", [-1], "int32")
    with pytest.raises(InvalidValue, match="category_idxs need scores and categories"):
        ops.nms(boxes, category_idxs=counts)
    with pytest.raises(InvalidValue, match="3 channels of 'images' do not divide by 2 x 2 bins"):
        ops.psroi_pool(images, boxes, counts, 2)
    with pytest.raises(Unsupported, match="iou_aware=True is not built"):
        ops.yolo_box(images, counts, [1, 2], 1, 0.1, 8, iou_aware=True)
    with pytest.raises(AttributeError, match="feed arrays"):
        ops.read_file  # noqa: B018 - its error is what is read
    out = ops.roi_align(images, boxes, counts, 2)
    feed = {"images": IMAGES, "boxes": BOXES, "counts": COUNTS[:3]}
    with pytest.raises(ExecutionError, match=r"ROIs has 6 rows, of which .* and X has 4 images"):
        static.Executor(paddle.CPUPlace()).run(feed=feed, fetch_list=[out])
