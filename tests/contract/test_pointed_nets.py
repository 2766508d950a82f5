"""A pointer network and a language model of public programs train as in Paddle 1.8.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from tests.reference import pointed_nets

REFERENCE = json.loads(Path(pointed_nets.__file__).with_suffix(".json").read_text())


def by_messages(main: Any, loss: Any) -> Any:
    program = fluid.CompiledProgram(main)
    return program.with_data_parallel(loss.name, places=fluid.cpu_places(1))


@pytest.mark.parametrize("name", pointed_nets.NETS)
def test_nets_train_as_paddles_do(name: str) -> None:
    np.testing.assert_allclose(pointed_nets.run(fluid, name), REFERENCE[name], rtol=2e-5)


def test_a_compiled_model_carries_its_state(threads: None) -> None:
    losses = pointed_nets.run(fluid, "language_model", by_messages)
    np.testing.assert_allclose(losses, REFERENCE["language_model"], rtol=2e-5)
