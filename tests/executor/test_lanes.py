"""Threads inside a replica never change a bit: every reference model, dealt to lanes at random."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.plan import overlap, run
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.execution import ExecutionStrategy
from tests.conftest import product
from tests.programs import on_places
from tests.reference import models

STEPS = 6
SMALL_BUCKET = 128  # each gradient nearly alone
REDUCE = BuildStrategy.ReduceStrategy.Reduce


def trained(name: str, places: int, threads: int, **build: Any) -> tuple[dict[str, Any], list[int]]:
    """Return every persistable after some steps, and the signals exchanged on each place."""
    model = models.build(name, fluid)
    model.main.random_seed = 7
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    with (
        fluid.scope_guard(fluid.Scope()),
        rowlock.cluster(launcher="threads", bucket_bytes=SMALL_BUCKET),
    ):
        exe.run(model.startup)
        models.set_initial_values(model.main, fluid.global_scope(), place)
        program = on_places(
            model.main,
            places,
            model.loss,
            build=build,
            execution=ExecutionStrategy(num_threads=threads, allow_op_delay=threads > 2),
        )
        for step in range(STEPS):
            exe.run(program, models.feed(name, step), [model.loss])
        signals = program.signals()
        scope = fluid.global_scope()
        names = [v.name for v in model.main.list_vars() if v.persistable]
        return {n: np.array(scope.find_var(n).get_tensor()) for n in names}, signals


def at_random(seed: int) -> Any:
    """Like :func:`run.deal`, but lanes are drawn; collectives keep theirs if they have one."""
    draw = np.random.default_rng(seed)

    def deal(seconds: Any, needs: Any, lanes: int, meetings: Any = ()) -> tuple[list[int], float]:
        chosen = draw.integers(0, lanes, len(seconds)).tolist()
        # The last is asked last, and taken: with a lane for communication if there may be one.
        return [lanes if i in meetings else k for i, k in enumerate(chosen)], -float(bool(meetings))

    return deal


@product(places=[1, 2], name=["mlp", "lenet", "resnet", "attention", "text"])
def test_dealt_at_random(name: str, places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, none = trained(name, places, 1)
    assert set(none) == {0}
    monkeypatch.setattr(overlap, "deal", at_random(5))
    for threads in (0, 2, 3):  # 0: a share of the cores, and a lane for communication
        values, signals = trained(name, places, threads)
        assert min(signals) > 0 or (threads, places, len(os.sched_getaffinity(0))) == (0, 1, 1)
        for variable, array in expected.items():
            np.testing.assert_array_equal(values[variable], array, err_msg=variable)


def test_dealt_at_random_in_reduce_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = trained("mlp", 2, 1, reduce_strategy=REDUCE)
    monkeypatch.setattr(overlap, "deal", at_random(6))
    values, signals = trained("mlp", 2, 3, reduce_strategy=REDUCE, remove_unnecessary_lock=False)
    assert min(signals) > 0
    for variable, array in expected.items():
        np.testing.assert_array_equal(values[variable], array, err_msg=variable)


def test_the_expectation_counts_hand_overs() -> None:
    _, expected = run.deal([1e-3, 1e-3], [set(), {0}], 2)
    assert expected == pytest.approx(2e-3)
