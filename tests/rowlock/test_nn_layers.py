"""Layers of paddle.nn: built, initialised and run as Paddle does; trained as programs train them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from tests.reference import nn_layers

REFERENCE: dict[str, Any] = json.loads(
    (Path(nn_layers.__file__).parent / "nn_layers.json").read_text()
)
# Draws with another formula's bits differ; what is compared is how a parameter is drawn.


@pytest.mark.parametrize("case", REFERENCE["cases"])
def test_layers_are_paddles(case: str) -> None:
    expected, result = REFERENCE["cases"][case], nn_layers.run(paddle, case)
    assert result["repr"] == expected["repr"]
    assert result["state"] == expected["state"]
    assert result["initial"] == expected["initial"]
    for (shape, got), (their_shape, theirs) in zip(
        result["values"], expected["values"], strict=True
    ):
        assert shape == their_shape or (shape, their_shape) == ([1], [])
        np.testing.assert_allclose(got, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("expression", REFERENCE["mistakes"])
def test_mistakes_raise_what_paddle_raises(expression: str) -> None:
    assert nn_layers.mistake(paddle, expression) == REFERENCE["mistakes"][expression]


def test_constructors_have_paddles_signatures() -> None:
    wrong = []
    for name in paddle.nn.__all__:
        layer = getattr(paddle.nn, name)
        if isinstance(layer, type) and issubclass(layer, paddle.nn.Layer):
            own, theirs = nn_layers.signature(layer), REFERENCE["signatures"][name]
            wrong += [f"{name}: {own} instead of {theirs}"] if own != theirs else []
            assert layer.__doc__, name
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", REFERENCE["trained"])
def test_networks_train_as_paddles_do(name: str) -> None:
    expected, result = REFERENCE["trained"][name], nn_layers.trained(paddle, name)
    np.testing.assert_allclose(result["losses"], expected["losses"], rtol=1e-5)
    assert list(result["sums"]) == list(expected["sums"])
    np.testing.assert_allclose(
        list(result["sums"].values()), list(expected["sums"].values()), rtol=1e-4, atol=1e-4
    )
