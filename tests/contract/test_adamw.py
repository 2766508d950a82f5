"""AdamW trains as Paddle 3.3.1 does, and refuses what is not built."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.optimizer import AdamW
from rowlock.strategies.errors import InvalidArgument, InvalidType, InvalidValue
from tests.conftest import product
from tests.ops.reference.registry import REFERENCE
from tests.programs import executor_after, on_places, own_programs

PADDLE = json.loads((Path(__file__).parents[1] / "reference" / "adamw.json").read_text())
OPTIMIZERS: Mapping[str, Callable[[], AdamW]] = {
    "plain": lambda: AdamW(0.1),
    "decay": lambda: AdamW(0.1, weight_decay=0.3),
    "epsilon": lambda: AdamW(0.1, epsilon=0.1, beta1=0.8, beta2=0.99),
    "some_decay": lambda: AdamW(
        0.1, weight_decay=0.3, apply_decay_param_fun=lambda name: name in ("w1", "w2")
    ),
    "clip": lambda: AdamW(
        0.1,
        weight_decay=0.3,
        epsilon=0.01,
        grad_clip=fluid.clip.GradientClipByGlobalNorm(0.05),
    ),
    "rates": lambda: AdamW(0.1, weight_decay=0.3),
    "regularizer": lambda: AdamW(0.1, weight_decay=0.3),
}


def _fc(x: Any, size: int, names: tuple[str, str], case: str) -> Any:
    weight, bias = (
        fluid.ParamAttr(
            name=name,
            initializer=fluid.initializer.NumpyArrayInitializer(
                np.array(PADDLE["initial"][name], "float32")
            ),
            learning_rate=0.5 if (case, name) == ("rates", "w1") else 1.0,
            regularizer=fluid.regularizer.L2Decay(0.5)
            if (case, name) == ("regularizer", "w1")
            else None,
        )
        for name in names
    )
    return fluid.layers.fc(x, size, param_attr=weight, bias_attr=bias)


def trained(optimizer: Callable[[], AdamW], case: str, places: int) -> list[dict[str, Any]]:
    """Parameters after each step of the net of ``generate_adamw.py``."""
    scope = fluid.Scope()
    with own_programs() as (main, startup):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        hidden = fluid.layers.tanh(_fc(x, 3, ("w1", "b1"), case))
        cost = fluid.layers.square_error_cost(_fc(hidden, 1, ("w2", "b2"), case), y)
        loss = fluid.layers.mean(cost)
        optimizer().minimize(loss)
    exe = executor_after(startup, scope)
    program = on_places(main, places, loss)
    feed = {name: np.array(rows, "float32") for name, rows in PADDLE["feed"].items()}
    steps = []
    for _ in range(4):
        exe.run(program, feed, [loss], scope=scope)
        steps.append(
            {name: np.array(scope.find_var(name).get_tensor()) for name in PADDLE["initial"]}
        )
    return steps


@product(places=[1, 2], case=sorted(OPTIMIZERS))
def test_steps_are_those_of_paddle(case: str, places: int, threads: None) -> None:
    assert sorted(OPTIMIZERS) == sorted(PADDLE["cases"])
    steps = trained(OPTIMIZERS[case], case, places)
    for step, expected in zip(steps, PADDLE["cases"][case], strict=True):
        for name, values in expected.items():
            np.testing.assert_allclose(step[name], values, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("update", PADDLE["updates"])
def test_the_reference_is_paddles(update: dict[str, Any]) -> None:
    inputs = {slot: np.array(values) for slot, values in update["inputs"].items()}
    results = REFERENCE["adamw"](inputs, update["attrs"])
    for slot, values in update["outputs"].items():
        np.testing.assert_allclose(results[slot], values, rtol=1e-6)


def test_a_ratio_scales_the_whole_step(threads: None) -> None:
    """As Paddle does on GPU; on CPU it refuses ``lr_ratio``."""
    half = trained(lambda: AdamW(0.1, lr_ratio=lambda parameter: 0.5), "", 1)
    slow = trained(lambda: AdamW(0.05), "", 1)
    one = trained(lambda: AdamW(0.1, lr_ratio=lambda p: 0.0 if p.name == "w1" else 1.0), "", 1)
    for name in PADDLE["initial"]:
        np.testing.assert_allclose(half[-1][name], slow[-1][name], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(one[-1]["w1"], np.array(PADDLE["initial"]["w1"], "float32"))


def test_what_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"beta1 must be in \[0, 1\), got 1.5"):
        AdamW(beta1=1.5)
    with pytest.raises(InvalidValue, match="epsilon must not be below 0"):
        AdamW(epsilon=-1.0)
    with pytest.raises(InvalidType, match="weight_decay must be a number, got None"):
        AdamW(weight_decay=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="lazy_mode=True is not built"):
        AdamW(lazy_mode=True)
    with pytest.raises(InvalidArgument, match="groups of parameters are not built"):
        AdamW(parameters=[{"params": []}])
