"""Losses of two trainers with two servers beside those of Paddle 1.8.5's own parameter servers."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from tests.reference.generate_pservers import CASES, feeds, net

from .roles import threads, together

PADDLE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "reference" / "pservers.json").read_text()
)


def whole(config: Any) -> None:
    config.slice_var_up = False


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_paddle(case: str) -> None:
    with threads():
        roles = together(partial(net, fluid, *CASES[case]), [feeds(0), feeds(1)], config=whole)
    assert not roles.errors
    np.testing.assert_allclose(roles.losses, PADDLE[case], 1e-4, 1e-5)
