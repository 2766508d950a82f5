"""Ops that draw: their distribution, that they can be replayed, and that a split changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS

capabilities()


def draw(op_type: str, shape: list[int], step: int = 0, seed: int = 3, **attrs: Any) -> np.ndarray:
    dev = Device(seed=seed)
    dev.output = "w"
    dev.clock.step = step
    out = np.full(shape, np.nan, "float32")
    for call in bind(
        op_type, {}, {"Out": [out]}, {**OPS[op_type].attrs, "shape": shape, **attrs}, dev
    ):
        call()
    return out


def test_uniform_fills_its_range() -> None:
    values = draw("uniform_random", [200, 500], min=-2.0, max=3.0)
    assert -2 <= values.min() < -1.99
    assert 2.99 < values.max() < 3
    assert values.mean() == pytest.approx(0.5, abs=0.02)


def test_normal_has_its_moments() -> None:
    values = draw("gaussian_random", [200, 500], mean=1.0, std=2.0)
    assert values.mean() == pytest.approx(1.0, abs=0.03)
    assert values.std() == pytest.approx(2.0, abs=0.03)


def test_truncated_normal_stays_within_two_deviations() -> None:
    values = draw("truncated_gaussian_random", [200, 500], mean=1.0, std=2.0)
    assert values.min() >= -3 and values.max() <= 5
    # sqrt(1 - 4 pdf(2) / (2 cdf(2) - 1))
    assert values.std() == pytest.approx(2 * 0.8796, abs=0.03)


def test_a_step_can_be_replayed_and_others_differ() -> None:
    assert (draw("uniform_random", [50], 4) == draw("uniform_random", [50], 4)).all()
    assert (draw("uniform_random", [50], 4) != draw("uniform_random", [50], 5)).any()
    assert (draw("uniform_random", [50], seed=1) != draw("uniform_random", [50], seed=2)).any()


def dropped(x: np.ndarray, row: int, **attrs: Any) -> tuple[np.ndarray, np.ndarray]:
    dev = Device(seed=3)
    dev.output = "h"
    dev.clock.row = row
    out, mask = np.empty_like(x), np.empty(x.shape, "uint8")
    settings = {**OPS["dropout"].attrs, **attrs}
    for call in bind("dropout", {"X": [x]}, {"Out": [out], "Mask": [mask]}, settings, dev):
        call()
    return out, mask


def test_dropout_does_not_depend_on_how_the_batch_is_split() -> None:
    x = np.ones((10, 7), "float32")
    whole, _ = dropped(x, 0)
    first, _ = dropped(x[:4], 0)
    second, _ = dropped(x[4:], 4)
    np.testing.assert_array_equal(whole, np.concatenate([first, second]))


@pytest.mark.parametrize(
    ("kind", "value"), [("downgrade_in_infer", 1.0), ("upscale_in_train", 1 / 0.7)]
)
def test_dropout_keeps_the_right_share(kind: str, value: float) -> None:
    out, mask = dropped(
        np.ones((200, 200), "float32"), 0, dropout_prob=0.3, dropout_implementation=kind
    )
    assert mask.mean() == pytest.approx(0.7, abs=0.02)
    assert set(np.unique(out)) == {np.float32(0), np.float32(value)}
    test, _ = dropped(
        np.ones((2, 2), "float32"), 0, dropout_prob=0.3, dropout_implementation=kind, is_test=True
    )
    assert test[0, 0] == pytest.approx(0.7 if kind == "downgrade_in_infer" else 1.0)
