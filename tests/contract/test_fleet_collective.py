"""Collective fleets: one worker on several places, two workers on threads, checkpoints, and switches."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.fluid.incubate.fleet.base import role_maker
from rowlock.fluid.incubate.fleet.collective import (
    Collective,
    DistributedStrategy,
    TrainStatus,
)
from rowlock.strategies.errors import (
    DamagedFile,
    EnforceNotMet,
    InvalidArgument,
    InvalidState,
    InvalidType,
    InvalidValue,
    MissingFile,
    Unsupported,
)
from tests.programs import executor_after, own_programs

STEPS, ROWS = 4, 8
_ports = itertools.count(40000)


@pytest.fixture(autouse=True)
def on_threads() -> Iterator[None]:
    with rowlock.cluster(launcher="threads", start_deadline_s=30, step_deadline_s=30):
        yield


def fleet_of(number: int, endpoints: list[str]) -> Collective:
    fleet = Collective()
    fleet.init(role_maker.UserDefinedCollectiveRoleMaker(number, endpoints))
    return fleet


def built(
    fleet: Collective, strategy: Any = None, optimizer: Any = None, width: int = 3
) -> tuple[Any, Any]:
    """Return the loss, and the hidden variable that recomputation keeps."""
    with own_programs(5):
        x = fluid.data("x", [None, 4])
        y = fluid.data("y", [None, 1])
        hidden = fluid.layers.fc(x, width, act="tanh", param_attr="w")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        if strategy is not None and strategy.forward_recompute:
            strategy.recompute_checkpoints = [hidden]
        chosen = fluid.optimizer.SGD(0.1) if optimizer is None else optimizer
        fleet.distributed_optimizer(chosen, strategy).minimize(loss)
    return loss, hidden


def feeds() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((ROWS, 4)).astype("float32") for _ in range(STEPS)]
    return [{"x": x, "y": x.sum(1, keepdims=True)} for x in batches]


def trained(fleet: Collective, loss: Any, scope: Any, part: slice) -> list[float]:
    exe = executor_after(fleet.startup_program, scope)
    mine = [{name: value[part] for name, value in feed.items()} for feed in feeds()]
    return [float(np.mean(exe.run(fleet.main_program, f, [loss], scope=scope)[0])) for f in mine]


def alone(strategy: Any = None) -> list[float]:
    fleet = fleet_of(0, ["127.0.0.1:1"])
    return trained(fleet, built(fleet, strategy)[0], fluid.Scope(), slice(None))


def switched(**switches: Any) -> Any:
    strategy = DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    return strategy


SWITCHES = [
    {},
    {"use_local_sgd": True},
    {"mode": "collective", "collective_mode": "grad_allreduce"},
    {"forward_recompute": True},
]


def together(build: Callable[[Collective], Any]) -> np.ndarray:
    """Return the losses of two workers, each of which feeds half of the rows: their means, by step."""
    endpoints = [f"127.0.0.1:{next(_ports)}" for _ in range(2)]
    fleets = [fleet_of(i, endpoints) for i in range(2)]
    losses = [build(fleet) for fleet in fleets]

    def work(number: int) -> list[float]:
        part = slice(number * ROWS // 2, (number + 1) * ROWS // 2)
        return trained(fleets[number], losses[number], fluid.Scope(), part)

    with ThreadPoolExecutor(2) as pool:
        return np.mean(list(pool.map(work, range(2), timeout=100)), 0)


@pytest.mark.cpu
@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: ",".join(s) or "nccl2")
def test_two_workers_follow_one(switches: dict[str, Any]) -> None:
    losses = together(lambda fleet: built(fleet, switched(**switches))[0])
    np.testing.assert_allclose(losses, alone(), rtol=1e-5)


@pytest.mark.cpu
@pytest.mark.parametrize("mode", ["nccl2", "collective"])
def test_two_workers_compress_gradients_as_two_places_do(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    switches = {"mode": mode, "collective_mode": "grad_allreduce" if mode == "collective" else None}

    def build(fleet: Collective, **switches: Any) -> Any:
        dgc = fluid.optimizer.DGCMomentumOptimizer(0.01, 0.9, 1, 2, sparsity=[0.5, 0.99])
        return built(fleet, switched(**switches), dgc, width=4096)[0]

    losses = together(lambda fleet: build(fleet, **switches))
    monkeypatch.setenv("CPU_NUM", "2")
    fleet = fleet_of(0, ["127.0.0.1:1"])
    alone = trained(fleet, build(fleet), fluid.Scope(), slice(None))
    np.testing.assert_allclose(losses, alone, rtol=1e-5)


@pytest.mark.cpu
def test_one_worker_uses_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    fleet = fleet_of(0, ["127.0.0.1:1"])
    losses = trained(fleet, built(fleet)[0], fluid.Scope(), slice(None))
    monkeypatch.setenv("CPU_NUM", "1")
    assert repr(fleet.main_program).startswith("<CompiledProgram: data parallel on 2 places")
    np.testing.assert_allclose(losses, alone(), rtol=1e-5)
    assert fleet._origin_program is not None and fleet.startup_program is not None


def test_mixed_precision_scales_the_loss() -> None:
    fleet = fleet_of(0, ["127.0.0.1:1"])
    built(fleet, switched(use_amp=True, amp_loss_scaling=8.0))
    assert any(op.type == "cast" for op in fleet.main_program.program.global_block().ops)
    ops = fleet.startup_program.global_block().ops
    scales = [op for op in ops if op.type == "fill_constant" and op.attr("value") == 8.0]
    assert len(scales) == 1


def test_checkpoints(tmp_path: Path) -> None:
    fleet = fleet_of(0, ["127.0.0.1:1"])
    loss, _ = built(fleet)
    scope, folder = fluid.Scope(), str(tmp_path / "points")
    exe = fluid.Executor(fluid.CPUPlace())
    assert fleet.load_check_point(exe, folder, 0) is None
    with pytest.raises(MissingFile, match="has no folder"):
        fleet.load_check_point(exe, folder, 0, ignore_empty=False)
    with fluid.scope_guard(scope):
        trained(fleet, loss, scope, slice(None))
        values = np.array(scope.find_var("w").get_tensor())
        for epoch in range(3):
            fleet.save_check_point(exe, folder, TrainStatus(epoch))
        assert len(list(Path(folder).iterdir())) == 3
        scope.find_var("w").get_tensor().set(np.zeros_like(values))
        status = fleet.load_check_point(exe, folder, 0)
        assert status == TrainStatus(2) and status is not None and status.next() == 3
        np.testing.assert_array_equal(np.array(scope.find_var("w").get_tensor()), values)
        fleet.save_check_point(exe, folder, TrainStatus(3), remain_all_checkpoint=False)
        (last,) = Path(folder).iterdir()
        (last / "fleet_train_status").write_text(json.dumps({"epoch": 3}))
        with pytest.raises(DamagedFile, match="is no status"):
            fleet.load_check_point(exe, folder, 0)
        with pytest.raises(InvalidType, match="TrainStatus"):
            fleet.save_check_point(exe, folder, 3)  # type: ignore[arg-type]
        with pytest.raises(Unsupported, match="LocalFS"):
            fleet.save_check_point(exe, folder, TrainStatus(3), fs="hdfs")  # type: ignore[arg-type]


def test_a_model_is_saved_as_it_was(tmp_path: Path) -> None:
    fleet = fleet_of(0, ["127.0.0.1:1"])
    loss, hidden = built(fleet)
    scope = fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope):
        trained(fleet, loss, scope, slice(None))
        fleet.save_inference_model(exe, str(tmp_path / "model"), ["x"], [hidden])
        program, names, targets = fluid.io.load_inference_model(str(tmp_path / "model"), exe)
        feed = feeds()[0]
        (ran,) = exe.run(program, {names[0]: feed["x"]}, targets)
        assert ran.shape == (ROWS, 3)
        fleet.save_persistables(exe, str(tmp_path / "all"))
        assert (tmp_path / "all" / "w").exists()
        with pytest.raises(InvalidArgument, match=r"compiled\.program"):
            fleet.save_persistables(exe, str(tmp_path), fleet.main_program)
        with pytest.raises(InvalidArgument, match="takes an Executor"):
            fleet.save_persistables(3, str(tmp_path))


def refused(strategy: Any, optimizer: Any = None) -> None:
    built(fleet_of(0, ["127.0.0.1:1"]), strategy, optimizer)


def test_switches_that_do_not_go_together(fresh_programs: None) -> None:
    sgd = fluid.optimizer.SGD(0.1)
    decorated = fluid.contrib.mixed_precision.decorate(sgd)
    with pytest.raises(InvalidArgument, match="needs mode='collective'"):
        refused(switched(collective_mode="local_sgd"))
    with pytest.raises(Unsupported, match="use_dist_fc"):
        refused(switched(use_dist_fc=True))
    with pytest.raises(InvalidValue, match="does not go with"):
        refused(switched(use_amp=True), decorated)
    with pytest.raises(InvalidValue, match="use_local_sgd does not go with DGCMomentum"):
        refused(switched(use_local_sgd=True), fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0))
    strategy = switched(forward_recompute=True)
    fleet = fleet_of(0, ["127.0.0.1:1"])
    with pytest.raises(InvalidValue, match="recompute_checkpoints"):
        fleet.distributed_optimizer(sgd, strategy).minimize(fluid.data("loss", [1]))
    with pytest.raises(EnforceNotMet, match="Did you mean"):
        switched(use_local_sdg=True)
    with pytest.raises(InvalidType, match="takes a DistributedStrategy"):
        fleet.distributed_optimizer(sgd, 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="takes an optimizer"):
        fleet.distributed_optimizer(3)
    with pytest.raises(InvalidState, match=r"call fleet\.init"):
        built(Collective())


def test_calls_for_servers_only_warn(caplog: pytest.LogCaptureFixture) -> None:
    fleet = fleet_of(0, ["127.0.0.1:1"])
    fleet.init_worker()
    fleet.run_server()
    assert caplog.text.count("does nothing in collective mode") == 2
