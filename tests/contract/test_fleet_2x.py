"""Paddle 2.x's fleet: one worker and two, with and without servers, and its switches."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rowlock
from rowlock import distributed, optimizer, static
from rowlock.distributed import fleet as fleet_module
from rowlock.distributed.fleet import (
    DistributedStrategy,
    Fleet,
    PaddleCloudRoleMaker,
    Role,
    UserDefinedRoleMaker,
)
from rowlock.graph.program import unique_name
from rowlock.strategies.errors import (
    EnforceNotMet,
    InvalidState,
    InvalidType,
    InvalidValue,
    StrategyError,
    UnknownField,
    Unsupported,
)
from tests.reference import fleet_2x

PADDLES = json.loads(Path(fleet_2x.__file__).with_suffix(".json").read_text())
STEPS, ROWS = 4, 8
WITHIN_S = 60.0
_ports = itertools.count(42000)


@pytest.fixture(autouse=True)
def on_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_PSERVERS_IP_PORT_LIST", "TRAINING_ROLE"):
        monkeypatch.delenv(name, raising=False)
    with rowlock.cluster(launcher="threads", start_deadline_s=30, step_deadline_s=30):
        yield


def fleet_of(number: int = 0, endpoints: list[str] | None = None) -> Fleet:
    fleet = Fleet()
    where = endpoints or ["127.0.0.1:1"]
    fleet.init(UserDefinedRoleMaker(True, current_id=number, worker_endpoints=where))
    return fleet


def switched(**switches: Any) -> DistributedStrategy:
    strategy = DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    return strategy


class Job:
    """A net with batch norm that a fleet distributed."""

    def __init__(
        self, fleet: Fleet, strategy: Any = None, method: Any = None, table: bool = False
    ) -> None:
        self.fleet, self.main, self.startup = fleet, static.Program(), static.Program()
        self.main.random_seed = self.startup.random_seed = 5
        with static.program_guard(self.main, self.startup), unique_name.guard():
            x, y = static.data("x", [None, 4]), static.data("y", [None, 1])
            hidden = static.nn.fc(x, 3, activation="tanh", weight_attr="w")
            if strategy is not None and strategy.sync_batch_norm:
                hidden = static.nn.batch_norm(hidden)
            if strategy is not None and strategy.recompute:
                strategy.recompute_configs = {"checkpoints": [hidden.name]}
            guess = static.nn.fc(hidden, 1, weight_attr="v")
            if table:
                ids = static.data("ids", [None], "int64")
                guess = guess + static.nn.sparse_embedding(ids, [6, 1], param_attr="t")
            self.loss = rowlock.mean((guess - y) ** 2)
            chosen = optimizer.Momentum(0.1, 0.5) if method is None else method
            self.optimizer = fleet.distributed_optimizer(chosen, strategy)
            self.optimizer.minimize(self.loss)

    def train(self, scope: Any, part: slice = slice(None)) -> list[float]:
        exe = static.Executor(rowlock.CPUPlace())
        exe.run(self.startup, scope=scope)
        return self.steps(exe, scope, part)

    def steps(self, exe: Any, scope: Any, part: slice = slice(None)) -> list[float]:
        losses = []
        for feed in feeds():
            fed = {n: v[part] for n, v in feed.items() if self.main.global_block().has_var(n)}
            losses.append(float(np.mean(exe.run(self.main, fed, [self.loss], scope=scope)[0])))
        return losses


def feeds() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(STEPS):
        x = rng.standard_normal((ROWS, 4)).astype("float32")
        batches.append({"x": x, "y": x.sum(1, keepdims=True), "ids": rng.integers(0, 6, ROWS)})
    return batches


def run(calls: list[Callable[[], Any]]) -> list[Any]:
    """Return what calls, each on a thread of its own, return."""
    outcomes: list[Any] = [None] * len(calls)

    def attempt(i: int) -> None:
        try:
            outcomes[i] = calls[i]()
        except BaseException as error:
            outcomes[i] = error

    threads = [threading.Thread(target=attempt, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
    assert not any(thread.is_alive() for thread in threads)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def half(number: int) -> slice:
    return slice(number * ROWS // 2, (number + 1) * ROWS // 2)


SWITCHES: list[dict[str, Any]] = [
    {},
    {"recompute": True},
    {"sync_batch_norm": True},
    {"localsgd": True},
    {"lars": True, "lars_configs": {"lars_coeff": 0.5, "exclude_from_weight_decay": ["b_0"]}},
    {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}},
    {"nccl_comm_num": 2, "fuse_all_reduce_ops": False},
]


@pytest.mark.cpu
@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: next(iter(s), "default"))
def test_two_workers_follow_one(switches: dict[str, Any]) -> None:
    where = [f"127.0.0.1:{next(_ports)}" for _ in range(2)]
    method = optimizer.SGD(0.1) if "localsgd" in switches else None
    jobs = [Job(fleet_of(i, where), switched(**switches), method) for i in range(2)]
    losses = run([lambda i=i: jobs[i].train(static.Scope(), half(i)) for i in range(2)])  # type: ignore[misc]
    alone = Job(fleet_of(), switched(**switches), method).train(static.Scope())
    np.testing.assert_allclose(np.mean(losses, 0), alone, rtol=1e-5)


@pytest.mark.cpu
@pytest.mark.parametrize("local", [False, True])
def test_workers_step_their_learning_rates(local: bool) -> None:
    def train(job: Job, rate: Any, part: slice) -> list[float]:
        exe, scope, losses = static.Executor(rowlock.CPUPlace()), static.Scope(), []
        exe.run(job.startup, scope=scope)
        for feed in feeds():
            fed = {name: value[part] for name, value in feed.items() if name != "ids"}
            losses.append(float(exe.run(job.main, fed, [job.loss], scope=scope)[0][0]))
            rate.step()
        return losses

    where = [f"127.0.0.1:{next(_ports)}" for _ in range(2)]
    rates = [optimizer.lr.StepDecay(0.2, 1, gamma=0.5) for _ in range(3)]
    methods = [optimizer.SGD(rate) for rate in rates]
    fleets = [*(fleet_of(i, where) for i in range(2)), fleet_of()]
    jobs = [Job(f, switched(localsgd=local), m) for f, m in zip(fleets, methods, strict=True)]
    losses = run([lambda i=i: train(jobs[i], rates[i], half(i)) for i in range(2)])  # type: ignore[misc]
    np.testing.assert_allclose(np.mean(losses, 0), train(jobs[2], rates[2], slice(None)), rtol=1e-5)


def test_the_main_program_is_run_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(fleet_of(), switched(find_unused_parameters=True, fuse_grad_merge=True))
    plain = static.Program()
    scope, exe = static.Scope(), static.Executor(rowlock.CPUPlace())
    exe.run(job.startup, scope=scope)
    test = job.main.clone(for_test=True)
    assert test.parallel_form is None and plain.parallel_form is None
    losses = job.steps(exe, scope)
    report = job.fleet.main_program.explain()
    assert {"find_unused_parameters", "fuse_grad_merge"} <= set(report.ignored)
    monkeypatch.setenv("CPU_NUM", "2")
    again = Job(fleet_of()).train(static.Scope())
    np.testing.assert_allclose(again, losses, rtol=1e-5)
    # what is appended behind minimize is run, too
    with static.program_guard(job.main, job.startup):
        doubled = rowlock.scale(job.loss, 2.0)
    value, loss = exe.run(job.main, _fed(job), [doubled, job.loss], scope=scope)
    np.testing.assert_allclose(value, 2 * loss, rtol=1e-6)
    (tested,) = exe.run(test, _fed(job), [job.loss], scope=scope)
    assert tested < losses[0]


def _fed(job: Job) -> dict[str, Any]:
    return {name: value for name, value in feeds()[0].items() if name != "ids"}


@pytest.mark.parametrize("name", PADDLES)
def test_switches_train_as_in_paddle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "1")
    own = Fleet()
    names = {"init": own.init, "distributed_optimizer": own.distributed_optimizer}
    module = SimpleNamespace(**names, DistributedStrategy=DistributedStrategy)
    losses = fleet_2x.losses(rowlock, module, name)
    np.testing.assert_allclose(losses, PADDLES[name], rtol=1e-5)


def test_what_switches_make_of_the_optimizer() -> None:
    amp = {"init_loss_scaling": 8, "use_dynamic_loss_scaling": False, "custom_black_list": ["tanh"]}
    job = Job(fleet_of(), switched(amp=True, amp_configs=amp, recompute=True))
    kinds = [op.type for op in job.main.global_block().ops]
    assert "cast" in kinds and "check_finite_and_unscale" in kinds
    scope, exe = static.Scope(), static.Executor(rowlock.CPUPlace())
    exe.run(job.startup, scope=scope)
    scaling = job.optimizer.get_loss_scaling()
    (value,) = exe.run(job.main, _fed(job), [scaling], scope=scope)
    assert value.tolist() == [8.0]
    job = Job(
        fleet_of(), switched(amp=True, amp_configs={"use_pure_fp16": True, "use_fp16_guard": False})
    )
    scope = static.Scope()
    exe.run(job.startup, scope=scope)
    job.optimizer.amp_init(rowlock.CPUPlace(), scope=scope)
    assert np.array(scope.find_var("w").get_tensor()).dtype == np.float16
    assert np.isfinite(job.steps(exe, scope)).all()


def updates(strategy: DistributedStrategy, method: Any = None) -> dict[str, Any]:
    ops = Job(fleet_of(), strategy, method).main.global_block().ops
    return {op.input("Param")[0]: op for op in ops if "Param" in op.input_names}


def test_lars_lamb_and_dgc_take_the_place_of_others() -> None:
    lars = {"lars_weight_decay": 0.25, "exclude_from_weight_decay": ["b_0"]}
    ops = updates(switched(lars=True, lars_configs=lars))
    assert ops["w"].type == "lars_momentum" and ops["w"].attr("lars_weight_decay") == 0.25
    assert ops["fc_0.b_0"].type == "momentum"
    lamb = {"exclude_from_weight_decay": [".b_0"]}
    ops = updates(switched(lamb=True, lamb_configs=lamb), optimizer.Adam(0.1, beta1=0.7))
    assert {op.type for op in ops.values()} == {"lamb"}
    assert ops["w"].attr("weight_decay") == 0.01 and ops["w"].attr("beta1") == 0.7
    assert ops["w"].attr("corrects_bias") and ops["fc_0.b_0"].attr("weight_decay") == 0.0
    dgc = {"rampup_begin_step": 3, "sparsity": [0.9]}
    job = Job(fleet_of(), switched(dgc=True, dgc_configs=dgc))
    assert job.optimizer._ramp == {"rampup_begin_step": 3, "rampup_step": 1, "sparsity": [0.9]}
    with pytest.raises(InvalidType, match="takes the place of Momentum, got SGD"):
        updates(switched(lars=True), optimizer.SGD(0.1))
    with pytest.raises(InvalidType, match="takes the place of Adam, got Lamb"):
        updates(switched(lamb=True), optimizer.Lamb(0.1))
    with pytest.raises(InvalidValue, match="lars and dgc are different"):
        updates(switched(lars=True, dgc=True))


def test_switches_that_are_refused() -> None:
    sgd = optimizer.SGD(0.1)
    for name in ("sharding", "pipeline", "tensor_parallel", "fp16_allreduce", "asp", "qat"):
        with pytest.raises(Unsupported, match=f"{name}=True is not built: "):
            Job(fleet_of(), switched(**{name: True}), sgd)
    with pytest.raises(Unsupported, match=r"localsgd_configs\[k_steps=4\]"):
        Job(fleet_of(), switched(localsgd=True, localsgd_configs={"k_steps": 4}), sgd)
    with pytest.raises(Unsupported, match="mp_degree=2"):
        Job(fleet_of(), switched(hybrid_configs={"mp_degree": 2}), sgd)
    with pytest.raises(InvalidValue, match="dp_degree is 4, and there are 1"):
        Job(fleet_of(), switched(hybrid_configs={"dp_degree": 4}), sgd)
    with pytest.raises(InvalidType, match="localsgd goes with SGD and Momentum"):
        Job(fleet_of(), switched(localsgd=True), optimizer.Adam(0.1))
    with pytest.raises(InvalidValue, match="localsgd does not go with DGCMomentum"):
        Job(fleet_of(), switched(localsgd=True, dgc=True), optimizer.Momentum(0.1, 0.9))
    with pytest.raises(InvalidValue, match="does not go with"):
        Job(fleet_of(), switched(amp=True), static.amp.decorate(sgd))
    # settings of a switch that is off are not looked at
    Job(fleet_of(), switched(localsgd_configs={"k_steps": 4}), sgd)


def test_settings_are_read_and_set_as_dicts() -> None:
    strategy = DistributedStrategy()
    strategy.amp_configs = {"incr_ratio": 3}
    strategy.amp_configs = {"custom_white_list": ("softmax",)}
    assert strategy.amp_configs["incr_ratio"] == 3.0
    assert dict(strategy.amp_configs)["custom_white_list"] == ["softmax"]
    strategy.a_sync_configs = {"k_steps": 7}
    strategy.a_sync = True  # Paddle forgets k_steps here
    assert strategy.a_sync_configs["k_steps"] == 0
    with pytest.raises(UnknownField, match=r"incr_ration.*incr_ratio"):
        strategy.amp_configs = {"incr_ration": 3}
    with pytest.raises(StrategyError, match="decr_ratio"):
        strategy.amp_configs = {"decr_ratio": 3}
    with pytest.raises(EnforceNotMet, match="Did you mean"):
        strategy.recompte = True


def test_a_process_without_a_job_trains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for collective in (False, True):
        fleet = Fleet()
        fleet.init(is_collective=collective)
        assert fleet.is_first_worker() and not fleet.is_server()
        assert (fleet.worker_num(), fleet.node_num()) == (1, 1)
        assert fleet.util.all_reduce([2, 3]).tolist() == [2, 3]
        assert fleet.util.all_gather(5) == [5]
        assert fleet.util.get_file_shard(["a", "b"]) == ["a", "b"]
        fleet.barrier_worker()
    assert (distributed.get_rank(), distributed.get_world_size()) == (0, 1)
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6070,10.0.0.2:6070")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    assert (distributed.get_rank(), distributed.get_world_size()) == (1, 2)
    assert distributed.init_parallel_env().current_endpoint == "10.0.0.2:6070"
    fleet = Fleet()
    fleet.init(is_collective=True)
    assert (fleet.worker_index(), fleet.node_num()) == (1, 2)
    assert repr(fleet).startswith("<fleet: <CloudRoleMaker: TRAINER 1, of 2 workers")


def test_calls_in_a_wrong_order() -> None:
    with pytest.raises(InvalidState, match=r"call fleet\.init"):
        Fleet().distributed_optimizer(optimizer.SGD(0.1))
    with pytest.raises(InvalidState, match=r"call fleet\.distributed_optimizer"):
        fleet_of().minimize(None)
    with pytest.raises(InvalidType, match="takes a role maker, got int"):
        Fleet().init(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="is_collective must be a bool"):
        Fleet().init(is_collective=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match=r"takes a fleet\.DistributedStrategy"):
        fleet_of().distributed_optimizer(optimizer.SGD(0.1), 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="no argument 'rank'"):
        UserDefinedRoleMaker(rank=3)
    assert isinstance(fleet_module.fleet, Fleet)
    with pytest.raises(AttributeError, match="distributed_optimizer is enough"):
        fleet_module.distributed_model  # noqa: B018


def test_the_fleet_of_the_module(tmp_path: Path, fresh_programs: None) -> None:
    fleet_module.init(PaddleCloudRoleMaker(is_collective=True))
    x = static.data("x", [None, 4])
    guess = static.nn.fc(x, 1)
    loss = rowlock.mean(guess * guess)
    fleet_module.distributed_optimizer(optimizer.SGD(0.1))
    fleet_module.minimize(loss)
    exe = static.Executor(rowlock.CPUPlace())
    with static.scope_guard(static.Scope()):
        exe.run(static.default_startup_program())
        exe.run(static.default_main_program(), {"x": np.ones((2, 4), "float32")}, [loss])
        fleet_module.save_persistables(exe, str(tmp_path / "all"))
        fleet_module.save_inference_model(exe, str(tmp_path / "model"), ["x"], [guess])
    assert (tmp_path / "all" / "fc_0.w_0").exists() and (tmp_path / "model" / "__model__").exists()


def served(role: int, number: int, servers: list[str]) -> Fleet:
    fleet = Fleet()
    maker = UserDefinedRoleMaker(
        current_id=number, role=role, worker_num=2, server_endpoints=servers
    )
    fleet.init(maker)
    return fleet


def serve(fleet: Fleet) -> None:
    fleet.init_server()
    fleet.run_server()


def work(job: Job) -> list[float]:
    exe, scope = static.Executor(rowlock.CPUPlace()), static.Scope()
    exe.run(job.startup, scope=scope)
    job.fleet.init_worker()
    losses = job.steps(exe, scope, half(job.fleet.worker_index()))
    job.fleet.barrier_worker()
    job.fleet.stop_worker()
    return losses


@pytest.mark.parametrize("mode", ["sync", "async", "geo"])
def test_workers_with_servers(mode: str) -> None:
    strategy = switched(a_sync=mode != "sync")
    strategy.a_sync_configs = {"k_steps": 2 if mode == "geo" else 0}
    where = [f"127.0.0.1:{next(_ports)}" for _ in range(2)]
    sgd = optimizer.SGD(0.1)
    servers = [Job(served(Role.SERVER, i, where), strategy, sgd, table=True) for i in range(2)]
    jobs = [Job(served(Role.WORKER, i, where), strategy, sgd, table=True) for i in range(2)]
    losses = run(
        [lambda s=s: serve(s.fleet) for s in servers]  # type: ignore[misc]
        + [lambda job=job: work(job) for job in jobs]  # type: ignore[misc]
    )[2:]
    alone = Job(fleet_of(), None, sgd, table=True).train(static.Scope())
    if mode == "sync":
        np.testing.assert_allclose(np.mean(losses, 0), alone, rtol=1e-5)
    assert np.isfinite(losses).all()


def test_servers_refuse_switches_of_workers_alone() -> None:
    fleet = served(Role.WORKER, 0, ["127.0.0.1:1"])
    with pytest.raises(Unsupported, match="amp is a collective fleet's"):
        fleet.distributed_optimizer(optimizer.SGD(0.1), switched(amp=True))
    with pytest.raises(Unsupported, match=r"a_sync_configs\[use_ps_gpu=1\]"):
        fleet.distributed_optimizer(optimizer.SGD(0.1), switched(a_sync_configs={"use_ps_gpu": 1}))
