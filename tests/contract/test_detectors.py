"""Detectors train as Paddle 1.8.5 trains them, and find what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import ExecutionError, ShapeError, Unsupported
from tests.programs import executor_after
from tests.reference import detectors

REFERENCE = json.loads(Path(detectors.__file__).with_suffix(".json").read_text())


@pytest.mark.parametrize("name", REFERENCE)
def test_detectors_train_as_paddles_do(name: str) -> None:
    ours, theirs = detectors.run(fluid, name), REFERENCE[name]
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=1e-5)
    assert ours["lengths"] == theirs["lengths"]
    np.testing.assert_allclose(ours["detections"], theirs["detections"], rtol=1e-4, atol=1e-5)


def test_a_detector_trains_on_two_places() -> None:
    """An image for each place: YOLO's loss is a mean over images, so that two places make one batch."""

    def on_two(main: Any, loss: Any) -> Any:
        program = fluid.CompiledProgram(main)
        return program.with_data_parallel(loss.name, places=fluid.cpu_places(2))

    with rowlock.cluster(launcher="threads"):
        ours = detectors.run(fluid, "yolo", on_two)
    np.testing.assert_allclose(ours["losses"], REFERENCE["yolo"]["losses"], rtol=1e-4)


def test_anchors_that_are_drawn_change_and_their_number_does_not() -> None:
    """What learns follows from boxes alone where nothing is drawn; drawn, each step has others, as many."""
    rng = np.random.default_rng(5)
    low = rng.uniform(0, 40, (60, 2))
    anchors = np.concatenate([low, low + rng.uniform(5, 30, low.shape)], 1).astype("float32")
    counts = set()
    choices = set()
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        objects = fluid.data("objects", [None, 4], lod_level=1)
        crowd = fluid.data("crowd", [None, 1], "int32", lod_level=1)
        info, table = fluid.data("info", [None, 3]), fluid.layers.assign(anchors)
        deltas, logits = fluid.data("deltas", [None, 60, 4]), fluid.data("logits", [None, 60, 1])
        results = fluid.layers.rpn_target_assign(
            deltas, logits, table, table, objects, crowd, info, 12, -1.0, 0.5, 0.4
        )
        exe = fluid.Executor(fluid.CPUPlace())
        tensor = [
            fluid.create_lod_tensor(a, [[2, 1]], fluid.CPUPlace())
            for a in (anchors[[3, 9, 20]] + 1, np.zeros((3, 1), "int32"))
        ]
        feed = {"objects": tensor[0], "crowd": tensor[1], "info": np.full((2, 3), 90, "float32")}
        feed["info"][:, 2] = 1
        feed["deltas"] = np.zeros((2, 60, 4), "float32")
        feed["logits"] = np.arange(120, dtype="float32").reshape(2, 60, 1)
        for _ in range(6):
            scores, places, labels, *_ = exe.run(feed=feed, fetch_list=list(results))
            counts.add((len(scores), len(places), int(labels.sum())))
            choices.add(tuple(scores.reshape(-1).tolist()))
    assert len(counts) == 1 and len(choices) > 1


def test_the_precision_of_a_batch(fresh_programs: None) -> None:
    """Of two objects of class 1 the better guess finds one; class 2 is found, though by the second guess."""
    guesses = np.array(
        [
            [1, 0.9, 0.1, 0.1, 0.5, 0.5],
            [1, 0.8, 0.6, 0.1, 0.9, 0.5],
            [2, 0.7, 0.1, 0.6, 0.3, 0.9],
            [2, 0.6, 0.5, 0.6, 0.9, 0.9],
        ],
        "float32",
    )
    objects = guesses[[0, 3, 3], 1:]
    objects[:, 0] = [1, 2, 1]
    rows, truth = (
        fluid.data("rows", [None, 6], lod_level=1),
        fluid.data("truth", [None, 5], lod_level=1),
    )
    precision = fluid.layers.detection.detection_map(rows, truth, 3)
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {
        "rows": fluid.create_lod_tensor(guesses, [[4]], fluid.CPUPlace()),
        "truth": fluid.create_lod_tensor(objects, [[3]], fluid.CPUPlace()),
    }
    (value,) = exe.run(feed=feed, fetch_list=[precision])
    np.testing.assert_allclose(value, [(0.5 + 0.5) / 2])
    with pytest.raises(Unsupported, match="keeps the judgements of a pass itself"):
        fluid.layers.detection.detection_map(rows, truth, 3, input_states=[truth])


def test_the_precision_of_a_pass(fresh_programs: None) -> None:
    """As in Paddle 1.8.5 a batch whose only guess is wrong halves the precision; then another pass begins."""
    rows = fluid.data("rows", [None, 6], lod_level=1)
    label = fluid.data("label", [None, 1], "int32", lod_level=1)
    box = fluid.data("box", [None, 4], lod_level=1)
    metric = fluid.metrics.DetectionMAP(rows, label, box, class_num=2)
    exe = executor_after()
    places = np.array([[0.1, 0.1, 0.4, 0.4], [0.5, 0.5, 0.9, 0.9]], "float32")

    def measured(guess: int) -> list[float]:
        place = fluid.CPUPlace()
        arrays = {
            "rows": np.array([[1, 0.9, *places[guess]]], "float32"),
            "label": np.ones((1, 1), "int32"),
            "box": places[:1],
        }
        feed = {k: fluid.create_lod_tensor(v, [[1]], place) for k, v in arrays.items()}
        values = exe.run(feed=feed, fetch_list=list(metric.get_map_var()))
        return [float(value[0]) for value in values]

    assert [measured(0), measured(1)] == [[1, 1], [0, 0.5]]
    metric.reset(exe)
    assert measured(1) == [0, 0]
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(ExecutionError, match="earlier batches of this pass were not measured here"):
        measured(1)


def test_regions_that_are_not_finite_are_named(fresh_programs: None) -> None:
    x = fluid.data("x", [None, 2, 4, 4])
    regions = fluid.data("regions", [None, 4], lod_level=1)
    out = fluid.layers.roi_align(x, regions, 2, 2)
    boxes = np.array([[0, 0, 2, 2], [0, 0, np.nan, 2]], "float32")
    feed = {"x": np.ones((1, 2, 4, 4), "float32")}
    feed["regions"] = fluid.create_lod_tensor(boxes, [[2]], fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(ExecutionError, match=r"region 1 of ROIs is .*nan.* may have diverged"):
        exe.run(feed=feed, fetch_list=[out])


BOX = [0.1, 0.1, 0.5, 0.5]
MISTAKES = {
    "images": (
        [[1, 0.9, *BOX]],
        [1, 0],
        [[1, *BOX]],
        [1],
        "sequences.DetectRes. = 2, sequences.Label. = 1",
    ),
    "class of an object": (
        [[1, 0.9, *BOX]],
        [1],
        [[3, *BOX]],
        [1],
        r"class 3 .*row 0.*class_num=3",
    ),
    "below 0": ([[1, 0.9, *BOX]], [1], [[2, *BOX], [-1, *BOX]], [2], r"class -1 .*row 1"),
    "no number": ([[1, 0.9, *BOX]], [1], [[np.nan, *BOX]], [1], r"class nan .*row 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_what_a_precision_is_of(mistake: str, fresh_programs: None) -> None:
    """They name variables, op, line and values, and the next run is as if they had not been made."""
    guesses, images, objects, of_objects, words = MISTAKES[mistake]
    rows = fluid.data("rows", [None, 6], lod_level=1)
    truth = fluid.data("truth", [None, 5], lod_level=1)
    precision = fluid.layers.detection.detection_map(rows, truth, 3)
    exe, place = fluid.Executor(fluid.CPUPlace()), fluid.CPUPlace()

    def run(guesses: Any, images: list[int], objects: Any, of_objects: list[int]) -> float:
        guesses, objects = (np.array(array, "float32") for array in (guesses, objects))
        feed = {
            "rows": fluid.create_lod_tensor(guesses, [images], place),
            "truth": fluid.create_lod_tensor(objects, [of_objects], place),
        }
        return float(exe.run(feed=feed, fetch_list=[precision])[0][0])

    with pytest.raises(ShapeError, match=f"detection_map: .*{words}.*'rows'.*test_detectors.py"):
        run(guesses, images, objects, of_objects)
    assert run([[1, 0.9, *BOX]], [1], [[1, *BOX]], [1]) == 1


@pytest.mark.parametrize("label", [-1, -9, 3, np.nan])
def test_boxes_of_no_class_do_not_count(label: float, fresh_programs: None) -> None:
    """As in Paddle 1.8.5, where classes count that objects have."""
    rows = fluid.data("rows", [None, 6], lod_level=1)
    truth = fluid.data("truth", [None, 5], lod_level=1)
    precision = fluid.layers.detection.detection_map(rows, truth, 3)
    guesses = np.array([[label, 0.95, *BOX], [2, 0.9, *BOX]], "float32")
    feed = {
        "rows": fluid.create_lod_tensor(guesses, [[2]], fluid.CPUPlace()),
    }
    feed["truth"] = fluid.create_lod_tensor(
        np.array([[2, *BOX]], "float32"), [[1]], fluid.CPUPlace()
    )
    (value,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[precision])
    assert value.tolist() == [1]
