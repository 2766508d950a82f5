"""Two nets that train in turns on two places compute what Paddle 1.8.5 does there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import rowlock.fluid as fluid
from tests.conftest import lasting
from tests.reference import star_gan

STEPS = json.loads(Path(star_gan.__file__).with_suffix(".json").read_text())


def test_a_star_gan_on_two_places() -> None:
    with fluid.scope_guard(fluid.Scope()), lasting("threads"):
        steps = star_gan.losses(fluid, 2, fluid.cpu_places(2))
    assert len(steps) == len(STEPS)
    for step, reference in zip(steps, STEPS, strict=True):
        np.testing.assert_allclose(step, reference, rtol=1e-5, atol=1e-5)
