"""Detectors train as Paddle 1.8.5 trains them, and find what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
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
