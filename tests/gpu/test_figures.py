"""What ``benchmarks/gpu.py`` says of contenders that do not train alike."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np

from benchmarks import gpu

LOSSES = np.array([4.1751, 4.1617, 4.0338, 4.0649, 3.9589, 3.9880])


def rows(*losses: Any) -> list[dict[str, Any]]:
    return [{"losses": list(one)} for one in (LOSSES, *losses)]


def test_what_differs_by_rounding_agrees() -> None:
    assert gpu.differ("gpt2/bfloat16", rows(LOSSES + 2e-4 * np.array([1, -1, 1, 0, -1, 1]))) == ""


def test_a_lost_gradient_is_seen() -> None:
    """Without any, the loss stays; without some, it falls more slowly."""
    stays = np.full(6, LOSSES[0])
    slower = LOSSES[0] + 0.9 * (LOSSES - LOSSES[0])
    for losses in (stays, slower):
        assert "move apart" in gpu.differ("gpt2/bfloat16", rows(losses))


def test_a_loss_that_moves_in_steps_is_seen() -> None:
    assert "first losses differ" in gpu.differ("gpt2/bfloat16", rows(np.round(LOSSES * 16) / 16))


def test_what_is_not_finite_is_seen() -> None:
    assert "finite" in gpu.differ("gpt2/bfloat16", rows(np.full(6, np.nan)))


def test_each_rival_can_be_left_out() -> None:
    options = Namespace(torch="python", jax="python", simulated=True, verbose=False, without=[])
    assert [one.name for one in gpu.contenders(options)] == ["Rowlock", *gpu.RIVALS]
    for rival in gpu.RIVALS:
        options.without = [rival]
        assert rival not in [one.name for one in gpu.contenders(options)]
