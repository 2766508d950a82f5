"""Asynchronous modes learn, tell how stale gradients were, and keep to a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from rowlock.graph.transpiler.exchange import exchange_of
from rowlock.strategies.errors import InvalidValue

from .nets import ROWS, SCHEDULES, Layers, batches, plain_sgd, regression, shared_out, table_alone
from .roles import JOIN_S, Feed, Roles, Trainer, alone, threads, together, transpiled


def late_split(config: Any) -> None:
    config.runtime_split_send_recv = True


def compensated(config: Any) -> None:
    config.enable_dc_asgd = True


def half(config: Any) -> None:
    config.half_async = True


def geo(config: Any) -> None:
    config.geo_sgd_mode, config.geo_sgd_need_push_nums = True, 5


MODES: dict[str, Callable[[Any], None] | None] = {
    "async": None, "late split": late_split, "dc-asgd": compensated, "half-async": half, "geo": geo
}  # fmt: skip


def learned(roles: Roles) -> None:
    """Hold last losses against the first of the trainer that began first: another may begin when it is done."""
    assert not roles.errors
    before = max(np.mean(losses[:5]) for losses in roles.losses)
    for losses in roles.losses:
        assert np.mean(losses[-5:]) < 0.4 * before


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_learns(mode: str, sparse: bool) -> None:
    if mode == "late split" and sparse:
        pytest.skip("a table is cut where it is looked up")
    net = partial(regression, plain_sgd, sparse)
    with threads():
        roles = together(net, shared_out(batches(60, sparse)), sync=False, config=MODES[mode])
    learned(roles)
    trainers = roles.reports[0]["trainers"]
    assert trainers[0]["steps"] == (12 if mode == "geo" else 60)
    staleness = trainers[0]["staleness"]
    assert 0 <= staleness["mean"] <= staleness["max"] <= 60


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "late split"])
def test_a_trainer_of_tables_alone_is_itself(mode: str) -> None:
    """No operator behind its sends, which are written without a number, tells which trainer it is."""
    net = partial(table_alone, plain_sgd)
    _, main, startup, _ = transpiled(net, 1, ["a:1", "b:1"], sync=False, config=MODES[mode])
    assert exchange_of(startup).trainer == exchange_of(main).trainer == 1


def test_a_schedule_counts_the_steps_of_all_trainers() -> None:
    def at_ten() -> Any:
        return fluid.optimizer.SGD(Layers.piecewise_decay([10], [0.005, 0.0]))

    feeds = batches(10)
    with threads():
        roles = together(partial(regression, at_ten), [feeds, feeds], sync=False)
    assert not roles.errors
    assert roles.left["learning_rate"] == 0.0
    assert roles.left["@LR_DECAY_COUNTER@.trainer_0"] == 10


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        *(("async", name) for name in SCHEDULES),
        *((mode, "noam") for mode in ("late split", "half-async", "dc-asgd")),
    ],
)
def test_a_schedule_of_one_trainer_is_that_of_one_process(mode: str, name: str) -> None:
    """From the first step on, whose gradient comes before the trainer has told of any step."""
    net = partial(regression, lambda: fluid.optimizer.SGD(SCHEDULES[name]()))
    feeds = batches(12)
    with threads():
        roles = together(net, [feeds], sync=False, config=MODES[mode])
    assert not roles.errors
    losses, _ = alone(net, feeds, roles.initial)
    np.testing.assert_allclose(roles.losses[0], losses, 1e-5, 1e-6)


@pytest.mark.parametrize("bound", [1, 3])
def test_staleness_keeps_to_its_bound(bound: int) -> None:
    feeds = batches(40)
    with threads(staleness_bound=bound):
        roles = together(partial(regression, plain_sgd), shared_out(feeds), sync=False)
    learned(roles)
    for report in roles.reports:
        assert all(one["staleness"]["max"] <= bound for one in report["trainers"].values())


def test_a_bound_that_nobody_can_keep_is_refused() -> None:
    with threads(staleness_bound=0, start_deadline_s=0.2):
        roles = together(partial(regression, plain_sgd), shared_out(batches(1)), sync=False)
    refused = [e for name, e in roles.errors.items() if name.startswith("server")]
    assert len(refused) == 2
    assert all(isinstance(error, InvalidValue) for error in refused)
    assert "staleness_bound is 0" in str(refused[0])


def test_geo_sgd_brings_rows_that_others_changed() -> None:
    """Also those that a trainer never looks up: half of the change, for there are two."""
    begun, pushed = threading.Barrier(2), threading.Event()
    tables: dict[str, np.ndarray] = {}

    def often(config: Any) -> None:
        config.geo_sgd_mode, config.geo_sgd_need_push_nums = True, 1

    def compiled(main: Any, loss: Any) -> Any:
        begun.wait(JOIN_S)  # both have received the first table
        return main

    def step(trainer: Trainer, feed: Feed) -> float:
        if trainer.number:
            assert pushed.wait(JOIN_S)
        table = trainer.scope.find_tensor("table")
        tables[f"before {trainer.number}"] = table.numpy()
        loss = trainer.step(feed)
        tables[f"after {trainer.number}"] = table.numpy()
        if not trainer.number:
            pushed.set()
        return loss

    feeds = batches(1, sparse=True)
    feeds += [{**feeds[0], "ids": feeds[0]["ids"].copy()}]
    feeds[0]["ids"] = feeds[0]["ids"] % (ROWS // 2)  # of the first server, where there are two
    feeds[1]["ids"] = feeds[0]["ids"] + ROWS // 2
    how = {"sync": False, "config": often, "compiled": compiled, "step": step}
    with threads():
        roles = together(partial(table_alone, plain_sgd), [feeds[:1], feeds[1:]], **how)
    assert not roles.errors
    np.testing.assert_array_equal(tables["before 0"], tables["before 1"])
    change = tables["after 0"] - tables["before 0"]
    assert set(np.flatnonzero(change.any(1))) == set(feeds[0]["ids"].ravel())
    received = (tables["after 1"] - tables["before 1"])[: ROWS // 2]
    np.testing.assert_allclose(received, change[: ROWS // 2] / 2, 1e-4, 1e-7)


def test_geo_sgd_ends_near_the_mean_of_what_trainers_found() -> None:
    """With steps in between, trainers differ; what they push adds up at the servers."""
    with threads():
        roles = together(
            partial(regression, plain_sgd), shared_out(batches(10)), sync=False, config=geo
        )
    learned_parts = np.concatenate([roles.left["fc_0.w_0.block0"], roles.left["fc_0.w_0.block1"]])
    assert not np.array_equal(learned_parts, roles.initial["fc_0.w_0"])
    own = [trainer["fc_0.w_0"] for trainer in roles.parameters]
    assert (
        np.abs(learned_parts - np.mean(own, 0)).max()
        < np.abs(own[0] - roles.initial["fc_0.w_0"]).max()
    )
