"""Programs as people wrote them from 2018 to 2020 compute what Paddle 1.8.5 does, alone and on two replicas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from tests.reference import older_programs

REFERENCE = json.loads(Path(older_programs.__file__).with_suffix(".json").read_text())
TOGETHER = [name for name in older_programs.NAMES if name not in older_programs.ALONE]


def assert_as_paddle(steps: Any, name: str) -> None:
    """Compare the mean squares of fetched values, and the lengths of their sequences."""
    for (squares, lengths), (reference, reference_lengths) in zip(
        steps, REFERENCE[name], strict=True
    ):
        np.testing.assert_allclose(squares, reference, rtol=2e-5, atol=2e-6)
        assert lengths == reference_lengths


@pytest.mark.parametrize("name", older_programs.NAMES)
def test_one_place_computes_what_paddle_does(name: str) -> None:
    assert_as_paddle(older_programs.run(fluid, name), name)


@pytest.mark.parametrize("name", TOGETHER)
def test_two_replicas_compute_what_paddle_does_on_two_places(name: str, gang: str) -> None:
    assert_as_paddle(older_programs.run(fluid, name, 2, fluid.cpu_places(2)), f"{name} on 2")
