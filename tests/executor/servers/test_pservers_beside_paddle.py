"""Losses of two trainers with two servers beside those of Paddle 1.8.5's own parameter servers."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from tests.reference.generate_pservers import (
    CASES,
    EARLY,
    WAYS,
    feeds,
    net,
)

from .roles import JOIN_S, Feed, Trainer, threads, together

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


def test_a_trainer_that_ends_early_is_not_waited_for() -> None:
    """Its share of the mean goes with it; in Paddle its last gradient counts once more, then as zeros."""
    with threads():
        roles = together(
            partial(net, fluid, *WAYS["early"]), [feeds(0), feeds(1)[:EARLY]], config=whole
        )
    assert not roles.errors
    assert len(roles.losses[0]) == len(PADDLE["early"][0]) == len(feeds(0))
    np.testing.assert_allclose(roles.losses[1], PADDLE["early"][1], 1e-4, 1e-5)
    np.testing.assert_allclose(
        roles.losses[0][: EARLY + 1], PADDLE["early"][0][: EARLY + 1], 1e-4, 1e-5
    )
    assert roles.reports[0]["trainers"][1]["finished"]


def test_half_async_trainers_wait_for_servers_and_not_for_each_other() -> None:
    """Trainer 1 begins when trainer 0 has done all its steps, from what it received before."""
    begun, done = threading.Barrier(2), threading.Event()

    def half(config: Any) -> None:
        config.runtime_split_send_recv = config.half_async = True

    def step(trainer: Trainer, feed: Feed) -> float:
        if trainer.number:
            assert done.wait(JOIN_S)
        loss = trainer.step(feed)
        if feed is data[0][-1]:
            done.set()
        return loss

    def compiled(main: Any, loss: Any) -> Any:
        begun.wait(JOIN_S)  # both have received the first parameters
        return main

    data = [feeds(0), feeds(1)]
    make = partial(net, fluid, *WAYS["half-async"])
    with threads():
        roles = together(make, data, sync=False, config=half, compiled=compiled, step=step)
    assert not roles.errors
    np.testing.assert_allclose(roles.losses, PADDLE["half-async"], 1e-4, 1e-5)
