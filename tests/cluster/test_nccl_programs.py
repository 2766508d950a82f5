"""Programs on several simulated GPUs that meet by NCCL: the same results as on CPUs, and when they meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.cuda.runtime import Fork, Waiting
from rowlock.executor.gang.delivery import Request, Share
from rowlock.executor.gang.local import launch_threads
from rowlock.executor.gang.staged import StagedGroup
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.cuda_plan import CudaPlan
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.options import RunOptions
from rowlock.executor.simulated import nccl
from rowlock.executor.simulated.streams import is_in_graph
from rowlock.graph.compile import Compiled, compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.cluster import ClusterConfig
from tests.contract.crews import Crew, crew

GPU = capabilities(frozenset({"cuda", "cublaslt", "cudnn"}))
SCOPE, WIDTH = 1, 12

pytestmark = pytest.mark.cuda


def compiled(
    replicas: int,
    on_gpus: bool = True,
    fetches: Sequence[str] | None = None,
    middle: str | None = None,
    checks: bool = False,
    **switches: Any,
) -> tuple[Compiled, dict[str, Any]]:
    """Return three layers trained by momentum, a bucket for each gradient, and values to begin with.

    ``fetches``: names (None: the loss). ``middle``: the device of the layer in the middle. ``checks``: the host
    looks for NaN.
    """
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, WIDTH]), fluid.data("y", [None, 1])
        hidden = x
        for layer in range(3):  # no products, which not every GPU can capture
            weight, bias = (fluid.layers.create_parameter([WIDTH], "float32") for _ in range(2))
            with fluid.device_guard(middle if layer == 1 else None):
                hidden = fluid.layers.tanh(hidden * weight + bias)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(hidden, y))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    strategy = BuildStrategy(**switches)
    target = Target(
        replicas=replicas, strategy=strategy, has_loss=True, bucket_bytes=8, checks=checks
    )
    able, back_end = (GPU, "cupy") if on_gpus else (capabilities(), "numpy")
    names = (loss.name,) if fetches is None else tuple(fetches)
    model = compile_program(main, ("x", "y"), names, target, able, back_end)
    rng = np.random.default_rng(0)
    block = main.global_block()
    values = {
        name: rng.standard_normal(block.var(name).shape).astype("f4") * 0.3
        if "velocity" not in name
        else np.zeros(block.var(name).shape, "f4")
        for name in model.program.needed_names()
    }
    rates = [name for name in values if "learning_rate" in name]
    return model, values | {name: np.full(1, 0.1, "f4") for name in rates}


def loaded(team: Crew, model: Compiled, values: dict[str, Any]) -> None:
    options = RunOptions.sequential().to_plain()
    team.all(
        "load", id=1, program=model.program.to_json(), scope=SCOPE, options=options, functions=[]
    )
    team.all("write", list(values.values()), scope=SCOPE, names=list(values))


def told(team: Crew, number: int, rows: int = 4) -> dict[int, Message]:
    """Return what all ranks answer to a step, whatever that is."""
    rng = np.random.default_rng(number)
    xs = [rng.standard_normal((rows, WIDTH)).astype("f4") for _ in range(team.size)]
    head = {"id": 1, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
    messages = {
        rank: Message("step", head, [x, x.sum(1, keepdims=True)], number)
        for rank, x in enumerate(xs)
    }
    return team.tell(messages)


def step(team: Crew, number: int, rows: int = 4) -> dict[int, Message]:
    answers = told(team, number, rows)
    assert all(a.kind == "fetched" for a in answers.values()), answers
    return answers


def trained(kind: str, size: int, steps: int = 5, **switches: Any) -> tuple[list[Any], list[Any]]:
    """Return what each rank holds after some steps, and the losses on the way."""
    model, values = compiled(size, kind == "nccl", **switches)
    losses = []
    with crew(kind, size, 60.0) as team:
        loaded(team, model, values)
        for number in range(steps):
            answers = step(team, number)
            losses += [float(answers[rank].arrays[0][0]) for rank in range(size)]
        states = [
            {name: np.array(value) for name, value in replica.scopes[SCOPE].arrays.items()}
            for replica in team.replicas
        ]
    return states, losses


REDUCE = {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce}


@pytest.mark.parametrize(("size", "switches"), [(2, {}), (4, {}), (4, REDUCE)])
def test_gpus_learn_what_cpus_learn(size: int, switches: dict[str, Any]) -> None:
    states, losses = trained("nccl", size, **switches)
    expected, known = trained("memory", size, **switches)
    np.testing.assert_allclose(losses, known, rtol=1e-5)
    for rank, values in enumerate(states):
        assert values.keys() == expected[rank].keys()
        for name, value in values.items():
            np.testing.assert_allclose(value, expected[rank][name], rtol=1e-5, atol=1e-6)
            others = [other[name].tobytes() for other in states if name in other]
            assert "velocity" in name or set(others) == {value.tobytes()}, name


def bound(team: Crew, rank: int) -> CudaPlan:
    (bound_plan,) = team.replicas[rank].programs[1].plans
    assert isinstance(bound_plan.plan, CudaPlan)
    return bound_plan.plan


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_bucket_travels_once_it_is_full_and_is_waited_for_at_the_vote(size: int) -> None:
    model, values = compiled(size)
    with crew("nccl", size, 60.0) as team:
        loaded(team, model, values)
        step(team, 0)
        plans = [bound(team, rank) for rank in range(size)]
        assert len({replica.programs[1].program.schedule for replica in team.replicas}) == 1
        assert len({str(plan) for plan in plans}) == 1
    plan = plans[0]
    meetings = [i for i, one in enumerate(plan.instructions) if one.op == "fused_all_reduce"]
    assert len(meetings) == 6
    needs = plan.needs()
    for i in meetings[:-1]:
        last = max(k for k in needs[i] if k not in meetings)
        assert all(k in meetings for k in range(last + 1, i)), "nothing stands in between"
    steps = [call for calls in plan._by_instruction for call in calls]
    forks = [k for k, call in enumerate(steps) if isinstance(call, Fork)]
    joins = [k for k, call in enumerate(steps) if call in [steps[f].finish for f in forks]]
    asked, landed = [k for k, call in enumerate(steps) if isinstance(call, Waiting)]
    assert joins == list(range(asked - len(forks), asked)), "at once, before the host asks"
    assert landed == asked + 1
    assert max(forks) < min(joins)


def test_all_up_to_the_vote_is_one_graph_and_so_are_the_updates() -> None:
    model, values = compiled(2)
    with crew("nccl", 2, 60.0) as team:
        loaded(team, model, values)
        for number in range(3):
            step(team, number)
        plan = bound(team, 0)
        graphs = [segment for segment in plan.segments if segment.capturable]
        hosts = [segment for segment in plan.segments if not segment.capturable]
        assert len(graphs) <= len(hosts) + 1 and all(segment.graphs for segment in graphs[:1])
        assert any(isinstance(call, Fork) for call in graphs[0].steps)
        text = " ".join(plan.described())
        assert "replicas meet there" in text


def test_communicators_and_levels_are_hints() -> None:
    plain, _ = compiled(4)
    asked = {"nccl_comm_num": 2, "use_hierarchical_allreduce": True}
    hinted, _ = compiled(4, **asked, hierarchical_allreduce_inter_nranks=3)
    assert hinted.program == plain.program
    assert {*asked, "hierarchical_allreduce_inter_nranks"} <= set(hinted.report.ignored)


def test_after_a_failure_plans_are_captured_anew_and_go_on() -> None:
    model, values = compiled(2)
    with crew("nccl", 2, 60.0) as team:
        loaded(team, model, values)
        for number in range(3):
            step(team, number)
        before = team.held()
        old = bound(team, 0)
        bad = {"id": 1, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
        x = np.ones((4, WIDTH), "f4")
        answers = team.tell(
            {
                0: Message("step", bad, [x, np.ones((4, 1), "f4")], 3),
                1: Message("step", bad, [x[:, :5], np.ones((4, 1), "f4")], 3),
            }
        )
        assert [a.kind for a in answers.values()] == ["error"] * 2
        assert answers[0].head["collateral"] and not answers[1].head["collateral"]
        assert team.held() == before
        team.epoch += 1
        for number in range(3, 6):
            step(team, number)
        assert bound(team, 0) is not old
        first, second = team.held()
        assert first == second != before[0]


def test_a_program_of_one_place_begins_no_step_of_the_gang() -> None:
    """A startup or test program runs on the place's replica; then all load another together.

    So it does if something failed before, after which all begin their collectives afresh.
    """
    model, values = compiled(2)
    alone, _ = compiled(1)
    with crew("nccl", 2, 60.0) as team:
        loaded(team, model, values)
        step(team, 0)
        options = replace(RunOptions.sequential(), alone=True).to_plain()
        order = {"id": 2, "program": alone.program.to_json(), "scope": SCOPE, "options": options}
        head = {"id": 2, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
        x = np.ones((4, WIDTH), "f4")
        load = Message("load", {**order, "functions": []})
        run = Message("step", head, [x, x.sum(1, keepdims=True)], 0)
        for epoch, message in enumerate((load, run, load, run)):
            team.epoch += epoch > 1
            (answer,) = team.tell({0: message}).values()
            assert answer.kind != "error", answer
        plain = {"program": model.program.to_json(), "options": RunOptions.sequential().to_plain()}
        team.all("load", **{**order, **plain, "id": 3}, functions=[])


def test_a_traced_step_does_the_same() -> None:
    model, values = compiled(2)
    states = []
    for traced in (False, True):
        with crew("nccl", 2, 60.0) as team:
            loaded(team, model, values)
            step(team, 0)
            team.all("trace", id=1, on=traced)
            step(team, 1)
            step(team, 2)
            steps = team.all("trace", id=1, on=False)[0].head["steps"]
            assert len(steps) == 2 * traced
            states.append(team.held())
    assert states[0] == states[1] and states[0][0] == states[0][1]


def test_gpus_of_one_process_meet_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWLOCK_SIMULATED_GPUS", "2")
    model, values = compiled(2)
    gang = launch_threads(fluid.cuda_places([0, 1]), ClusterConfig(launcher="threads"))
    assert all(isinstance(replica.group, StagedGroup) for replica in gang.delivery.replicas)  # type: ignore[attr-defined]
    number = gang.load(model.program.to_json(), SCOPE)
    gang.write(SCOPE, list(values), list(values.values()))
    for k in range(3):
        rng = np.random.default_rng(k)
        xs = [rng.standard_normal((4, WIDTH)).astype("f4") for _ in range(2)]
        shares = [Share([x, x.sum(1, keepdims=True)], [0], [1.0], [False]) for x in xs]
        request = Request(number, shares, k, 1, [])
        gang.begin(request)
        gang.finish(request)
    expected, _ = trained("memory", 2, steps=3)
    for rank in range(2):
        for name, value in expected[rank].items():
            np.testing.assert_allclose(
                gang.read(SCOPE, name, rank), value, rtol=1e-5, atol=1e-6, err_msg=name
            )
    gang.close()


@pytest.mark.parametrize("way", ["timed", "with work on the host", "looked at"])
def test_a_rank_that_is_lost_within_a_step_is_not_waited_for_by_a_host_that_waits_for_its_gpu(
    way: str,
) -> None:
    """Which waits for the lost one's gradients, and knows no deadline."""
    middle = "cpu" if way == "with work on the host" else None
    model, values = compiled(2, middle=middle, checks=way == "looked at")
    with crew("nccl", 2, 20.0) as team:
        loaded(team, model, values)
        for number in range(2):
            step(team, number)
        team.all("trace", id=1, on=way == "timed")
        before, lost = team.held(), bound(team, 1)
        agree = lost._graphs.key

        def agree_and_fail(able: bool) -> None:
            agree(able)
            raise OSError("its process is out of memory")

        lost._graphs.key = agree_and_fail  # type: ignore[method-assign]
        answers = told(team, 2)
        assert [answers[rank].head["collateral"] for rank in range(2)] == [True, False], answers
        assert "its process is out of memory" in answers[0].head["text"]
        assert team.held() == before
        lost._graphs.key = agree  # type: ignore[method-assign]
        team.epoch += 1
        step(team, 2)


def test_several_rings_and_two_levels_are_one_communicator_in_one_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Collectives of two communicators in one graph may wait for each other on two GPUs."""
    communicators: list[int] = []
    put: list[tuple[int, int, bool]] = []  # rank, stream, whether a graph holds it
    form, all_reduce = nccl.NcclCommunicator.__init__, nccl.NcclCommunicator.allReduce

    def formed(self: Any, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        communicators.append(rank)
        form(self, ndev, commId, rank, config)

    def noted(self: Any, *arguments: int) -> None:
        put.append((self.rank_id(), arguments[-1], is_in_graph()))
        all_reduce(self, *arguments)

    monkeypatch.setattr(nccl.NcclCommunicator, "__init__", formed)
    monkeypatch.setattr(nccl.NcclCommunicator, "allReduce", noted)
    levels = {"use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2}
    states, _ = trained("nccl", 4, 4, nccl_comm_num=2, **levels)
    assert sorted(communicators) == [0, 1, 2, 3]
    captured = [(rank, stream) for rank, stream, in_graph in put if in_graph]
    assert len(captured) == 3 * 4 * 6 and len(set(captured)) == 4, "a stream for each rank"
    plain, _ = trained("nccl", 4, 4)
    for values, others in zip(states, plain, strict=True):
        assert all(value.tobytes() == others[name].tobytes() for name, value in values.items())
