"""Random programs train alike on several places, whatever the passes between them do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.build import GradientScaleStrategy, ReduceStrategy
from tests.conftest import draws, sample
from tests.graph.random_nets import RandomNet, random_net
from tests.programs import on_places

GRAPHS = 20  # for each pass between places; each fusion has nets of its own on one place
PLACES = 2
Result = tuple[list[np.ndarray], dict[str, np.ndarray]]
# Every sample weighs the same, so that two places with one row and two train as one place with three.
WEIGHTED = {"gradient_scale_strategy": GradientScaleStrategy.SampleWeighted}
ALONE = {"fuse_all_reduce_ops": False, "fuse_bn_add_act_ops": False, **WEIGHTED}
ALL = {
    "fuse_relu_depthwise_conv": True, "fuse_bn_act_ops": True, "fused_attention": True,
    "fused_feedforward": True, "fuse_gemm_epilogue": True, "fuse_elewise_add_act_ops": True,
    "enable_auto_fusion": True, "fuse_all_optimizer_ops": True, "enable_addto": True,
}  # fmt: skip
REDUCE = {"reduce_strategy": ReduceStrategy.Reduce, **WEIGHTED}
STRATEGIES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {
    "gradients in buckets": (WEIGHTED, {}, "coalesce_gradients"),
    "owners": ({**REDUCE, "fuse_broadcast_ops": False}, {}, "place_updates"),
    "delayed": (ALONE, {"allow_op_delay": True}, "delay_collectives"),
    "a barrier": (WEIGHTED, {"use_thread_barrier": True}, "add_barrier"),
    "every fusion": ({**WEIGHTED, **ALL}, {}, "write_after_vote"),
    "every fusion, owners": ({**REDUCE, **ALL}, {}, "place_updates"),
}


@cache
def net(seed: int) -> RandomNet:
    return random_net(seed)


def trained(
    seed: int, build: Mapping[str, Any], execution: Mapping[str, Any], places: int = PLACES
) -> tuple[Result, str]:
    """Return the losses and persistables after all steps, and what explain() says."""
    drawn, scope = net(seed), fluid.Scope()
    strategy = fluid.ExecutionStrategy(**execution)
    program = on_places(drawn.main, places, drawn.fetches[0], build=build, execution=strategy)
    with fluid.scope_guard(scope):
        for name, value in drawn.state.items():
            scope.var(name).get_tensor().set(value, fluid.CPUPlace())
        exe = fluid.Executor(fluid.CPUPlace())
        losses = [exe.run(program, feed, [drawn.fetches[0]])[0] for feed in drawn.feeds]
        state = {n: np.array(scope.find_var(n).get_tensor()) for n in drawn.state}
    return (losses, state), str(program.explain())


@cache
def plainly(seed: int) -> Result:
    return trained(seed, ALONE, {})[0]


def compare(seed: int, results: Result, wanted: Result, losses: bool = True) -> None:
    near = 1e-9 if net(seed).dtype == "float64" else 5e-5
    for one, other in zip(results[0], wanted[0], strict=True) if losses else ():
        np.testing.assert_allclose(one, other, rtol=near, atol=near, err_msg=f"net {seed}")
    for name, other in wanted[1].items():
        np.testing.assert_allclose(
            results[1][name], other, rtol=near, atol=near, err_msg=f"net {seed}: {name}"
        )


@draws(4, GRAPHS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_keeps_the_meaning(threads: None, name: str, draws: int) -> None:
    build, execution, rule = STRATEGIES[name]
    changed = 0
    for seed in sample(GRAPHS, draws):
        result, report = trained(seed, build, execution)
        compare(seed, result, plainly(seed))
        assert rule in report
        changed += any(
            line.startswith(f"  {rule}: ") and " -> " in line for line in report.splitlines()
        )
    assert draws < GRAPHS or changed > GRAPHS / 10, f"{rule} changed {changed} nets"


@draws(8, GRAPHS)
def test_statistics_of_all_places_are_those_of_one_that_sees_every_row(draws: int) -> None:
    """Nets with a batch norm; the others know no difference between one place and two anyway."""
    synchronised = 0
    with rowlock.cluster(launcher="threads"):
        for seed in sample(GRAPHS, draws):
            ops = {op.type for op in net(seed).main.global_block().ops}
            if "batch_norm" not in ops:
                continue
            two, report = trained(seed, {**WEIGHTED, "sync_batch_norm": True}, {})
            one, _ = trained(seed, ALONE, {}, places=1)
            compare(seed, two, one, losses=False)
            synchronised += "share their statistics" in report
    assert draws < GRAPHS or synchronised > GRAPHS / 10
