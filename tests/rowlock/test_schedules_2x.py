"""Schedules of ``paddle.optimizer.lr`` give the rates that Paddle 3.3.1 gives, and refuse what it refuses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock.optimizer import lr
from rowlock.strategies.errors import RowlockError
from tests.reference import schedules_2x as cases

PADDLE = json.loads((Path(cases.__file__).with_suffix(".json")).read_text())


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_rates_as_in_paddle(name: str) -> None:
    values, expected = cases.sequence(lr, cases.SCHEDULES[name]), PADDLE["rates"][name]
    for part, rates in expected.items():
        if rates is None:
            assert values[part] is None
        else:
            np.testing.assert_allclose(values[part], rates, 1e-6, 1e-9, err_msg=part)


@pytest.mark.parametrize("call", cases.CALLS)
def test_errors_as_in_paddle(call: str) -> None:
    kinds = cases.refusal(lr, call)
    assert kinds is not None and PADDLE["errors"][call] in kinds, kinds
    with pytest.raises(RowlockError, match=r"\.$"):
        eval(call, {**vars(lr), "numpy": np})


def test_every_schedule_has_a_case() -> None:
    called = {call.split("(")[0] for call in cases.CALLS}
    used = {type(build(lr)).__name__ for build in cases.SCHEDULES.values()}
    assert set(lr.__all__) - {"LRScheduler"} == used
    assert set(lr.__all__) - called == {"InverseTimeDecay"}  # takes any gamma


def test_a_schedule_says_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = lr.InverseTimeDecay(0.5, 1.0, verbose=True)
    schedule.step()
    schedule.step(4)
    assert capsys.readouterr().out.splitlines() == [
        "Epoch 0: InverseTimeDecay set learning rate to 0.5.",
        "Epoch 1: InverseTimeDecay set learning rate to 0.25.",
        "Epoch 4: InverseTimeDecay set learning rate to 0.1.",
    ]


def test_states_have_paddles_keys() -> None:
    warm = lr.LinearWarmup(lr.StepDecay(0.1, 2), 3, 0.0, 0.1)
    state = {"last_epoch": 0, "last_lr": 0.0}
    assert warm.state_dict() == {**state, "LinearWarmup_LR": {"last_epoch": 0, "last_lr": 0.1}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warm.set_dict(warm.state_dict())
    with pytest.raises(RuntimeError, match="LinearWarmup_LR"):
        warm.set_state_dict(state)
    with pytest.warns(UserWarning, match=r"StepDecay does not use \['gamma'\]"):
        lr.StepDecay(0.1, 2).set_state_dict({**state, "gamma": 2})
    plateau = lr.ReduceOnPlateau(0.1)
    plateau.step(np.array([2.5], "float32"))
    assert json.loads(json.dumps(plateau.state_dict()))["best"] == 2.5


class Halving(lr.LRScheduler):
    """A user's own schedule, with a state of its own."""

    def __init__(self, learning_rate: float) -> None:
        self.count = 0
        super().__init__(learning_rate)

    def state_keys(self) -> None:
        self.keys = ["last_epoch", "last_lr", "count"]

    def get_lr(self) -> float:
        self.count += 1
        return self.base_lr * 0.5**self.last_epoch


@pytest.mark.parametrize(
    "build", [Halving, lambda rate: lr.ReduceOnPlateau(rate, patience=0, factor=0.5)]
)
def test_the_executor_writes_the_rate_in_force(build: Any) -> None:
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [2, 1])
        loss = paddle.mean(paddle.static.nn.fc(x, 1))
        schedule = build(0.5)
        optimizer = paddle.optimizer.SGD(schedule)
        optimizer.minimize(loss)
    exe, rates = paddle.static.Executor(), []
    feed = {"x": np.ones((2, 1), "float32")}
    with paddle.static.scope_guard(paddle.static.Scope()):
        exe.run(startup)
        for _ in range(3):
            (rate,) = exe.run(main, feed, [optimizer._global_learning_rate()])
            rates.append(float(rate[0]))
            schedule.step(*[1.0] if isinstance(schedule, lr.ReduceOnPlateau) else [])
    if isinstance(schedule, Halving):  # asking for the rate does not compute it again
        assert rates == [0.5, 0.25, 0.125]
        assert schedule.state_dict()["count"] == 4
    else:
        assert rates == [0.5, 0.5, 0.25]


def test_a_product_is_carried_on_and_begun_anew() -> None:
    calls: list[int] = []

    def halve(epoch: int) -> float:
        calls.append(epoch)
        return 0.5

    schedule = lr.MultiplicativeDecay(1.0, halve)
    for _ in range(50):
        schedule.step()
    assert schedule() == 0.5**50 and calls == list(range(1, 51))
    schedule.step(3)
    schedule.base_lr = 2.0
    schedule.step(2)
    assert schedule() == 0.5
