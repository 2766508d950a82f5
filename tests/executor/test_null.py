"""Plans on a device that computes nothing: binding and dispatch are the same, results are not written."""

from __future__ import annotations

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.device.device import Device
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.null import NullDevice, null_gpu_plan, null_plan
from rowlock.executor.plan.plan import Plan
from rowlock.executor.simulated.null import NullRuntime
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.replica_program import ReplicaProgram
from rowlock.graph.passes.target import Target
from tests.reference import models


def program_and_feeds(name: str) -> tuple[ReplicaProgram, list[np.ndarray]]:
    model, fed = models.build(name, fluid), models.feed(name, 0)
    compiled = compile_program(model.main, list(fed), [model.loss.name], Target(), capabilities())
    return compiled.program, list(fed.values())


def device_of(plan: Plan) -> NullDevice:
    assert isinstance(plan.device, NullDevice)
    return plan.device


@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet", "attention"])
def test_a_plan_is_bound_and_run_but_nothing_is_computed(name: str) -> None:
    program, feeds = program_and_feeds(name)
    plan = null_plan(program, feeds)
    assert [i.op for i in plan.instructions] == [node.op for node in program.nodes]
    counted = device_of(plan).calls
    assert sum(counted.values()) == sum(len(i.calls) for i in plan.instructions)
    assert {"mul", "sgd"} & set(counted) or {"matmul", "adam"} & set(counted)
    before = [array.copy() for array in plan.fetched()]
    plan.run(feeds)
    plan.run(feeds, timed=True)
    for array, copy in zip(plan.fetched(), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert plan.trace is not None and len(plan.trace) == len(plan.instructions)


def test_an_ordinary_device_calls_what_kernels_return() -> None:
    calls = [lambda: None]
    assert Device().bound("relu", calls) is calls


def gpu_program(name: str, runtime: NullRuntime) -> tuple[ReplicaProgram, list[np.ndarray]]:
    model, fed = models.build(name, fluid), models.feed(name, 0)
    able = capabilities(frozenset(runtime.versions()))
    compiled = compile_program(
        model.main, list(fed), [model.loss.name], Target(), able, "cupy"
    ).program
    return compiled, [fed[compiled.values[i].name] for i in compiled.feeds]


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_a_step_on_a_gpu_is_bound_captured_and_replayed_without_one(name: str) -> None:
    runtime = NullRuntime()
    program, feeds = gpu_program(name, runtime)
    plan = null_gpu_plan(program, feeds, runtime)
    for _ in range(3):
        plan.run(feeds)
    graphs = [one for one in plan.segments if one.capturable and len(one.steps) >= 3]
    assert graphs and all(one.graphs for one in graphs)
    runtime.call_counts.clear()
    plan.run(feeds)
    assert runtime.call_counts["graph"] == len(graphs)
    assert [array.shape for array in plan.fetched()] == [(1,)]


def test_all_feeds_of_a_step_travel_in_one_copy_and_so_do_its_fetches() -> None:
    runtime = NullRuntime()
    program, feeds = gpu_program("mlp", runtime)
    assert len(feeds) > 1
    plan = null_gpu_plan(program, feeds, runtime)
    plan.run(feeds)
    runtime.call_counts.clear()
    plan.run(feeds)
    assert runtime.call_counts["copy"] == 2, "nothing reads the clock"
