"""Fleets with parameter servers, on threads: two servers and two workers, each with a fleet of its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.saving.variables import read_values
from rowlock.fluid.incubate.fleet.base import role_maker
from rowlock.fluid.incubate.fleet.base.role_maker import Role
from rowlock.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
    DistributedTranspiler,
    GeoStrategy,
    StrategyFactory,
)
from rowlock.fluid.incubate.fleet.utils.fleet_util import FleetUtil
from rowlock.strategies.errors import (
    EnforceNotMet,
    InvalidState,
    InvalidType,
    InvalidValue,
    MissingFile,
    TrainerLost,
    Unsupported,
)
from tests.programs import own_programs

STEPS, ROWS = 5, 8
WITHIN_S = 60.0
_ports = itertools.count(30000)


@pytest.fixture(autouse=True)
def on_threads() -> Iterator[None]:
    with rowlock.cluster(launcher="threads", start_deadline_s=30, step_deadline_s=30):
        yield


def endpoints() -> list[str]:
    return [f"127.0.0.1:{next(_ports)}" for _ in range(2)]


def net(table: bool = False) -> Any:
    x = fluid.data("x", [None, 4])
    y = fluid.data("y", [None, 1])
    start = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
    guess = fluid.layers.fc(x, 1, param_attr=start, bias_attr=fluid.ParamAttr(name="b"))
    if table:
        ids = fluid.data("ids", [None, 1], "int64")
        start = fluid.ParamAttr(name="t", initializer=fluid.initializer.Constant(0.25))
        guess = guess + fluid.embedding(ids, [6, 1], is_sparse=True, param_attr=start)[:, 0]
    return fluid.layers.mean(fluid.layers.square_error_cost(guess, y))


def fleet_of(role: int, number: int, servers: list[str], workers: int = 2) -> DistributedTranspiler:
    fleet = DistributedTranspiler()
    fleet.init(role_maker.UserDefinedRoleMaker(number, role, workers, servers))
    return fleet


def minimized(fleet: DistributedTranspiler, strategy: Any, table: bool = False) -> tuple[Any, Any]:
    with own_programs():
        loss = net(table)
        fleet.distributed_optimizer(fluid.optimizer.Adam(0.05), strategy).minimize(loss)
    return fleet, loss


def feeds(table: bool = False) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(STEPS):
        x = rng.standard_normal((ROWS, 4)).astype("float32")
        batches.append({"x": x, "y": x.sum(1, keepdims=True)})
        if table:
            batches[-1]["ids"] = rng.integers(0, 6, (ROWS, 1))
    return batches


def alone() -> list[float]:
    with own_programs() as (main, startup):
        loss = net()
        fluid.optimizer.Adam(0.05).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    return [float(exe.run(main, feed, [loss], scope=scope)[0][0]) for feed in feeds()]


def run(calls: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def attempt(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def serve(fleet: Any, folder: str | None = None) -> None:
    fleet.init_server(folder)
    fleet.run_server()


def train(
    fleet: Any, loss: Any, losses: list[float], end: Callable[[Any, Any], None], table: bool
) -> None:
    exe, scope, number = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), fleet.worker_index()
    fleet.init_worker()
    exe.run(fleet.startup_program, scope=scope)
    part = slice(number * ROWS // 2, (number + 1) * ROWS // 2)
    for feed in feeds(table):
        mine = {name: value[part] for name, value in feed.items()}
        losses.append(float(exe.run(fleet.main_program, mine, [loss], scope=scope)[0][0]))
    fleet.barrier_worker()
    try:
        with fluid.scope_guard(scope) if number == 0 else nullcontext():
            end(fleet, exe)
    finally:
        fleet.stop_worker()


def job(
    strategy: Callable[[], Any], end: Callable[[Any, Any], None] = lambda fleet, exe: None,
    folder: str | None = None, table: bool = False,
) -> list[list[float]]:  # fmt: skip
    """Return the losses of two workers."""
    where = endpoints()
    servers = [minimized(fleet_of(Role.SERVER, i, where), strategy(), table)[0] for i in range(2)]
    workers = [minimized(fleet_of(Role.WORKER, i, where), strategy(), table) for i in range(2)]
    losses: list[list[float]] = [[], []]
    run(
        [lambda s=s: serve(s, folder) for s in servers]  # type: ignore[misc]
        + [lambda i=i: train(*workers[i], losses[i], end, table) for i in range(2)]  # type: ignore[misc]
    )
    return losses


@pytest.mark.parametrize("default", [False, True])
def test_sync_training_is_that_of_one_machine(default: bool) -> None:
    losses = job(lambda: None if default else StrategyFactory.create_sync_strategy())
    np.testing.assert_allclose(np.mean(losses, 0), alone(), rtol=1e-5)


@pytest.mark.parametrize("mode", ["async", "half_async", "geo"])
def test_other_modes_learn(mode: str) -> None:
    """A trainer may begin when others are done: losses are held against those of the initial parameters."""
    make = getattr(StrategyFactory, f"create_{mode}_strategy")
    losses = job(lambda: make(2) if mode == "geo" else make())
    last = feeds()[-1]
    errors = (0.5 * last["x"].sum(1) - last["y"][:, 0]) ** 2
    assert np.isfinite(losses).all()
    for trainer, rows in zip(losses, np.split(errors, 2), strict=True):
        assert trainer[-1] < 0.7 * rows.mean()


def test_what_was_saved_is_served_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "model")
    values: list[dict[str, Any]] = []

    def save(fleet: Any, exe: Any) -> None:
        if fleet.is_first_worker():
            fleet.save_persistables(exe, folder)

    job(StrategyFactory.create_sync_strategy, save, table=True)
    for name, shape in {"b": (1,), "t": (6, 1), "w": (4, 1)}.items():
        values.append({name: read_values(f"{folder}/{name}", [name])[name]})
        assert values[-1][name].shape == shape
    again = job(StrategyFactory.create_sync_strategy, save, folder, table=True)
    assert np.mean(again, 0)[0] == pytest.approx(_loss_of(values), rel=1e-5)
    with pytest.raises(MissingFile, match="there is no folder"):
        serve(minimized(fleet_of(Role.SERVER, 0, endpoints()), None)[0], str(tmp_path / "none"))


def _loss_of(values: list[dict[str, Any]]) -> float:
    w, b, t = (next(v[name] for v in values if name in v) for name in ("w", "b", "t"))
    feed = feeds(table=True)[0]
    guess = feed["x"] @ w + b + t[feed["ids"][:, 0]]
    return float(((guess - feed["y"]) ** 2).mean())


def test_workers_shuffle_and_count_together(fresh_programs: None, tmp_path: Path) -> None:
    where = endpoints()
    before: list[list[int]] = [[], []]
    after: list[list[int]] = [[], []]
    sizes: list[int] = []
    ids = fluid.data("ids", [None, 1], "int64", lod_level=1)

    def work(number: int) -> None:
        fleet = fleet_of(Role.WORKER, number, where)
        file = tmp_path / f"{number}.txt"
        count = 3 + 4 * number
        file.write_text("".join(f"2 {10 * number + i} {i}\n" for i in range(count)))
        dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
        dataset.set_use_var([ids])
        dataset.set_filelist([str(file)])
        dataset.load_into_memory()
        before[number] = [int(np.asarray(b["ids"])[0, 0]) for b in dataset.batches()]
        dataset.global_shuffle(fleet)
        after[number] = [int(np.asarray(b["ids"])[0, 0]) for b in dataset.batches()]
        sizes.append(dataset.get_memory_data_size(fleet))
        total = np.zeros(2, "int64")
        fleet.all_reduce_worker(np.array([number, 1]), total)
        assert total.tolist() == [1, 2]

    run([lambda: work(0), lambda: work(1)])
    assert sorted(after[0] + after[1]) == sorted(before[0] + before[1])
    assert [len(part) for part in after] == [5, 5] and sizes == [10, 10]


def test_a_worker_that_does_not_come_is_named() -> None:
    fleet = fleet_of(Role.WORKER, 0, endpoints())
    with (
        rowlock.cluster(launcher="threads", start_deadline_s=0.2),
        pytest.raises(TrainerLost, match=r"trainer 1 .* did not come"),
    ):
        fleet.barrier_worker()


def test_strategies_say_what_paddles_say(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("half_async", "completely_not_async", "geo_sgd_mode")
    for mode, expected in {
        "sync": (True, True, False),
        "async": (False, False, False),
        "half_async": (True, False, False),
        "geo": (False, False, True),
    }.items():
        strategy = getattr(StrategyFactory, f"create_{mode}_strategy")()
        config = strategy.get_program_config()
        assert tuple(getattr(config, flag) for flag in flags) == expected
        assert not config.sync_mode and config.runtime_split_send_recv
    strategy = GeoStrategy(7)
    assert strategy.get_program_config().geo_sgd_need_push_nums == 7
    strategy.set_program_config({"min_block_size": 10000})
    assert strategy.get_program_config().min_block_size == 10000
    strategy.set_execute_strategy({"num_threads": 3})
    assert strategy.get_execute_strategy().num_threads == 3
    strategy.set_trainer_runtime_config({"communicator_thread_pool_size": 3})
    assert (
        strategy.get_trainer_runtime_config().get_communicator_flags()[
            "communicator_thread_pool_size"
        ]
        == "3"
    )
    with pytest.raises(InvalidValue, match="Did you mean 'min_block_size'"):
        strategy.set_program_config({"min_blok_size": 1})
    with pytest.raises(InvalidType):
        strategy.set_build_strategy(3)
    with pytest.raises(InvalidValue, match="above 0"):
        GeoStrategy(0)
    monkeypatch.setenv("CPU_NUM", "two")
    with pytest.raises(InvalidValue, match="CPU_NUM must be an integer, got 'two'"):
        StrategyFactory.create_async_strategy()


def test_a_worker_does_not_serve() -> None:
    fleet = fleet_of(Role.WORKER, 0, endpoints())
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    for call in (fleet.init_server, fleet.run_server):
        with pytest.raises(InvalidState, match=r"was a worker.*TRAINER 0.*fleet\.is_server"):
            call()


def test_calls_at_the_wrong_time() -> None:
    fleet = DistributedTranspiler()
    with pytest.raises(InvalidValue, match=r"call fleet\.init"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1))
    fleet = fleet_of(Role.WORKER, 0, endpoints())
    for call in (fleet.init_worker, fleet.init_server, fleet.run_server, fleet.stop_worker):
        with pytest.raises(InvalidValue, match="call minimize"):
            call()
    with pytest.raises(InvalidValue, match="takes an optimizer"):
        fleet.distributed_optimizer(3)
    with pytest.raises(InvalidType, match="StrategyFactory"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), 3)
    with pytest.raises(InvalidType, match="one loss"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize([1])
    with pytest.raises(InvalidType, match="takes an Executor"):
        fleet.save_persistables(3, "model")
    with pytest.raises(Unsupported):
        fleet.shrink_sparse_table()
    with pytest.raises(Unsupported, match="transpiler"):
        FleetUtil()
    with pytest.raises(EnforceNotMet):
        FleetUtil("servers")
