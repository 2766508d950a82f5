"""Nets with sizes that only a step tells, and with distributions, train as Paddle 3.3.1 trains them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from tests.reference import recall_nets

REFERENCE = json.loads(Path(recall_nets.__file__).with_suffix(".json").read_text())


def on_two(main: Any, loss: Any) -> Any:
    program = paddle.static.CompiledProgram(main)
    return program.with_data_parallel(loss.name, places=paddle.static.cpu_places(2))


@pytest.mark.parametrize("name", recall_nets.NAMES)
def test_nets_train_as_paddles_do(name: str) -> None:
    np.testing.assert_allclose(recall_nets.run(paddle, name), REFERENCE[name], rtol=2e-5)


@pytest.mark.parametrize("name", recall_nets.NAMES)
def test_two_replicas_train_as_one_place(name: str, gang: str) -> None:
    losses = recall_nets.run(paddle, name, on_two)
    np.testing.assert_allclose(losses, REFERENCE[name], rtol=2e-5)
